"""DeepEP's events: where a stream was, for other streams to wait for. Calls work on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import triton_dist

__all__ = ["EventHandle", "EventOverlap", "ended", "wait_for"]


class EventHandle:
    """An event of the current stream, recorded when this is made. The CPU world has no streams to wait for."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event() if triton_dist.kind() == "gpu" else None  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record()

    def current_stream_wait(self) -> None:
        """The current stream waits for the event."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


class EventOverlap:
    """The end of a call, or a moment of a stream.

    Attributes:
        event: None of a call without ``async_finish``, for which there is nothing to wait on its stream.
        extra_tensors: kept alive as long as this is.
    """

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[torch.Tensor, ...] | None = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors
        self._hook: Callable[[], object] | None = None
        self._release = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """The current stream waits for the event; then the hook is called, once. ``release_handle`` drops the event."""
        if self.event is not None:
            self.event.current_stream_wait()
        hook, self._hook = self._hook, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = None

    def register_hook_after_wait(self, hook_after_wait: Callable[[], object]) -> None:
        """What :meth:`current_stream_wait` calls next.

        Raises:
            RuntimeError: there is one already.
        """
        if self._hook is not None:
            raise RuntimeError("EventOverlap: a hook is registered already, and has not been called")
        self._hook = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        """This, whose next ``with`` block drops the event at its end if ``release_handle``."""
        self._release = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: object) -> None:
        """The current stream waits."""
        release, self._release = self._release, False
        self.current_stream_wait(release)


def wait_for(function: str, previous_event: Any, *tensors: torch.Tensor | None) -> None:
    """The current stream waits for ``previous_event``, and uses ``tensors``, which another stream may have made.

    Raises:
        TypeError: it is no event.
    """
    if previous_event is None:
        return
    if not isinstance(previous_event, (EventOverlap, EventHandle)):
        raise TypeError(
            f"{function}: previous_event must be an EventOverlap, as Buffer.capture() and calls return, got"
            f" {type(previous_event).__name__}"
        )
    event = previous_event.event if isinstance(previous_event, EventOverlap) else previous_event
    if event is None or triton_dist.kind() != "gpu":
        return
    event.current_stream_wait()
    for tensor in tensors:
        if tensor is not None:
            tensor.record_stream(torch.cuda.current_stream())


def ended(async_finish: bool, *tensors: torch.Tensor | None) -> EventOverlap:
    """The event of a call, which keeps ``tensors``; without ``async_finish`` there is none to wait for."""
    if not async_finish:
        return EventOverlap()
    return EventOverlap(EventHandle(), tuple(tensor for tensor in tensors if tensor is not None))
