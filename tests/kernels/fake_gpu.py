"""A GPU world on a machine without a GPU, for what the host does in a call of the kernel library.

Kernels are compiled for sm_90 as far as TTGIR whose shared memory is allocated. They go through Triton's binder, its
own launcher in C and our launch checks. The driver stands in ``fake_libcuda.c``: it counts launches and runs none, so
what makes kernels fast, LLVM and ptxas are left out: what a launch takes from a compiled kernel is known without them.
Tensors lie in the CPU's memory, and every peer is this PE. It is for processes of their own, which import it before
Triton: in CPU worlds ``JITFunction.run`` interprets.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_DIST_WORLD"] = "gpu"

import torch

HEAP = 768 << 20

STREAM = [7]
"""The handle of the current stream."""

CAPTURING = [False]
"""Whether the current stream is being captured."""

DEVICE: list[int | None] = [None]
"""The number of the current GPU: that of the CPU, where tensors lie."""


def load_driver(folder: Path) -> ctypes.CDLL:
    """Build the driver and load it, so that whoever opens ``libcuda.so.1`` later gets it."""
    library, source = folder / "libcuda.so.1", Path(__file__).with_name("fake_libcuda.c")
    if not library.exists():
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source)], check=True
        )
        (folder / "libcuda.so").symlink_to(library.name)
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute`` of cuda.h."""

    _fields_ = ("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16)


class _Config(ctypes.Structure):
    """``CUlaunchConfig`` of cuda.h."""

    _fields_ = (
        *(("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint)),
        *(("stream", ctypes.c_uint64), ("attributes", ctypes.POINTER(_Attribute)), ("n", ctypes.c_uint)),
    )


_POINTER, _MAP = 1, 14
_SIZES = {1: 8, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 2, 12: 4, 13: 8, 14: 128}
"""Bytes of a kernel's argument, by the kind that Triton's launcher has in a kernel's signature."""


class Recorder:
    """What the driver was given for each launch, whichever path made it: the grid's three numbers, the stream, the
    function, the block, shared memory, attributes, and the arguments, with addresses of tensors as ``("at", address)``
    and descriptors as ``("map", address, what else it holds)``.

    The driver does not know how long arguments are. Triton's function in C does, which launches each kernel first.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        from triton.runtime import driver

        self._launch = driver.active.utils.launch
        self._kinds: dict[int, bytes] = {}
        self.last: list[Any] = []
        self.all: list[list[Any]] = []
        """Of every launch; clear it."""
        self.by_triton = 0
        """How many launches Triton's function in C has made."""
        driver.active.utils.launch = self._launched
        self._told = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Config), ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))(
            self._driver_launched
        )
        library.fake_report_launches_to(self._told)

    @property
    def stream(self) -> int:
        return int(self.last[3])

    def pointers(self) -> list[int]:
        """The arguments of the kernel that are tensors."""
        return [argument[1] for argument in self.last[-1] if isinstance(argument, tuple) and argument[:1] == ("at",)]

    def _launched(self, *arguments: Any) -> None:
        self.by_triton += 1
        self._kinds[arguments[4]] = arguments[-2]
        self._launch(*arguments)

    def _driver_launched(self, config: Any, function: int, parameters: Any) -> None:
        how, kinds = config.contents, self._kinds[function]
        attributes = [(how.attributes[i].id, how.attributes[i].value[:3]) for i in range(how.n)]
        scratch = [ctypes.c_uint64.from_address(parameters[len(kinds) + i]).value for i in range(2)]
        arguments = [self._plain(kind, ctypes.string_at(parameters[i], _SIZES[kind])) for i, kind in enumerate(kinds)]
        aligned = all(parameters[i] % 64 == 0 for i, kind in enumerate(kinds) if kind == _MAP)
        self.last = [
            *(*how.grid, how.stream, function, how.block[:], how.shared),
            *(attributes, scratch, aligned, arguments),
        ]
        self.all.append(self.last)
        DONE.append(self.last)

    def _plain(self, kind: int, value: bytes) -> Any:
        number = int.from_bytes(value[:8], "little")
        if kind == _MAP:
            return "map", number, value[8:].hex()
        return ("at", number) if kind == _POINTER else (kind, number)


class Stream:
    """A stream, which notes in ``QUEUED`` what it is given."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle

    def record_event(self) -> str:
        return f"event of {self.cuda_stream}"

    def wait_event(self, event: str) -> None:
        QUEUED.append((self.cuda_stream, "wait for", event))

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())


_EVENTS = ctypes.c_uint64()

QUEUED: list[tuple[Any, ...]] = []
"""What streams were given, but for launches: the stream, the operation and its arguments."""

DONE: list[Any] = []
"""The same and launches, as of :class:`Recorder`, in the order in which the driver got them; clear it."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
def _queued(stream: int, operation: bytes, numbers: Any, n: int) -> None:
    """What the driver reports. That events are recorded is in what waits for them."""
    if operation == b"wait for":
        QUEUED.append((stream, "wait for", f"event of {numbers[0]}"))
        DONE.append(QUEUED[-1])
    elif operation != b"record":
        QUEUED.append((stream, operation.decode(), *numbers[:n]))
        DONE.append(QUEUED[-1])


