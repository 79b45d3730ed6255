"""Operations on memory in CUDA streams, which order the copy engine and kernels without the host.

Flags are 32-bit words that are 1 or 0. A stream that waits for a 1 writes the 0 back, so a captured graph can be
replayed.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.cuda import check, driver

__all__ = ["Copy", "wait_value", "write_value"]


def wait_value(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream wait until the word at address ``flag`` is 1, and write 0 to it."""
    check(driver().cuStreamWaitValue32(stream.cuda_stream, flag, 1, 1))  # CU_STREAM_WAIT_VALUE_EQ
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 0, 0))


def write_value(stream: torch.cuda.Stream, flag: int) -> None:
    """Let the stream write 1 to the word at address ``flag``, of this PE or a peer, after all its earlier work."""
    check(driver().cuStreamWriteValue32(stream.cuda_stream, flag, 1, 0))


class Copy:
    """A copy by the copy engine to the memory of ``to``, from matrices like ``source``, with contiguous rows.

    (``Tensor.copy_`` may launch a kernel, which cannot become resident on a GPU that a persistent kernel fills.)
    """

    def __init__(self, to: torch.Tensor, source: torch.Tensor) -> None:
        assert to.shape == source.shape and to.dtype == source.dtype
        assert to.shape[1] == 1 or to.stride(1) == source.stride(1) == 1
        cuda, size = driver(), source.element_size()
        self._what = what = cuda.CUDA_MEMCPY2D()
        what.srcDevice = source.data_ptr()
        what.srcMemoryType = what.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        what.dstDevice = to.data_ptr()
        what.srcPitch, what.dstPitch = source.stride(0) * size, to.stride(0) * size
        what.WidthInBytes, what.Height = source.shape[1] * size, source.shape[0]

    def __call__(self, stream: torch.cuda.Stream, source: torch.Tensor | None = None) -> None:
        """Let the stream copy ``source``, of the shape, strides and dtype of the one that this was made with; by
        default what lies where that one did."""
        if source is not None:
            self._what.srcDevice = source.data_ptr()
        check(driver().cuMemcpy2DAsync(self._what, stream.cuda_stream))
