"""A second stream for an operation that works in two: kernel and copies, or two kernels, which wait for each other.

It must not be the caller's stream: in one queue they would wait for each other for ever. ``torch.cuda.Stream()`` cannot
promise that, since torch has 32 streams for each device and priority and hands them out in turn. So the driver creates
these, and no other code gets them. The World owns them and destroys them when it ends.

A stream that has joined the capture of a CUDA graph belongs to the capture until that ends. So a capture gets a stream
that direct calls never use, and concurrent captures get one each. A stream whose capture has ended serves the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from triton_dist.kernels.cuda import check, driver
from triton_dist.world import World
from triton_dist.world.api import _current

__all__ = ["SideStreams", "side_stream"]


@contextmanager
def side_stream() -> Iterator[torch.cuda.Stream]:
    """A stream that works concurrently with the current one, and may be captured with it.

    It begins after what the current stream has been given before the block; what the current stream is given after the
    block comes after all that the block has put into either.
    """
    here = torch.cuda.current_stream()
    entered = here.record_event()
    beside = _current().own(SideStreams).beside(here)
    beside.wait_event(entered)
    yield beside
    here.wait_stream(beside)


class SideStreams:
    """Those of one World."""

    def __init__(self, world: World) -> None:
        self._device = world.device
        self._direct: torch.cuda.Stream | None = None
        self._captured: list[torch.cuda.Stream] = []

    def beside(self, stream: torch.cuda.Stream) -> torch.cuda.Stream:
        """One for work concurrent with ``stream``, the current one."""
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
        """Destroy them. What they have been given is still done."""
        streams = [*self._captured, *([self._direct] if self._direct else [])]
        self._direct, self._captured = None, []
        for stream in streams:
            driver().cuStreamDestroy(stream.cuda_stream)  # after an error of the device this fails, and nothing is left

    def _new(self) -> torch.cuda.Stream:
        """A stream that does not wait for the legacy default stream, which the caller's kernel may be on."""
        cuda = driver()
        # A capture forbids its thread, or all, whatever might change what it records: this does not.
        (mode,) = check(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            (stream,) = check(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        finally:
            check(cuda.cuThreadExchangeStreamCaptureMode(mode))
        return torch.cuda.ExternalStream(int(stream), device=self._device)


def _capture(stream: torch.cuda.Stream) -> int | None:
    """The number of the capture that a stream belongs to; None where there is none."""
    status, number, *_ = check(driver().cuStreamGetCaptureInfo(stream.cuda_stream))
    return int(number) if int(status) else None
