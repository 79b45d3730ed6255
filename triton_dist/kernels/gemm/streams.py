"""Copies by the copy engine that begin when a kernel says so: operations on memory in CUDA streams.

Flags are 32-bit words that are 1 or 0, so that a captured graph can be replayed: who waits for a 1 puts the 0 back.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.cuda import check, driver

__all__ = ["copy", "give", "take"]


def take(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream wait until the word at address ``flag`` is 1, and put it back to 0."""
    check(driver().cuStreamWaitValue32(stream.cuda_stream, flag, 1, 1))  # CU_STREAM_WAIT_VALUE_EQ
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 0, 0))


def give(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream store 1 to the word at address ``flag``, here or on a peer, after all that it has done before."""
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 1, 0))


def copy(stream: torch.cuda.Stream, to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a matrix, whose rows are contiguous, by the copy engine. (``Tensor.copy_`` may launch a kernel, for which a
    GPU that is full of a persistent one has no room.)"""
    assert to.shape == source.shape and to.dtype == source.dtype and to.stride(1) == source.stride(1) == 1
    cuda, size = driver(), source.element_size()
    what = cuda.CUDA_MEMCPY2D()
    what.srcMemoryType = what.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    what.srcDevice, what.dstDevice = source.data_ptr(), to.data_ptr()
    what.srcPitch, what.dstPitch = source.stride(0) * size, to.stride(0) * size
    what.WidthInBytes, what.Height = source.shape[1] * size, source.shape[0]
    check(cuda.cuMemcpy2DAsync(what, stream.cuda_stream))
