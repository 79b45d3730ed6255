"""A side stream for operations of two concurrent parts that wait for each other: a kernel and copies, or two kernels.

It must differ from the caller's stream, on which the parts would deadlock. ``torch.cuda.Stream()`` does not guarantee
this: torch has a pool of 32 streams for each device and priority, which it returns in round-robin order. So side
streams are created through the driver and used for nothing else. A communicator has its own: work of two of them on one
side stream would be in an order that may differ between PEs, which deadlocks.

A stream that has joined the capture of a CUDA graph belongs to this capture until it ends. So captures use streams that
direct calls never use, and each concurrent capture has its own. A stream is reused when its capture has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.cuda import check, driver

__all__ = ["SideStreams", "side_stream"]


@contextmanager
def side_stream(communicator: Communicator) -> Iterator[torch.cuda.Stream]:
    """A stream for work concurrent with the current stream. It may be captured together with that stream.

    Its work begins after the earlier work of the current stream. Work that is queued on the current stream after the
    block begins after all work of the block on both streams, also if the block has raised an error.
    """
    current = torch.cuda.current_stream()
    entered = current.record_event()
    side = communicator.own(SideStreams).concurrent_with(current)
    side.wait_event(entered)
    try:
        yield side
    finally:
        current.wait_stream(side)


class SideStreams:
    """The side streams of one communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self._device = communicator.world.device
        self._direct: torch.cuda.Stream | None = None
        self._captured: list[torch.cuda.Stream] = []

    def concurrent_with(self, stream: torch.cuda.Stream) -> torch.cuda.Stream:
        """A stream for work concurrent with ``stream``, the current stream."""
        if torch.cuda.is_current_stream_capturing():
            capture = _capture(stream)
            for other in self._captured:
                if _capture(other) in (None, capture):
                    return other
            self._captured.append(self._new())
            return self._captured[-1]
        if self._direct is None:
            self._direct = self._new()
        return self._direct

    def close(self) -> None:
        """Destroy the streams. The driver completes their pending work first."""
        streams = [*self._captured, *([self._direct] if self._direct else [])]
        self._direct, self._captured = None, []
        for stream in streams:
            driver().cuStreamDestroy(stream.cuda_stream)  # an error is ignored: the context may be lost

    def _new(self) -> torch.cuda.Stream:
        """A stream that does not wait for the legacy default stream, which the caller's kernel may be on."""
        cuda = driver()
        # The other capture modes forbid calls that might affect a capture. Creating a stream affects none.
        (mode,) = check(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            (stream,) = check(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        finally:
            check(cuda.cuThreadExchangeStreamCaptureMode(mode))
        return torch.cuda.ExternalStream(int(stream), device=self._device)


def _capture(stream: torch.cuda.Stream) -> int | None:
    """The id of the capture that ``stream`` belongs to; None if it is not capturing."""
    status, number, *_ = check(driver().cuStreamGetCaptureInfo(stream.cuda_stream))
    return int(number) if int(status) else None
