"""Streams without a GPU: each does in order what it is given, if it can."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_dist import stream_operations
from triton_dist.kernels import cuda
from triton_dist.kernels.protocols import side_stream
from triton_dist.stream_operations import COPY, COPY_ROWS, TAKE
from triton_dist.world.base import World

__all__ = ["Machine", "Operation", "Owner", "Stream"]

Operation = Callable[[], "bool | None"]
"""Done if it can be, and whether it was; None if it has done a part."""

NON_BLOCKING = 1


class Stream:
    """What torch has of a stream, as far as it is used here."""

    def __init__(self, machine: Machine, handle: int) -> None:
        self.machine, self.cuda_stream = machine, handle

    def record_event(self) -> list[bool]:
        event: list[bool] = []
        self.machine.put(self.cuda_stream, lambda: event.append(True) or True)
        if self.cuda_stream in self.machine.capturing:
            event.append(True)
            self.machine.captured_events[id(event)] = self.machine.capturing[self.cuda_stream]
        self.machine.events.append(event)
        return event

    def wait_event(self, event: list[bool]) -> None:
        mine, theirs = self.machine.capturing.get(self.cuda_stream), self.machine.captured_events.get(id(event))
        assert mine is None or mine == theirs, "a stream of one capture waits for what is not in it"
        if theirs is not None:
            self.machine.capturing[self.cuda_stream] = theirs
        self.machine.put(self.cuda_stream, lambda: bool(event))

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())


class Machine:
    """Streams, and the driver's functions for them. Torch's are 32, handed out in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queues: dict[int, deque[Operation]] = {}
        self.queue_of: dict[int, int] = {}
        """Of streams whose work is in the queue of another one."""
        self.words: dict[int, int] = {}
        self.events: list[list[bool]] = []
        self.created: list[int] = []
        self.destroyed: list[int] = []
        self.capturing: dict[int, int] = {}
        self.captured_events: dict[int, int] = {}
        self.captured: dict[int, list[tuple[int, Operation]]] = {}
        """What is in each capture: the stream, and what it was given."""
        self.mode = "global"
        self.current = Stream(self, 0)
        self.gpu = 0  # the current one, whose streams torch hands out
        self._handles, self._pools = count(1000), (count(), count())
        monkeypatch.setattr(torch.cuda, "Stream", self._of_pool)
        monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: Stream(self, handle))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.current)
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: self.current.cuda_stream in self.capturing
        )
        driver = SimpleNamespace(
            CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=NON_BLOCKING)),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed"),
            CUevent_flags=SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2)),
            cuEventCreate=lambda flags: (0, 1),
            cuEventDestroy=lambda event: (0,),
            cuStreamCreate=self._create,
            cuStreamDestroy=lambda stream: (self.destroyed.append(stream) or 0,),
            cuThreadExchangeStreamCaptureMode=self._exchange_mode,
            cuStreamGetCaptureInfo=lambda stream: (
                0, int(stream in self.capturing), self.capturing.get(stream, 0), "graph", [], [], 0,
            ),
        )  # fmt: skip
        for module in (cuda, side_stream):
            monkeypatch.setattr(module, "driver", lambda: driver)
        library = stream_operations.Functions(self._put_operations, self._order, (0, 0, 0))
        monkeypatch.setattr(stream_operations, "library", lambda: library)
        monkeypatch.setattr(Owner, "current_stream", staticmethod(lambda: self.current.cuda_stream), raising=False)

    def put(self, stream: int, operation: Operation) -> None:
        if stream in self.capturing:
            self.captured.setdefault(self.capturing[stream], []).append((stream, operation))
        else:
            self.queues.setdefault(self.queue_of.get(stream, stream), deque()).append(operation)

    def copying(self, to: int, source: int, nbytes: int, stream: int) -> Operation:
        """A copy between addresses; a test puts its own in the place of this one."""
        return lambda: True

    def run(self) -> None:
        """All streams, until all is done. Fails where none can go on."""
        while any(self.queues.values()):
            found = [(queue, queue[0]()) for queue in self.queues.values() if queue]
            for queue, done in found:
                if done:
                    queue.popleft()
            waiting = [handle for handle, queue in self.queues.items() if queue]
            assert any(done is not False for _, done in found), f"streams wait for ever: {waiting}"

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def capture(self, stream: Stream, number: int) -> Iterator[None]:
        self.capturing[stream.cuda_stream] = number
        yield
        self.end_capture(number)

    def end_capture(self, number: int) -> None:
        self.capturing = {handle: capture for handle, capture in self.capturing.items() if capture != number}

    @property
    def gpus(self) -> Iterator[int]:
        """Both, each while it is the current one."""
        for self.gpu in range(2):
            yield self.gpu

    def _of_pool(self) -> Stream:
        return Stream(self, 1 + 100 * self.gpu + next(self._pools[self.gpu]) % 32)

    def _create(self, flags: int) -> tuple[int, int]:
        assert flags == NON_BLOCKING, "it would wait for the legacy default stream, and that for it"
        assert not self.capturing or self.mode == "relaxed", "a capture forbids this"
        self.created.append(next(self._handles))
        return 0, self.created[-1]

    def _exchange_mode(self, mode: str) -> tuple[int, str]:
        before, self.mode = self.mode, mode
        return 0, before

    def _put_operations(self, operations: Any, n: int, stream: int, first: int, second: int) -> int:
        for operation in operations[:n]:
            source = operation.source + ((first, second)[operation.base] if operation.base >= 0 else 0)
            if operation.kind == TAKE:
                self.put(stream, partial(self._take, operation.to))
            elif operation.kind == COPY:
                self.put(stream, self.copying(operation.to, source, operation.width, stream))
            elif operation.kind == COPY_ROWS:
                self.put(stream, lambda: True)
            else:
                self.put(stream, partial(self._give, operation.to))
        return 0

    def _take(self, word: int) -> bool:
        return self.words.get(word, 0) == 1 and not self.words.update({word: 0})

    def _give(self, word: int) -> bool:
        self.words[word] = 1
        return True

    def _order(self, earlier: int, later: int, event: int) -> int:
        assert {earlier, later}.isdisjoint(self.capturing), "in a capture torch's events are used"
        Stream(self, later).wait_event(Stream(self, earlier).record_event())
        return 0


class Owner:
    """A World with one PE's communicator, as far as they are used here: what both do for what they own."""

    own, _closing = World.own, World._closing
    host_streams = None

    def __init__(self) -> None:
        self.device, self._owned, self._owning = torch.device("cpu"), {}, threading.RLock()
        self.world = self
