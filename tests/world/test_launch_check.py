"""What is looked at before a kernel is launched, with launchers and memory that are not there."""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import triton_dist.language as dl
from triton_dist import process_state, triton_api
from triton_dist.compiler import hooks, transport
from triton_dist.gpu import launch_check, module_state
from triton_dist.gpu import world as gpu
from triton_dist.gpu.heap import GpuHeap
from triton_dist.gpu.launch_check import CheckedLauncher, LaunchChecks, Requirements, SymmetricMemory
from triton_dist.gpu.waiting_kernels import WaitingKernels
from triton_dist.process_state import of_process
from triton_dist.world.allocations import AllocationRegistry

HIDDEN = ("stream", "function", "packed", None, None, None)


class Launcher:
    """Stands for Triton's: remembers the grids that got through."""

    num_ctas = 1

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, *arguments: Any) -> None:
        assert arguments[: len(HIDDEN)] == HIDDEN
        self.grids.append((grid_x, grid_y, grid_z))


@pytest.fixture
def memory() -> Iterator[SymmetricMemory]:
    """4096 symmetric bytes, and a count of how often somebody asked whether an address is one."""
    heap = torch.zeros(1024, dtype=torch.int32)
    begin, end = heap.data_ptr(), heap.data_ptr() + 4096
    asked: list[int] = []

    def contains(address: int) -> bool:
        asked.append(address)
        return begin <= address < end

    registry = AllocationRegistry()
    books = GpuHeap(None, heap.device, 3, 4096, registry)
    memory = SymmetricMemory(contains, books.is_freed, "PE 3", scatter_limit=1000)
    memory.heap, memory.asked, memory.registry = heap, asked, registry  # type: ignore[attr-defined]
    of_process(LaunchChecks).memory = memory
    yield memory
    of_process(LaunchChecks).memory = None


def test_a_grid_beyond_what_is_resident_is_refused() -> None:
    launcher = Launcher()
    checked = CheckedLauncher(launcher, Requirements("meet", "file.py:7:4: shmem.barrier_all", resident=264))
    for grid in ((264, 1, 1), (2, 66, 2), (1, 1, 1)):
        checked(*grid, *HIDDEN)
    for grid in ((265, 1, 1), (132, 2, 2), (1 << 16, 1 << 16, 1 << 16)):
        with pytest.raises(RuntimeError) as caught:
            checked(*grid, *HIDDEN)
        message = str(caught.value)
        assert "kernel meet has a collective (file.py:7:4: shmem.barrier_all)" in message
        assert f"grid {grid}" in message and "runs 264 of them at a time" in message
    assert launcher.grids == [(264, 1, 1), (2, 66, 2), (1, 1, 1)]
    assert checked.num_ctas == 1, "what else Triton's launcher has is still there"


def test_an_argument_outside_of_the_heap_is_refused(memory: Any) -> None:
    launcher = Launcher()
    needs = Requirements("put", symmetric={1: ("dst", "file.py:3:4: shmem.putmem, dst")})
    checked = CheckedLauncher(launcher, needs)
    plain = torch.zeros(8)
    for first in (256, 0, 100, 9, 900):
        checked(1, 1, 1, *HIDDEN, plain, memory.heap[first:], 5)
    checked(1, 1, 1, *HIDDEN, plain, torch.zeros(0), 5)
    assert len(launcher.grids) == 6
    assert len(memory.asked) == 3, "what lies between two symmetric addresses needs no question"
    message = r"kernel put: argument dst, a tensor of shape \(8,\) and torch\.float32 at 0x\w+, is not in the symmetric"
    with pytest.raises(ValueError, match=message + r" heap of PE 3, and must be \(file\.py:3:4: shmem\.putmem, dst\)"):
        checked(1, 1, 1, *HIDDEN, memory.heap, plain, 5)
    of_process(LaunchChecks).memory = None  # a launch without a world is refused elsewhere (module_state)
    checked(1, 1, 1, *HIDDEN, memory.heap, plain, 5)


def test_an_argument_that_was_freed_is_refused(memory: Any) -> None:
    launcher = Launcher()
    checked = CheckedLauncher(launcher, Requirements("put", symmetric={0: ("dst", "file.py:3:4: shmem.putmem, dst")}))
    begin = memory.heap.data_ptr()
    allocations = [memory.registry.enter(begin + 1024 * i, 1024, (256,), torch.int32) for i in range(2)]
    checked(1, 1, 1, *HIDDEN, memory.heap[:256])
    memory.registry.remove(allocations[0][0])
    checked(1, 1, 1, *HIDDEN, memory.heap[256:512])
    message = (
        r"argument dst, a tensor of shape \(156,\) .*, is a symmetric tensor that was freed \(file\.py:3:4: shmem\.pu"
    )
    with pytest.raises(ValueError, match=message):
        checked(1, 1, 1, *HIDDEN, memory.heap[100:256])
    _, use = memory.registry.enter(begin, 512, (128,), torch.int32)  # somebody else has got some of it
    checked(1, 1, 1, *HIDDEN, memory.heap[100:256])
    with pytest.raises(ValueError, match="was freed"):
        checked(1, 1, 1, *HIDDEN, memory.heap[200:])
    assert len(launcher.grids) == 3 and use is not None


