"""Local GEMMs of 16-bit floats by cuBLAS itself, whose call C++ makes again without Python.

What ``torch.mm`` does on a GPU for such matrices is one call of ``cublasGemmEx``. It is made here with the same
arguments and as much workspace, so it is the same kernel, unless one of PyTorch's flags asks for another: then the GEMM
is ``torch.mm``'s, as it is in a capture before the communicator has a handle. The flags are read in each call. The same
function is called by Python and by C++, so a shape gives the same bits in both.
"""

from __future__ import annotations

import os
import re

import torch

from triton_dist.cublas import Gemm, library
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import gpu
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.protocols.gemm_work import GemmWork
from triton_dist.kernels.protocols.workspace import is_capturing
from triton_dist.native_calls import Guard
from triton_dist.torch_api import matmul_flags, prefers_cublas

__all__ = ["Cublas", "CublasGemm", "cublas_gemm"]

_TYPES = {torch.float16: 2, torch.bfloat16: 14}
"""``cudaDataType`` of library_types.h."""
_MOST = (1 << 31) - 1
"""Sizes and strides are ints of C."""


class Cublas:
    """cuBLAS' handle of one communicator's calls, which run one after the other, and its workspace.

    GEMMs of two communicators may run at the same time, so they share no workspace. Neither is made while a CUDA graph
    is captured.
    """

    def __init__(self, communicator: Communicator) -> None:
        found = library()
        assert found is not None
        self.library = found
        self.handle = 0
        self._world = communicator.world
        self._workspace: torch.Tensor | None = None
        self._is_refused = False

    def open(self) -> bool:
        """Make the handle, if there is none and no CUDA graph is captured. Returns whether there is one.

        Where there is no memory for it, it is not asked for again: GEMMs stay with ``torch.mm``, whose handle PyTorch
        has.
        """
        if not (self.handle or self._is_refused or is_capturing()):
            try:
                workspace = torch.empty(_workspace_bytes(), dtype=torch.uint8, device=self._world.device)
                self.handle, self._workspace = self.library.create(), workspace
            except RuntimeError:  # of PyTorch's allocator, too
                self._is_refused = True
        return self.handle != 0

    @property
    def workspace(self) -> tuple[int, int]:
        """The address and the number of bytes, if there is a handle."""
        assert self._workspace is not None
        return self._workspace.data_ptr(), self._workspace.nbytes

    def close(self) -> None:
        """Destroy the handle, for which cuBLAS waits until no GEMM uses the workspace. That of an aborted world, whose
        kernels may wait for ever, stays until the process ends."""
        if self._world.aborted:
            return
        handle, self.handle = self.handle, 0
        if handle:
            self.library.destroy(handle)
        self._workspace = None


def _workspace_bytes() -> int:
    """As many as PyTorch gives cuBLAS for a stream: 32 MiB from Hopper on, or what ``CUBLAS_WORKSPACE_CONFIG`` says,
    buffers of so many KiB each."""
    buffers = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if buffers:
        return sum(int(size) * int(count) << 10 for size, count in buffers)
    return 32 << 20 if gpu().capability >= (9, 0) else (2 * 4096 + 8 * 16) << 10


class CublasGemm(GemmWork):
    """c = a · b by cuBLAS, or by ``torch.mm`` where it is not direct."""

    def __init__(self, communicator: Communicator, layout: Gemm, dtype: torch.dtype) -> None:
        self._communicator = communicator
        self._gemm = layout
        self._cublas: Cublas | None = None
        self.flags = tuple(Guard(read, "call", (), "equal", default) for read, default in matmul_flags(dtype))

    def is_direct(self) -> bool:
        return self._direct() is not None

    @property
    def data(self) -> bytes:
        return bytes(self._gemm)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *no: None) -> None:
        """
        Raises:
            RuntimeError: cuBLAS refuses it.
        """
        cublas = self._direct()
        if cublas is None:
            torch.mm(a, b, out=c)
            return
        stream = self._communicator.current_stream()
        cublas.library.multiply(self._gemm, stream, a.data_ptr(), b.data_ptr(), c.data_ptr())

    def _direct(self) -> Cublas | None:
        """cuBLAS, whose handle the GEMM has; None: it is ``torch.mm``'s now."""
        if not all(flag.object() == flag.expected for flag in self.flags):
            return None
        if self._cublas is None:
            cublas, gemm = self._communicator.own(Cublas), self._gemm
            if not cublas.open():
                return None
            gemm.set_stream, gemm.set_workspace, gemm.gemm_ex, gemm.status_name = cublas.library.addresses
            gemm.handle = cublas.handle
            gemm.workspace, gemm.workspace_bytes = cublas.workspace
            self._cublas = cublas
        return self._cublas


def cublas_gemm(gemm: Operands) -> CublasGemm | None:
    """c = a · b without scales and epilogue, or None: it is ``torch.mm``'s.

    PyTorch's preferred library of BLAS is asked here only: the question takes longer than all flags.
    """
    a, b, c = gemm.a, gemm.b, gemm.c
    if a.dtype not in _TYPES or not a.dtype == b.dtype == c.dtype or library() is None or not prefers_cublas():
        return None
    layout = _layout(a, b, c)
    return None if layout is None else CublasGemm(gemm.comm, layout, a.dtype)


def _layout(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Gemm | None:
    """The arguments by which ``torch.mm`` calls cuBLAS; None, if it copies a matrix or there is nothing to multiply."""
    (rows, inner), columns = a.shape, b.shape[1]
    transposed = not (b.is_contiguous() or b.stride(1) == 1)
    strides = b.stride(1) if transposed else b.stride(0), a.stride(0), c.stride(0)
    widths = inner if transposed else columns, inner, columns
    counts = columns if transposed else inner, rows, rows
    # The stride of a single row or column says nothing: cuBLAS wants one that is large enough all the same.
    lda, ldb, ldc = (width if count == 1 else step for step, width, count in zip(strides, widths, counts, strict=True))
    dense = all(matrix.stride(1) == 1 or matrix.shape[1] == 1 for matrix in (a, c))
    dense = dense and (not transposed or b.stride(0) == 1 or inner == 1)
    fits = all(width <= step <= _MOST for step, width in zip((lda, ldb, ldc), widths, strict=True))
    if not (dense and fits and 0 < rows <= _MOST and inner and columns):
        return None
    return Gemm(
        transa=int(transposed), m=columns, n=rows, k=inner, type=_TYPES[a.dtype], lda=lda, ldb=ldb, ldc=ldc
    )  # fmt: skip
