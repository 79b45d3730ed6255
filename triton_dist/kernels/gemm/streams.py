"""Operations on memory in CUDA streams, which order the copy engine and kernels without the host.

Flags are 32-bit words that are 1 or 0. A stream that waits for a 1 writes the 0 back, so a captured graph can be
replayed.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.cuda import check, driver

__all__ = ["copy", "wait_value", "write_value"]


def wait_value(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream wait until the word at address ``flag`` is 1, and write 0 to it."""
    check(driver().cuStreamWaitValue32(stream.cuda_stream, flag, 1, 1))  # CU_STREAM_WAIT_VALUE_EQ
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 0, 0))


def write_value(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream write 1 to the word at address ``flag``, of this PE or a peer, after all its earlier work."""
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 1, 0))


def copy(stream: torch.cuda.Stream, to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a matrix with contiguous rows by the copy engine. (``Tensor.copy_`` may launch a kernel, which cannot become
    resident on a GPU that a persistent kernel fills.)"""
    assert to.shape == source.shape and to.dtype == source.dtype and to.stride(1) == source.stride(1) == 1
    cuda, size = driver(), source.element_size()
    what = cuda.CUDA_MEMCPY2D()
    what.srcMemoryType = what.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    what.srcDevice, what.dstDevice = source.data_ptr(), to.data_ptr()
    what.srcPitch, what.dstPitch = source.stride(0) * size, to.stride(0) * size
    what.WidthInBytes, what.Height = source.shape[1] * size, source.shape[0]
    check(cuda.cuMemcpy2DAsync(what, stream.cuda_stream))