def test_a_reducescatter_beyond_nvshmem_s_memory_is_refused(memory: Any) -> None:
    launcher = Launcher()
    by_argument = CheckedLauncher(launcher, Requirements("scatter", scatters=((1, 8, "line 3"),)))
    by_argument(1, 1, 1, *HIDDEN, memory.heap, 125)
    with pytest.raises(RuntimeError, match=r"of 1008 bytes for each PE \(line 3\) .*, 1000: set NVSHMEM_REDUCE_S"):
        by_argument(1, 1, 1, *HIDDEN, memory.heap, 126)
    CheckedLauncher(launcher, Requirements("scatter", largest_scatter=(1000, "line 4")))(1, 1, 1, *HIDDEN)
    with pytest.raises(RuntimeError, match=r"1001 bytes for each PE \(line 4\)"):
        CheckedLauncher(launcher, Requirements("scatter", largest_scatter=(1001, "line 4")))(1, 1, 1, *HIDDEN)
    assert len(launcher.grids) == 2


def test_what_nvshmem_has_for_reductions_is_the_user_s_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVSHMEM_REDUCE_SCRATCH_SIZE", "")  # so that it is put back
    monkeypatch.delenv("NVSHMEM_REDUCE_SCRATCH_SIZE")
    assert gpu._reduce_scratch() == 2 << 20
    assert os.environ["NVSHMEM_REDUCE_SCRATCH_SIZE"] == str(2 << 20), "NVSHMEM reads it there"
    monkeypatch.setenv("NVSHMEM_REDUCE_SCRATCH_SIZE", "16M")
    assert gpu._reduce_scratch() == 16 << 20
    monkeypatch.setenv("NVSHMEM_REDUCE_SCRATCH_SIZE", "much")
    with pytest.raises(ValueError, match="NVSHMEM_REDUCE_SCRATCH_SIZE='much'"):
        gpu._reduce_scratch()


