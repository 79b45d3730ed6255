"""Runs Gluon kernels of ``gemm/hopper`` without a GPU: every warp group of every program of every PE is a thread.

Only what the kernels of experts use is there: scalars and blocks (NumPy arrays), pointers into one memory for all
PEs, TMA copies, mbarriers with their phases and bytes, and tensor cores' products. Layouts have no meaning: shared
memory is row-major. TMA copies are complete when they are issued, so it finds wrong indices, phases, flags and
deadlocks; it does not find missing fences or waits for stores.

    with gluon_threads.interpreted(module, …):
        gluon_threads.run(kernel, programs, [arguments of PE 0, …])
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonJITFunction

__all__ = ["Descriptor", "Memory", "interpreted", "run"]

LIMIT = 60.0
"""Seconds until what still waits has hung."""

_TYPES = {
    gl.int16: numpy.int16, gl.int32: numpy.int32, gl.int64: numpy.int64, gl.float16: numpy.float16,
    gl.float32: numpy.float32,
}  # fmt: skip
_PROGRAM = threading.local()
_MEMORIES: list[Memory] = []
_LOCK = threading.RLock()


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Value) else value


class Value:
    """A scalar or a block."""

    def __init__(self, value: Any) -> None:
        self.value = numpy.asarray(value)

    @property
    def shape(self) -> list[int]:
        return list(self.value.shape)

    @property
    def type(self) -> Any:
        return SimpleNamespace(layout=None)

    def to(self, dtype: Any, bitcast: bool = False) -> Any:
        if isinstance(dtype, PointerType):
            return Pointer(dtype.memory, self.value, dtype.element_ty)
        if bitcast:
            return Value(self.value.view(_TYPES[dtype]))
        return Value(self.value.astype(_TYPES[dtype]))

    def reshape(self, shape: Sequence[int]) -> Value:
        return Value(self.value.reshape(shape))

    def __getitem__(self, key: Any) -> Value:
        return Value(self.value[key])

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)


def _operator(name: str) -> Any:
    def apply(self: Value, other: Any) -> Any:
        if isinstance(other, Pointer):
            return NotImplemented
        return Value(getattr(self.value, name)(_plain(other)))

    return apply


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift")
for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Value, f"__{_name}__", _operator(f"__{_name}__"))
Value.__neg__ = lambda self: Value(-self.value)  # type: ignore[attr-defined]


class PointerType:
    def __init__(self, memory: Memory, element_ty: Any) -> None:
        self.memory, self.element_ty = memory, element_ty


class Pointer:
    """Addresses of elements."""

    def __init__(self, memory: Memory, addresses: Any, element_ty: Any) -> None:
        self.memory, self.addresses, self.element_ty = memory, numpy.asarray(addresses, dtype=numpy.int64), element_ty

    @property
    def dtype(self) -> PointerType:
        return PointerType(self.memory, self.element_ty)

    def to(self, dtype: Any, bitcast: bool = False) -> Value:
        assert dtype is gl.int64
        return Value(self.addresses)

    def __add__(self, offset: Any) -> Pointer:
        size = numpy.dtype(_TYPES[self.element_ty]).itemsize
        return Pointer(self.memory, self.addresses + size * numpy.int64(_plain(offset)), self.element_ty)

    def places(self, mask: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Which elements of the memory, seen as of this type, and which are meant."""
        found, meant = numpy.broadcast_arrays(self.addresses, True if mask is None else _plain(mask))
        size = numpy.dtype(_TYPES[self.element_ty]).itemsize
        inside = (found >= 0) & (found < self.memory.bytes.nbytes) & (found % size == 0)
        assert (inside | ~meant).all(), "an access outside of memory"
        return numpy.where(meant, found // size, 0), meant


class Memory:
    """The memory of all PEs, in which tensors lie one behind the other."""

    def __init__(self, size: int = 1 << 24) -> None:
        _MEMORIES[:] = [self]  # the one that integers are addresses in
        self.bytes = numpy.zeros(size, numpy.uint8)
        self.used = 256

    def array(self, tensor: torch.Tensor) -> numpy.ndarray:
        """A copy of a tensor, at an address of its own."""
        source = tensor.numpy()
        begin, self.used = self.used, self.used + -(-source.nbytes // 256) * 256 + 256
        found = self.bytes[begin : begin + source.nbytes].view(source.dtype).reshape(source.shape)
        found[...] = source
        return found

    def address(self, array: numpy.ndarray) -> int:
        return int(array.ctypes.data - self.bytes.ctypes.data)

    def pointer(self, array: numpy.ndarray, dtype: Any) -> Pointer:
        return Pointer(self, self.address(array), dtype)


class Descriptor:
    """A TMA descriptor: blocks of a matrix, zeros outside of it."""

    def __init__(self, matrix: numpy.ndarray, block: Sequence[int]) -> None:
        self.matrix, self.shape, self.block_shape = matrix, list(matrix.shape), list(block)
        self.dtype, self.layout = gl.int32 if matrix.dtype == numpy.int32 else gl.float16, None
        self.block_type = SimpleNamespace(nbytes=int(numpy.prod(self.block_shape)) * matrix.dtype.itemsize)

    def overlap(self, place: Sequence[Any]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Of the matrix and of the block."""
        of_matrix, of_block = [], []
        for begin, length, size in zip(map(int, place), self.block_shape, self.shape, strict=True):
            assert begin >= 0
            found = max(0, min(begin + length, size) - begin)
            of_matrix.append(slice(begin, begin + found))
            of_block.append(slice(found))
        return tuple(of_matrix), tuple(of_block)


class Shared:
    """Blocks in shared memory."""

    def __init__(self, array: numpy.ndarray, dtype: Any) -> None:
        self.array, self.dtype, self.shape = array, dtype, list(array.shape)

    def index(self, i: Any) -> Any:
        found = self.array[int(i)]
        return found[0] if found.dtype == object else Shared(found, self.dtype)

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.array.transpose(order), self.dtype)

    def store(self, value: Value) -> None:
        self.array[...] = value.value

    def load(self, layout: Any) -> Value:
        return Value(self.array.copy())


class Barrier:
    """An mbarrier."""

    def __init__(self) -> None:
        self.count = self.left = self.bytes = self.phase = 0

    def arrive(self, count: int, nbytes: int) -> None:
        with _LOCK:
            self.left -= count
            self.bytes += nbytes
            assert self.left >= 0, "too many arrive at a barrier"
            self._complete()

    def receive(self, nbytes: int) -> None:
        with _LOCK:
            self.bytes -= nbytes
            self._complete()

    def _complete(self) -> None:
        if self.left == 0 and self.bytes == 0:
            self.left, self.phase = self.count, self.phase + 1

    def wait(self, parity: int) -> None:
        begin = time.monotonic()
        while self.phase % 2 == parity:
            _pause(begin)


_FAILED: list[BaseException] = []


def _pause(begin: float) -> None:
    if _FAILED:
        raise SystemExit
    assert time.monotonic() - begin < LIMIT, "a wait that does not end"
    time.sleep(1e-4)


def _load(pointer: Pointer, mask: Any = None, other: Any = 0, **_: Any) -> Value:
    places, meant = pointer.places(mask)
    view = pointer.memory.bytes.view(_TYPES[pointer.element_ty])
    return Value(numpy.where(meant, view[places], _plain(other)).astype(view.dtype))


def _store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    places, meant = pointer.places(mask)
    view = pointer.memory.bytes.view(_TYPES[pointer.element_ty])
    view[places[meant]] = numpy.broadcast_to(_plain(value), places.shape)[meant]


def _atomic(pointer: Pointer, value: Any, add: bool) -> Value:
    time.sleep(0)
    with _LOCK:
        (places, _), view = pointer.places(None), pointer.memory.bytes.view(numpy.int32)
        before = view[places].copy()
        view[places] = before * add + _plain(value)
    return Value(before)


def _warp_specialize(parts: Any, warps: Any, registers: Any) -> None:
    program = _PROGRAM.number, _PROGRAM.count
    _threads([(function, arguments, program) for function, arguments in parts])


def _threads(calls: Sequence[tuple[Any, Sequence[Any], tuple[int, int]]]) -> None:
    def call(function: Any, arguments: Sequence[Any], program: tuple[int, int]) -> None:
        _PROGRAM.number, _PROGRAM.count = program
        try:
            function(*arguments)
        except SystemExit:
            pass
        except BaseException as error:
            _FAILED.append(error)

    threads = [threading.Thread(target=call, args=one, daemon=True) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _allocate(dtype: Any, shape: Sequence[int], layout: Any) -> Shared | Barrier:
    if dtype is gl.int64 and len(shape) == 1:
        return Barrier()
    if dtype is gl.int64:
        barriers = numpy.empty(shape, dtype=object)
        barriers[...] = [[Barrier()] for _ in range(shape[0])]
        return Shared(barriers, dtype)
    garbage = numpy.full([int(size) for size in shape], -1 if dtype is gl.int32 else numpy.nan, _TYPES[dtype])
    return Shared(garbage, dtype)


def _reinterpret(blocks: Shared, dtype: Any, shape: Sequence[int], layout: Any) -> Shared:
    return Shared(blocks.array.reshape([int(size) for size in shape]), dtype)


def _init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.left = int(count)


def _async_load(source: Descriptor, place: Any, barrier: Barrier, block: Shared, pred: Any = True) -> None:
    if pred:
        of_matrix, of_block = source.overlap(place)
        assert block.shape == source.block_shape
        block.array[...] = 0
        block.array[of_block] = source.matrix[of_matrix]
        barrier.receive(source.block_type.nbytes)


def _async_store(to: Descriptor, place: Any, block: Shared) -> None:
    of_matrix, of_block = to.overlap(place)
    to.matrix[of_matrix] = block.array[of_block]


def _multiply(a: Shared, b: Shared, sums: Value, use_acc: Any = True, is_async: bool = False) -> Value:
    product = a.array.astype(numpy.float32) @ b.array.astype(numpy.float32)
    return Value(sums.value + product if use_acc else product)


def _split(value: Value) -> tuple[Value, Value]:
    return Value(value.value[..., 0]), Value(value.value[..., 1])


def _layout(*_: Any, **__: Any) -> None:
    return None


_LANGUAGE = SimpleNamespace(
    load=_load,
    store=_store,
    atomic_add=lambda pointer, value, **_: _atomic(pointer, value, True),
    atomic_xchg=lambda pointer, value, **_: _atomic(pointer, value, False),
    arange=lambda begin, end, layout=None: Value(numpy.arange(begin, end, dtype=numpy.int32)),
    zeros=lambda shape, dtype, layout=None: Value(numpy.zeros(shape, _TYPES[dtype])),
    where=lambda condition, one, other: Value(numpy.where(_plain(condition), _plain(one), _plain(other))),
    minimum=lambda one, other: Value(numpy.minimum(_plain(one), _plain(other))),
    maximum=lambda one, other: Value(numpy.maximum(_plain(one), _plain(other))),
    max=lambda value, axis: Value(value.value.max(axis=axis)),
    sum=lambda value, axis: Value(value.value.sum(axis=axis)),
    exp=lambda value: Value(numpy.exp(value.value)),
    permute=lambda value, order: Value(value.value.transpose(order)),
    split=_split,
    cdiv=lambda one, other: Value(-(-_plain(one) // _plain(other))),
    to_tensor=lambda value: value if isinstance(value, Value) else Value(numpy.int32(value)),
    program_id=lambda axis: Value(numpy.int32(_PROGRAM.number)),
    num_programs=lambda axis: Value(numpy.int32(_PROGRAM.count)),
    num_warps=lambda: 4,
    static_range=range,
    barrier=lambda: None,
    warp_specialize=_warp_specialize,
    allocate_shared_memory=_allocate,
    pointer_type=lambda element: PointerType(_MEMORIES[-1], element),
    BlockedLayout=_layout,
    SliceLayout=_layout,
    NVMMADistributedLayout=_layout,
    int16=gl.int16,
    int32=gl.int32,
    int64=gl.int64,
    float16=gl.float16,
    float32=gl.float32,
)
_BARRIERS = SimpleNamespace(
    MBarrierLayout=_layout,
    init=_init,
    expect=lambda barrier, nbytes, pred=True: barrier.arrive(1, int(nbytes)) if pred else None,
    arrive=lambda barrier, count=1, pred=True: barrier.arrive(count, 0) if pred else None,
    wait=lambda barrier, parity: barrier.wait(int(parity)),
)
_TMA = SimpleNamespace(async_load=_async_load, async_store=_async_store, store_wait=lambda pending: None)
_NAMES = {
    "gl": _LANGUAGE,
    "mbarrier": _BARRIERS,
    "tma": _TMA,
    "reinterpret": _reinterpret,
    "warpgroup_mma": _multiply,
    "warpgroup_mma_wait": lambda pending, values: values[0],
    "fence_async_shared": lambda: None,
    "fence_async_proxy": lambda: None,
    "release_all": lambda: None,
    "stores_complete": lambda pending=0: None,
    "store_nothing": lambda: None,
    "wait_for_previous": lambda: None,
    "no_polls": lambda: time.monotonic(),
    "poll": lambda polls, *_: (_pause(polls), polls)[1],
}


@contextmanager
def interpreted(*modules: Any) -> Iterator[None]:
    """Let the kernels and functions of these modules run as Python."""
    before = []
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, gl.constexpr):
                replacement = value.value
            elif name in _NAMES:
                replacement = _NAMES[name]
            else:
                continue
            before.append((module, name, value))
            setattr(module, name, replacement)
    refuses = GluonJITFunction.__call__
    GluonJITFunction.__call__ = lambda self, *arguments, **named: self.fn(*arguments, **named)
    try:
        yield
    finally:
        GluonJITFunction.__call__ = refuses
        for module, name, value in before:
            setattr(module, name, value)


def run(kernel: Any, programs: int, arguments: Sequence[Sequence[Any]]) -> None:
    """Run so many programs of a kernel on each PE, all at the same time. Raises what one of them raises."""
    _FAILED.clear()
    _threads([(kernel, given, (program, programs)) for given in arguments for program in range(programs)])
    if _FAILED:
        raise _FAILED[0]