def use_a_driver_s_streams(library: ctypes.CDLL) -> None:
    """The functions of ``cuda.bindings`` that operations on side streams call, and what ``library``, of
    :func:`load_driver`, is given in one call."""
    library.fake_report_to(_queued)
    driver = SimpleNamespace(
        CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=1)),
        CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
        CUevent_flags=SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2)),
        CUresult=int,
        cuStreamCreate=lambda flags: (0, 70),
        cuStreamDestroy=lambda stream: (0,),
        cuEventCreate=lambda flags: (0, ctypes.addressof(_EVENTS)),
        cuEventDestroy=lambda event: (0,),
        cuThreadExchangeStreamCaptureMode=lambda mode: (0, mode),
        cuStreamGetCaptureInfo=lambda stream: (0, 0, 0),
    )
    bindings: Any = ModuleType("cuda.bindings")
    bindings.driver = driver
    sys.modules |= {"cuda": ModuleType("cuda"), "cuda.bindings": bindings}


@contextmanager
def use_stream(stream: Stream) -> Iterator[None]:
    """As ``torch.cuda.stream``, for launches."""
    before, STREAM[0] = STREAM[0], stream.cuda_stream
    try:
        yield
    finally:
        STREAM[0] = before


ATEN = torch.library.Library("aten", "IMPL")
"""As long as it is referred to, CPUs without instructions for 16-bit floats multiply them as float32, which takes a
fiftieth of the time."""


