"""Operations that work in two streams, on a machine of streams without a GPU: each does in order what it is given."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stream_machine import Machine, Owner, Stream

from triton_dist import stream_operations
from triton_dist.kernels.gemm import all_gather_gemm, portable
from triton_dist.kernels.gemm.config import LARGE
from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper
from triton_dist.kernels.gemm.hopper import launch
from triton_dist.kernels.gemm.hopper.layout import ENTERED, GATHERED
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.protocols import side_stream


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def world() -> Owner:
    return Owner()


def test_all_gather_gemm_ends_on_each_of_forty_streams(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel waits for rows that copies bring, which wait for the kernel: in one stream, for ever."""
    n_pes, owners = 2, [Owner() for _ in range(2)]
    flags = [torch.zeros(64, dtype=torch.int32) for _ in range(n_pes)]
    gathered = [torch.zeros(256 * n_pes, 64) for _ in range(n_pes)]
    plans: list[dict[object, Any]] = [{} for _ in range(n_pes)]
    pe = 0  # whose host is at work

    def word(owner: int, number: int) -> int:
        return flags[owner].data_ptr() + 4 * number

    class Kernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return self.launch

        def launch(self, *arguments: object, **keywords: object) -> None:
            me, other, began = pe, 1 - pe, []

            def kernel() -> bool:
                if not began:
                    began.append(True)
                    machine.words[word(other, ENTERED.value + me)] = 1
                if not machine.words.get(word(me, GATHERED.value + other)):
                    return False
                machine.words[word(me, GATHERED.value + other)] = 0
                return True

            machine.put(machine.current.cuda_stream, kernel)

    def peer(tensor: torch.Tensor, there: int) -> torch.Tensor:
        return flags[there] if tensor is flags[pe] else gathered[there][:256]

    for me, owner in enumerate(owners):
        owner.n_pes, owner.my_rank, owner.peer = n_pes, me, peer
    monkeypatch.setattr(portable, "programs", lambda sm_margin: 132)
    monkeypatch.setattr(hopper, "all_gather_gemm_kernel", Kernel())
    monkeypatch.setattr(hopper, "operand_maps", lambda *arguments: (None, None, None, False))
    monkeypatch.setattr(hopper, "tile_map", lambda *arguments: None)
    monkeypatch.setattr(launch.Plan, "flags", property(lambda plan: flags[pe]))
    monkeypatch.setattr(launch, "current_world", lambda: owners[pe])
    monkeypatch.setattr(launch, "claim", lambda *what: None)  # no trace
    monkeypatch.setattr(
        all_gather_gemm, "cached", lambda comm, key, make: plans[pe].get(key) or _keep(plans[pe], key, make)
    )
    monkeypatch.setattr(all_gather_gemm, "choose", lambda *given, **options: LARGE)
    monkeypatch.setattr(all_gather_gemm, "_gathered", lambda comm, a, rows: gathered[pe])
    a, b, c = torch.zeros(256, 64), torch.zeros(64, 128), torch.zeros(512, 128)
    for _ in range(40):
        for pe in machine.gpus:
            with machine.on(torch.cuda.Stream()):
                all_gather_gemm._copy_engine(Operands(owners[pe], a, b, c))
        machine.run()


def _keep(plans: dict[object, Any], key: object, make: Callable[[], Any]) -> Any:
    plans[key] = make()
    return plans[key]


def test_it_is_never_a_stream_of_torch_s_and_ends_with_the_world(machine: Machine, world: Owner) -> None:
    for _ in range(40):
        stream = torch.cuda.Stream()
        with machine.on(stream), side_stream.side_stream(world) as beside:
            assert beside.cuda_stream in machine.created and beside.cuda_stream != stream.cuda_stream
        machine.run()
    assert len(machine.created) == 1
    with machine.on(stream), machine.capture(stream, 1), side_stream.side_stream(world):
        pass
    with world._closing():
        assert not machine.destroyed
    assert sorted(machine.destroyed) == sorted(machine.created) and len(machine.created) == 2
    with machine.on(stream), side_stream.side_stream(world) as beside:
        assert beside.cuda_stream not in machine.destroyed


def test_what_comes_behind_waits_for_both(machine: Machine, world: Owner) -> None:
    order: list[str] = []

    def put(stream: Stream, name: str, after: str = "") -> None:
        machine.put(stream.cuda_stream, lambda: (not after or after in order) and (order.append(name) or True))

    here = torch.cuda.Stream()
    with machine.on(here):
        put(here, "before")
        with side_stream.side_stream(world) as beside:
            put(beside, "copy", after="kernel")
            put(here, "kernel")
        put(here, "behind")
    machine.run()
    assert order == ["before", "kernel", "copy", "behind"]


def test_captures_and_direct_calls_do_not_meet(machine: Machine, world: Owner) -> None:
    def used(stream: Stream) -> int:
        with machine.on(stream), side_stream.side_stream(world) as beside:
            return beside.cuda_stream

    here, there = torch.cuda.Stream(), torch.cuda.Stream()
    with machine.capture(here, 7):
        first = used(here)
        assert used(here) == first, "a capture needs no second stream"
        direct = used(there)
        assert direct != first, "a direct call would be captured"
        with machine.capture(there, 8):
            second = used(there)
            assert second not in (first, direct), "two captures would be one"
            assert used(here) == first
    with machine.capture(there, 9):
        assert used(there) in (first, second), "a stream whose capture has ended serves the next"
    assert used(here) == direct and machine.mode == "global" and len(machine.created) == 3


def test_a_block_that_ends_in_an_error_joins(machine: Machine, world: Owner) -> None:
    order: list[str] = []
    here = torch.cuda.Stream()

    def fails() -> None:
        with side_stream.side_stream(world) as beside:
            machine.put(beside.cuda_stream, lambda: order.append("copy") or True)
            raise ArithmeticError

    with machine.on(here):
        with pytest.raises(ArithmeticError):
            fails()
        machine.put(here.cuda_stream, lambda: order.append("behind") or True)
    machine.run()
    assert order == ["copy", "behind"]


def test_a_driver_that_lacks_functions_is_an_error_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_operations.ctypes, "CDLL", lambda path: SimpleNamespace(cuEventRecord=None))
    with pytest.raises(
        RuntimeError, match=r"too old: libcuda.so.1 has no cuStreamWaitValue32_v2, .*cuMemcpy2DAsync_v2"
    ):
        stream_operations.library.__wrapped__()
