"""What CUDA streams get beside kernels, given to the driver in one call of C++ (``runtime/c/Streams.cpp``).

A call of the driver through Python's bindings takes longer than what the driver does in it. Other threads of Python run
during a call, which waits where a stream's queue is full.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["COPY", "COPY_ROWS", "GIVE", "TAKE", "Functions", "Operation", "library"]

PATH = Path(__file__).parent / "_C" / "libtriton_dist_runtime.so"

TAKE, GIVE, COPY, COPY_ROWS = range(4)


class Operation(ctypes.Structure):
    """As ``Operation`` of ``Streams.cpp``, which says what the fields mean."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("base", ctypes.c_int32),
        *((name, ctypes.c_uint64) for name in ("to", "source", "width", "height", "to_pitch", "source_pitch")),
    )


_DRIVER = (
    *("cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2"),
    *("cuEventRecord", "cuStreamWaitEvent"),
)
"""The driver's functions that the library calls, in its order."""


class Functions(NamedTuple):
    """The library's. They return a CUresult."""

    put: Callable[..., int]
    """Of an array of operations, its length, a stream, and the call's addresses 0 and 1."""
    order: Callable[..., int]
    """Of the earlier stream, the later one, and an event: what the later one gets next begins after what the earlier
    one has got."""
    addresses: tuple[int, int, int]
    """Of both functions, and of the driver's that are their first argument, for C++ (``native_calls/Streams.h``)."""


@functools.cache
def library() -> Functions:
    """The library, loaded when it is first used: CPU worlds put nothing into streams.

    Raises:
        OSError: there is no driver. RuntimeError: it is too old.
    """
    loaded, driver = ctypes.CDLL(str(PATH)), ctypes.CDLL("libcuda.so.1")
    if lacking := [name for name in _DRIVER if not hasattr(driver, name)]:
        raise RuntimeError(f"the CUDA driver is too old: libcuda.so.1 has no {', '.join(lacking)}")
    found = [_address(getattr(driver, name)) for name in _DRIVER]
    functions = ctypes.cast((ctypes.c_void_p * len(found))(*found), ctypes.c_void_p)  # which keeps the array
    handle, address = ctypes.c_void_p, ctypes.c_uint64
    put, order = loaded.triton_dist_stream_put, loaded.triton_dist_stream_order
    return Functions(
        _typed(put, functions, handle, ctypes.c_int64, handle, address, address),
        _typed(order, functions, handle, handle, handle),
        (_address(put), _address(order), functions.value or 0),
    )


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _typed(function: Any, driver: ctypes.c_void_p, *arguments: Any) -> Callable[..., int]:
    function.restype, function.argtypes = ctypes.c_int, (ctypes.c_void_p, *arguments)
    return functools.partial(function, driver)
