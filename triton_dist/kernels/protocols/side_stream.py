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
from types import TracebackType
from typing import Any

import torch

from triton_dist import stream_operations
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.cuda import check, driver, succeed

__all__ = ["SideStreams", "side_stream"]


class side_stream:  # noqa: N801 (used as a function, as those of contextlib)
    """Context with a stream for work concurrent with the current stream. It may be captured together with that stream.

    Its work begins after the earlier work of the current stream. Work that is queued on the current stream after the
    block begins after all work of the block on both streams, also if the block has raised an error.
    """

    def __init__(self, communicator: Communicator) -> None:
        streams = communicator.world.host_streams
        self._on_host = None if streams is None else streams.beside()
        if self._on_host is not None:
            return
        self._streams = communicator.own(SideStreams)
        self._handle = communicator.current_stream()
        self._direct: _Direct | None = None
        self._captured: tuple[torch.cuda.Stream, torch.cuda.Stream] | None = None

    def __enter__(self) -> Any:
        if self._on_host is not None:
            return self._on_host.__enter__()
        if torch.cuda.is_current_stream_capturing():
            current = torch.cuda.current_stream()
            entered = current.record_event()
            side = self._streams.captured_with(current)
            side.wait_event(entered)
            self._captured = current, side
            return side
        direct = self._streams.direct or self._streams.open_direct()
        status = direct.order(self._handle, direct.handle, direct.event)
        if status:
            succeed(status)
        self._direct = direct
        return direct.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._on_host is not None:
            self._on_host.__exit__(kind, error, traceback)
            return
        direct = self._direct
        if direct is not None:
            status = direct.order(direct.handle, self._handle, direct.event)
            if status:
                succeed(status)
        elif self._captured is not None:
            current, side = self._captured
            current.wait_stream(side)


class _Direct:
    """The side stream of direct calls, with what orders it before and after the current stream.

    Its event is recorded anew for each order. A stream that waits for an event waits for what was recorded last when it
    was told to, so nothing has to be complete before.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.handle = int(stream.cuda_stream)
        cuda = driver()
        with _affecting_no_capture():
            (event,) = check(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
        self.event = int(event)
        self.order = stream_operations.library().order


class SideStreams:
    """The side streams of one communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self._device = communicator.world.device
        self.direct: _Direct | None = None
        """What calls have that are not captured, if there was one."""
        self._captured: list[torch.cuda.Stream] = []

    def open_direct(self) -> _Direct:
        self.direct = _Direct(self._new())
        return self.direct

    def captured_with(self, stream: torch.cuda.Stream) -> torch.cuda.Stream:
        """A stream for work concurrent with ``stream``, the current stream, which is capturing."""
        capture = _capture(stream)
        for other in self._captured:
            if _capture(other) in (None, capture):
                return other
        self._captured.append(self._new())
        return self._captured[-1]

    def close(self) -> None:
        """Destroy the streams. The driver completes their pending work first."""
        direct, streams = self.direct, self._captured
        self.direct, self._captured = None, []
        if direct is not None:
            streams = [*streams, direct.stream]
            driver().cuEventDestroy(direct.event)
        for stream in streams:
            driver().cuStreamDestroy(stream.cuda_stream)  # an error is ignored: the context may be lost

    def _new(self) -> torch.cuda.Stream:
        """A stream that does not wait for the legacy default stream, which the caller's kernel may be on."""
        cuda = driver()
        with _affecting_no_capture():
            (stream,) = check(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        return torch.cuda.ExternalStream(int(stream), device=self._device)


@contextmanager
def _affecting_no_capture() -> Iterator[None]:
    """The other capture modes forbid calls that might affect a capture. Creating a stream or an event affects none."""
    cuda = driver()
    (mode,) = check(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        yield
    finally:
        check(cuda.cuThreadExchangeStreamCaptureMode(mode))


def _capture(stream: torch.cuda.Stream) -> int | None:
    """The id of the capture that ``stream`` belongs to; None if it is not capturing."""
    status, number, *_ = check(driver().cuStreamGetCaptureInfo(stream.cuda_stream))
    return int(number) if int(status) else None