def calls(function: Callable[..., Any], *arguments: Any) -> Counter[str]:
    """How often ``function`` calls which functions, of Python and of C, itself counted."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, callee: Any) -> None:
        if event == "call":
            found[frame.f_code.co_name] += 1
        elif event == "c_call":
            found[callee.__name__] += 1

    previous = sys.getprofile()
    gc.disable()  # a collection calls finalizers
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(previous)
        gc.enable()
    del found["setprofile"]
    return found


def test_a_launch_with_known_tensors_makes_three_calls_a_tensor(memory: Any) -> None:
    """Where a tensor is, and the two of :meth:`GpuHeap.is_freed`; with one allocation and with a thousand."""

    def launcher(*arguments: Any) -> None:
        pass

    symmetric = dict.fromkeys(range(3), ("x", ""))
    checked = CheckedLauncher(launcher, Requirements("k", "barrier", 132, symmetric, ((3, 4, ""),)))
    arguments = (1, 1, 1, *HIDDEN, *[memory.heap[256:]] * 3, 10)
    checked(*arguments)
    expected = {"__call__": 1, "data_ptr": 3, "is_freed": 3, "was_freed": 3, "launcher": 1}
    assert calls(checked, *arguments) == expected
    begin = memory.heap.data_ptr()
    entered = [memory.registry.enter(begin + 4 * i, 4, (1,), torch.int32) for i in range(1000)]
    assert calls(checked, *arguments) == expected
    assert len(memory.registry) == len(entered) and len(memory.asked) == 1


# ---- from a kernel to its launcher


def meet(box, flag, n, N: tl.constexpr):
    dl.putmem(box + 4, flag, 8, 1)
    dl.sum_reducescatter(dl.TEAM_WORLD, box, box, n)
    dl.max_reducescatter(dl.TEAM_WORLD, box, box, N)
    dl.barrier_all()


def plain_kernel(box, flag, n, N: tl.constexpr):
    tl.store(box, 1.0)


@pytest.fixture
def load(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``load(kernel)``: compiled as in a process with a GPU, and loaded where 33 programs are resident."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(launch_check, "_resident_programs", lambda kernel: 33)
    monkeypatch.setattr(triton_api, "current_device", lambda: 0)
    monkeypatch.setitem(process_state._instances, WaitingKernels, WaitingKernels())
    launcher = Launcher()

    def init_handles(kernel: Any) -> None:
        kernel.module, kernel._run = 1, launcher

    monkeypatch.setattr(CompiledKernel, "_init_handles", init_handles)
    hooks.install()
    launch_check.install()
    launch_check.install()  # changes nothing

    def load(function: Any) -> Any:
        types = {"box": "*fp32", "flag": "*i64", "n": "i32", "N": "constexpr"}
        source = ASTSource(fn=JITFunction(function), signature=types, constexprs={"N": 100})
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        return SimpleNamespace(run=kernel.run, launcher=launcher)

    return load


def test_what_a_kernel_needs_is_read_off_it(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with transport.using("nvshmem"):
        for _ in ("compiled", "from the disk cache"):
            needs = load(meet).run._needs
            assert needs.kernel == "meet" and needs.resident == 33
            assert re.search(r"test_launch_check\.py:\d+:\d+: shmem\.reducescatter$", needs.collective)
            assert needs.symmetric.keys() == {0} and needs.symmetric[0][0] == "box"
            assert re.search(r"test_launch_check\.py:\d+:\d+: shmem\.putmem, dst$", needs.symmetric[0][1])
            assert [scatter[:2] for scatter in needs.scatters] == [(2, 4)]
            assert needs.largest_scatter[0] == 400
        with monkeypatch.context() as context:
            context.setenv("TRITON_DIST_LAUNCH_CHECKS", "0")
            loaded = load(meet)
            assert loaded.run is loaded.launcher


def test_without_a_limit_of_the_library_there_is_none(load: Any) -> None:
    with transport.using("p2p"):
        needs = load(meet).run._needs
    assert needs.collective and needs.symmetric
    assert not needs.scatters and needs.largest_scatter == (0, "")


def test_the_places_that_wait_are_known(load: Any) -> None:
    with transport.using("p2p"):
        load(meet)
    kernel = of_process(WaitingKernels).find(0)
    assert kernel is not None and kernel.name == "meet"
    first = kernel.site(1)
    assert first is not None and first.lines and all(line.startswith(f"{__file__}:") for line in first.lines)
    assert kernel.site(0) is None and kernel.site(len(kernel.sites) + 1) is None


def test_how_many_programs_are_resident_is_the_driver_s_word(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    status = [0]

    def occupancy(blocks: Any, function: Any, threads: Any, shared: Any) -> int:
        asked.append((function.value, threads.value, shared.value))
        blocks._obj.value = 3
        return status[0]

    class Driver:
        utils = SimpleNamespace(get_device_properties=lambda device: {"multiprocessor_count": 132 + device})

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

    cuda = SimpleNamespace(cuOccupancyMaxActiveBlocksPerMultiprocessor=occupancy)
    monkeypatch.setattr(module_state, "cuda_driver", lambda: cuda)
    monkeypatch.setattr(type(triton.runtime.driver), "active", Driver())
    kernel = SimpleNamespace(function=77, metadata=SimpleNamespace(num_warps=8, shared=1024))
    monkeypatch.setattr(triton_api, "device_properties", triton_api.device_properties.__wrapped__)
    assert launch_check._resident_programs(kernel) == 3 * 132
    monkeypatch.setattr(of_process(launch_check.LaunchChecks), "shares_gpu", True)
    assert launch_check._resident_programs(kernel) == 3 * (132 - 16), "PEs that share a GPU leave out an eighth"
    del asked[1:]
    assert asked == [(77, 256, 1024)]
    status[0] = 1
    assert launch_check._resident_programs(kernel) == 0, "not known"


def test_the_launcher_of_a_plain_kernel_is_triton_s_own(load: Any) -> None:
    loaded = load(plain_kernel)
    assert loaded.run is loaded.launcher


def test_triton_s_own_autotune_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it measures a kernel with shmem ops; not while triton_dist.autotune does, and not for other kernels."""
    facts: dict[str, Any] = {"waits": []}

    def bench(self: Any, *_: Any, config: Any, **__: Any) -> list[float]:
        launch_check._place_checks(SimpleNamespace(metadata=SimpleNamespace(shmem=facts), _run=None, name="k"))
        return [1.0, 1.0, 1.0]

    monkeypatch.setattr(Autotuner, "_bench", bench)
    monkeypatch.setenv("TRITON_DIST_LAUNCH_CHECKS", "0")
    triton_api.extend_autotuning()
    triton_api.extend_autotuning()
    function = SimpleNamespace(fn=nothing, __name__="nothing", arg_names=[])
    config = triton.Config({})

    class Ours(Autotuner):  # type: ignore[misc]
        pass

    def measure(kind: Any) -> None:
        kind(function, [], [config], [], None, None)._bench(config=config)

    with pytest.warns(RuntimeWarning, match="triton.autotune measures nothing.*Use triton_dist.autotune"):
        measure(Autotuner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(Ours)
        facts.clear()
        measure(Autotuner)


def nothing() -> None: ...
