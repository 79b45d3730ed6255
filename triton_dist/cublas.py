"""cuBLAS' C API, of the library that PyTorch has loaded: what a GEMM takes without PyTorch's dispatcher.

Nothing is linked. The functions are found by name, and called from here or, by address, from C++
(``native_calls/Multiply.h``).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

__all__ = ["Functions", "Gemm", "library"]

_HANDLE = _ADDRESS = ctypes.c_void_p
_INT = ctypes.c_int
_OPERAND = _ADDRESS, _INT, _INT  # the address, the type, and the leading dimension
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (ctypes.POINTER(_HANDLE),),
    "cublasDestroy_v2": (_HANDLE,),
    "cublasSetStream_v2": (_HANDLE, _ADDRESS),
    "cublasSetWorkspace_v2": (_HANDLE, _ADDRESS, ctypes.c_size_t),
    "cublasGemmEx": (
        *(_HANDLE, _INT, _INT, _INT, _INT, _INT, _ADDRESS, *_OPERAND, *_OPERAND, _ADDRESS, *_OPERAND, _INT, _INT),
    ),
    "cublasGetStatusName": (_INT,),
}
"""The functions that are used, and their arguments."""
_OF_GEMM = "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx", "cublasGetStatusName"
"""Those that a GEMM calls, in the order of ``Gemm``."""

_AS_IT_IS = 0  # CUBLAS_OP_N
_FLOAT32_SUMS = 68  # CUBLAS_COMPUTE_32F
_TENSOR_CORES = 99  # CUBLAS_GEMM_DEFAULT_TENSOR_OP
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)  # alpha and beta, which cuBLAS reads on the host


class Gemm(ctypes.Structure):
    """All of a GEMM but the stream and the addresses of its matrices, as ``Gemm`` of ``Multiply.h`` has it.

    The names are cuBLAS', whose matrices lie by columns. A matrix by rows is its transpose by columns, so c = a · b by
    rows is c^T = b^T · a^T there: cuBLAS' first operand is b, and its m is the number of columns of c.
    """

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("set_stream", "set_workspace", "gemm_ex", "status_name")),
        *((name, ctypes.c_uint64) for name in ("handle", "workspace", "workspace_bytes")),
        *((name, ctypes.c_int32) for name in ("transa", "m", "n", "k", "type", "lda", "ldb", "ldc")),
    )


class Functions(NamedTuple):
    """The functions of cuBLAS. Python's lock is free while they run."""

    functions: dict[str, Callable[..., Any]]
    addresses: tuple[int, ...]
    """Of those that a GEMM calls, the first fields of :class:`Gemm`."""

    def create(self) -> int:
        """A handle on the current device, for one thread at a time.

        Raises:
            RuntimeError: cuBLAS makes none.
        """
        handle = _HANDLE()
        self._call("cublasCreate_v2", ctypes.byref(handle))
        return handle.value or 0

    def destroy(self, handle: int) -> None:
        """Destroy a handle. cuBLAS waits for the device first."""
        self.functions["cublasDestroy_v2"](handle)  # an error is ignored: the context may be lost

    def multiply(self, gemm: Gemm, stream: int, a: int, b: int, c: int) -> None:
        """c = a · b on a stream, of matrices at these addresses, as ``Gemm::run`` of ``Multiply.h`` does.

        Raises:
            RuntimeError: the status of a function is not success.
        """
        # A new stream takes cuBLAS' own workspace, so this comes first.
        self._call("cublasSetStream_v2", gemm.handle, stream)
        self._call("cublasSetWorkspace_v2", gemm.handle, gemm.workspace, gemm.workspace_bytes)
        self._call(
            "cublasGemmEx", gemm.handle, gemm.transa, _AS_IT_IS, gemm.m, gemm.n, gemm.k,
            ctypes.addressof(_ONE), b, gemm.type, gemm.lda, a, gemm.type, gemm.ldb,
            ctypes.addressof(_ZERO), c, gemm.type, gemm.ldc, _FLOAT32_SUMS, _TENSOR_CORES,
        )  # fmt: skip

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function; the error of its status has PyTorch's words."""
        status = self.functions[function](*arguments)
        if status:
            name = self.functions["cublasGetStatusName"](status).decode()
            raise RuntimeError(f"CUDA error: {name} when calling `{function}`")


@functools.cache
def library() -> Functions | None:
    """cuBLAS, if PyTorch has loaded it. None: it is for AMD GPUs or the CPU, has cuBLAS linked into it, or the library
    lacks a function."""
    if torch.version.cuda is None:
        return None
    try:
        # By the soname of PyTorch's major version. What is not loaded yet would be another library than PyTorch's.
        loaded = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    if not all(hasattr(loaded, name) for name in _FUNCTIONS):
        return None
    functions = {name: getattr(loaded, name) for name in _FUNCTIONS}
    for name, arguments in _FUNCTIONS.items():
        functions[name].argtypes = arguments
    functions["cublasGetStatusName"].restype = ctypes.c_char_p
    return Functions(functions, tuple(ctypes.cast(functions[name], ctypes.c_void_p).value or 0 for name in _OF_GEMM))