def _addmm(
    bias: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    total = torch.bmm(a.float()[None], b.float()[None])[0]
    if bias is not None:
        total = beta * bias.float() + alpha * total
    return total.to(a.dtype) if out is None else out.copy_(total)


def _mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _addmm(None, a, b, out=out)


def use_torch_without_a_gpu() -> None:
    """PyTorch's functions for the current device and stream."""
    stream = Stream(7)
    for name, value in {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: (9, 0),
        "current_stream": lambda device=None: stream,
        "is_current_stream_capturing": lambda: CAPTURING[0],
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "ExternalStream": lambda handle, device: Stream(handle),
        "stream": use_stream,
    }.items():
        setattr(torch.cuda, name, value)
    for name, multiply in {"mm": _mm, "mm.out": _mm, "addmm": _addmm, "addmm.out": _addmm}.items():
        ATEN.impl(name, multiply, "CPU")
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM[0]  # type: ignore[attr-defined]
    torch._C._cuda_getDevice = lambda: DEVICE[0]  # type: ignore[attr-defined]


class Bindings:
    """nvshmem4py's: one heap, in which this PE and its peers lie."""

    def __init__(self) -> None:
        self.heap = torch.zeros(HEAP, dtype=torch.uint8)
        self.begin = -(-self.heap.data_ptr() // 512) * 512
        self.used = 0

    def malloc(self, size: int) -> int:
        self.used += size
        assert self.used < HEAP - 512
        return self.begin + self.used - size

    def free(self, address: int) -> None:
        pass

    def ptr(self, address: int, pe: int) -> int:
        return address if self.begin <= address < self.begin + HEAP else 0

    def init_status(self) -> int:
        return 3


_LEFT_OUT = frozenset(
    {
        *("add_coalesce", "add_remove_layout_conversions", "add_optimize_thread_locality", "add_accelerate_matmul"),
        *("add_optimize_dot_operands", "add_loop_aware_cse", "add_fuse_nested_loops", "add_triton_licm"),
        *("add_assign_latencies", "add_schedule_loops", "add_pipeline", "add_prefetch", "add_coalesce_async_copy"),
        *("add_reduce_data_duplication", "add_reorder_instructions", "add_hopper_warpspec"),
        *("add_to_llvmir", "add_nvgpu_to_llvm", "add_warp_specialize_to_llvm", "add_nvvm_to_llvm", "add_di_scope"),
        *("add_canonicalize_llvm_ir", "add_initialize_ws_cluster_barriers"),  # of Triton 3.8
    }
)
"""Triton's passes that make a kernel faster, or LLVM IR of it: a launch takes nothing from them."""


class _Without:
    """A module of Triton's bindings, whose functions of these names do nothing."""

    def __init__(self, module: Any, names: frozenset[str]) -> None:
        self._module, self._names = module, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return _Without(found, self._names)
        return _nothing if name in self._names else found


def _nothing(*arguments: Any, **named: Any) -> None:
    pass


def leave_out_machine_code() -> None:
    """Of compilations, whose results are cached where no others look, and what makes kernels faster."""
    import triton
    from triton.backends.nvidia import compiler

    from triton_dist.triton_api import common

    add = common.add_plugin_passes

    def added(manager: Any, passes: dict[str, list[str]]) -> None:
        add(manager, {name: arguments for name, arguments in passes.items() if name != "shmem_to_llvm"})

    common.add_plugin_passes = added  # type: ignore[assignment]

    def ptx(backend: Any, name: str, metadata: dict[str, Any], *_: Any) -> str:
        metadata["name"] = name
        return ""

    triton.knobs.cache.dir = str(Path(triton.knobs.cache.dir).with_name("triton-without-ptx"))
    compiler.passes = _Without(compiler.passes, _LEFT_OUT)
    compiler.nvidia = _Without(compiler.nvidia, _LEFT_OUT | {"set_nvvm_reflect_ftz", "has_extern_deps"})
    compiler.llvm.attach_datalayout = compiler.llvm.optimize_module = _nothing
    compiler.llvm.to_module = lambda module, context: module.get_entry_func_name()  # in place of LLVM IR
    compiler.CUDABackend.make_ptx = ptx
    compiler.CUDABackend.make_cubin = lambda *arguments: b""


def begin_world(n_pes: int, me: int = 0) -> Any:
    """The world of PE ``me`` of so many, as ``triton_dist.init()`` would make it."""
    from triton_dist.compiler import transport
    from triton_dist.gpu.heap import GpuHeap
    from triton_dist.gpu.launch_check import LaunchChecks, SymmetricMemory
    from triton_dist.gpu.module_state import LoadedModules
    from triton_dist.gpu.world import GpuWorld
    from triton_dist.kernels import communicator
    from triton_dist.process_state import of_process
    from triton_dist.world.base import World
    from triton_dist.world.current import Current
    from triton_dist.world.gpus import Gpu
    from triton_dist.world.groups import GroupMemory

    class FakeWorld(GpuWorld):
        def __init__(self) -> None:
            launch: Any = SimpleNamespace(pe=me, n_pes=n_pes, detector=None, store=None, check=lambda doing: None)
            launch.members = [SimpleNamespace(pe=pe, host="a host") for pe in range(n_pes)]
            launch.exchange = lambda call, text: [text] * n_pes
            World.__init__(self, launch)
            self.device = torch.device("cpu")
            self.gpu = Gpu("a GPU that is not there", (9, 0), 132, 227 << 10)
            self.compared: list[str] = []
            self._calls: Any = SimpleNamespace(forget=lambda name: None, close=lambda: None)
            self._bindings = Bindings()
            self._heap = GpuHeap(self._bindings, self.device, me, HEAP, self.registry)
            self.group_memory = GroupMemory(0, 0, 0, self.device, None)
            self.transport = "p2p"
            transport.choose("p2p", n_pes)
            of_process(LoadedModules).bind(0, {"p2p": lambda module: None}, {})
            of_process(LaunchChecks).memory = SymmetricMemory(
                contains=lambda address: bool(self._bindings.ptr(address, me)),
                freed=self._heap.is_freed,
                owner=f"PE {me}",
                scatter_limit=1 << 60,
            )

        def _memory_domain(self, member: Any) -> str:
            return str(member.host)

        def _maps(self, pe: int) -> bool:
            return True

        def _exchange(self, team: Any, call: str, text: str) -> list[str]:
            return [text] * n_pes

        def compare_call(self, group: Any, number: int, call: str, made: Any) -> None:
            self.compared.append(call)

        def barrier_all(self) -> None:
            pass

        def _close(self) -> None:
            transport.choose(None)
            of_process(LaunchChecks).memory = None
            of_process(LoadedModules).unbind()

    leave_out_machine_code()
    communicator._capture = lambda stream: None
    world = of_process(Current).world = FakeWorld()
    return world


def run_checks(checks: Sequence[Callable[[], None]]) -> None:
    """Print for each check its name and ``ok``, or its traceback, as JSON.

    The command may name the checks that run; the others are ``not run``.
    """
    results = {}
    gc.collect()
    gc.freeze()  # checks collect garbage often, and modules are most of what there is to look through
    gc.set_threshold(20_000, 20, 20)
    for check in checks:
        if sys.argv[2:] and check.__name__ not in sys.argv[2:]:
            results[check.__name__] = "not run"
            continue
        try:
            check()
            results[check.__name__] = "ok"
        except BaseException:
            results[check.__name__] = traceback.format_exc()
    print(json.dumps(results))
