"""Ordinary torch tensors over memory that torch did not allocate.

DLPack is the one way into torch that lets us name the device (memory of a peer is mapped here: its pointer alone would
say that it is the peer's) and that tells us when the last tensor on the memory is gone: whatever torch makes of it,
views, numpy arrays, gradients, shares one storage, and the storage calls back once when it dies. The structures are
DLPack 0.x's, which every torch takes.

A storage may die in any thread, while an exception is set, and after the interpreter has ended, so its callback is a C
function of the plugin that calls no Python: it puts the structure on a list (runtime/lib/DroppedTensors.cpp).
:func:`release_dropped` takes the list and releases the objects that the tensors kept alive. Python's garbage
collector calls it, and so does code that needs to know which tensors are dropped.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections import deque
from collections.abc import Callable
from math import prod

import torch

import _triton_dist_loader
from triton_dist.process_state import of_process
from triton_dist.torch_api import symmetric_memory_of

__all__ = [
    "TensorMemory",
    "bytes_at",
    "elsewhere",
    "of_another_backend",
    "release_dropped",
    "start_of",
    "storage_address",
    "tensor_at",
]


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("next", ctypes.c_void_p),  # added by triton_dist: the list of structures that torch has dropped
    )


_DEVICES = {"cpu": 1, "cuda": 2}  # DLDeviceType
_UINT8 = (1, 8, 1)  # DLDataType: kDLUInt of 8 bits, one lane


class TensorMemory:
    """What memory of torch's storages is kept alive by. One for each process, since storages outlive worlds."""

    def __init__(self) -> None:
        self.in_use: dict[int, tuple[_Managed, tuple[object, ...]]] = {}
        """The structures that torch holds, and the objects that they keep alive, by the structures' addresses."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.in_use))  # storages may outlive the interpreter's modules
        plugin = ctypes.PyDLL(_triton_dist_loader.plugin_path())  # holds the GIL, which taking from the list requires
        self.deleter = ctypes.cast(plugin.tritonDistDropTensor, ctypes.c_void_p).value
        take: Callable[[], int | None] = plugin.tritonDistTakeDroppedTensor
        plugin.tritonDistTakeDroppedTensor.restype = ctypes.c_void_p
        plugin.tritonDistTakeDroppedTensor.argtypes = ()
        exhaust: Callable[..., object] = functools.partial(deque, maxlen=0)
        let_go = self.in_use.pop

        def release() -> None:
            # No bytecode runs between taking and releasing: a Ctrl-C there would leak a tensor.
            exhaust(map(let_go, iter(take, None)))

        def on_collection(phase: str, info: dict[str, int]) -> None:
            """A callback of the garbage collector, which never runs while an exception is set."""
            if phase == "stop":
                release()

        self.release: Callable[[], None] = release
        gc.callbacks.append(on_collection)


def release_dropped() -> None:
    """Release the objects that dropped tensors kept alive. Any thread may call it, at any time."""
    of_process(TensorMemory).release()


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def bytes_at(address: int, nbytes: int, device: torch.device, *keep: object) -> torch.Tensor:
    """The ``nbytes`` (at least one) at ``address``, as a tensor of uint8 on ``device``.

    ``keep`` is held until the last tensor that shares the storage is gone, and then until :func:`release_dropped`.
    Nothing else is held: the caller ensures that the memory lives as long as ``keep``.
    """
    assert nbytes > 0, "torch forgets the address of a tensor of no bytes"
    managed, shape = _Managed(), (ctypes.c_int64 * 1)(nbytes)
    managed.tensor.data = address
    managed.tensor.device = _Device(_DEVICES[device.type], device.index or 0)
    managed.tensor.ndim = 1
    managed.tensor.dtype = _DataType(*_UINT8)
    managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    memory = of_process(TensorMemory)
    managed.deleter = memory.deleter
    where = ctypes.addressof(managed)
    memory.in_use[where] = (managed, (shape, *keep))
    try:
        tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(_new_capsule(where, b"dltensor", None))
    except BaseException:
        del memory.in_use[where]  # torch does not own it
        raise
    return tensor


def tensor_at(
    address: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, *keep: object
) -> torch.Tensor:
    """A contiguous tensor at ``address``. Its memory has room for one element at least, also if the tensor has none."""
    count = prod(shape)
    whole = bytes_at(address, max(count, 1) * dtype.itemsize, device, *keep)
    return whole.view(dtype)[:count].view(shape)


def elsewhere(tensor: torch.Tensor, distance: int, device: torch.device, *keep: object) -> torch.Tensor:
    """``tensor`` with its storage moved by ``distance`` bytes: same sizes, strides and dtype over other memory."""
    storage = tensor.untyped_storage()
    count = storage.nbytes() // tensor.itemsize
    whole = bytes_at(storage_address(tensor) + distance, max(storage.nbytes(), 1), device, *keep)
    elements = whole[: count * tensor.itemsize].view(tensor.dtype)
    return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def storage_address(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor is a view of.

    Raises:
        TypeError: it has none of its own, as a DTensor, which wraps another tensor, or a FakeTensor, which has no data.
    """
    try:
        return int(tensor.untyped_storage().data_ptr())
    except RuntimeError as error:
        raise TypeError(
            f"a {type(tensor).__name__} has no memory of its own: pass an ordinary tensor (of a DTensor, to_local());"
            f" symmetric tensors may be wrapped, but kernels and peers work on what is wrapped ({error})"
        ) from None


def start_of(tensor: torch.Tensor) -> int:
    """The address of a tensor's first element, also when it has none (``data_ptr`` is 0 then)."""
    return storage_address(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def of_another_backend(tensor: torch.Tensor) -> str:
    """What to say of a tensor that is not symmetric here, but is of torch's symmetric memory; else empty."""
    backend = symmetric_memory_of(tensor)
    return backend and (
        f"it is of torch's symmetric memory with the backend {backend}, which is not in NVSHMEM's heap (call"
        ' torch.distributed._symmetric_memory.set_backend("NVSHMEM") before the first such tensor is made)'
    )
