"""Copies by the copy engine that begin when a kernel says so: operations on memory in CUDA streams.

Flags are 32-bit words that are 1 or 0, so that a captured graph can be replayed: who waits for a 1 puts the 0 back.
Uses the CUDA driver through ``cuda-bindings``, which the GPU world has anyway (nvshmem4py needs it).
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["copy", "give", "take"]


def take(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream wait until the word at address ``flag`` is 1, and put it back to 0."""
    driver = _driver()
    _check(driver.cuStreamWaitValue32(stream.cuda_stream, flag, 1, 1))  # CU_STREAM_WAIT_VALUE_EQ
    _check(driver.cuStreamWriteValue32(stream.cuda_stream, flag, 0, 0))


def give(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream store 1 to the word at address ``flag``, here or on a peer, after all that it has done before."""
    _check(_driver().cuStreamWriteValue32(stream.cuda_stream, flag, 1, 0))


def copy(stream: torch.cuda.Stream, to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a matrix, whose rows are contiguous, by the copy engine. (``Tensor.copy_`` may launch a kernel, for which a
    GPU that is full of a persistent one has no room.)"""
    assert to.shape == source.shape and to.dtype == source.dtype and to.stride(1) == source.stride(1) == 1
    driver, size = _driver(), source.element_size()
    what = driver.CUDA_MEMCPY2D()
    what.srcMemoryType = what.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    what.srcDevice, what.dstDevice = source.data_ptr(), to.data_ptr()
    what.srcPitch, what.dstPitch = source.stride(0) * size, to.stride(0) * size
    what.WidthInBytes, what.Height = source.shape[1] * size, source.shape[0]
    _check(driver.cuMemcpy2DAsync(what, stream.cuda_stream))


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _check(result: tuple[Any, ...]) -> None:
    if int(result[0]) != 0:
        raise RuntimeError(f"the CUDA driver refuses an operation of a stream: {result[0]}")
