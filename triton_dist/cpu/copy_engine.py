"""The copy engine of a CPU world: a thread copies, waits for flags and sets them beside the kernels of one call."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from triton_dist import environment
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.runtime.backoff import Backoff
from triton_dist.stream_operations import COPY, GIVE, TAKE, Operation
from triton_dist.world.host_streams import HostStreams

__all__ = ["SIDE", "CopyEngine", "Side"]

SIDE = 1
"""The handle of the stream of a block. That of all else is 0."""


class Side:
    """What a block has got."""

    cuda_stream = SIDE

    def __init__(self) -> None:
        self.operations: list[Callable[[], None]] = []
        self.launches: list[Callable[[], object]] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None


class World(Protocol):
    """What a :class:`~triton_dist.cpu.world.CpuWorld` is here."""

    turns: Any

    def trouble(self) -> str | None: ...

    def describe(self, address: int) -> str: ...


class CopyEngine(HostStreams):
    """This PE's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of_thread = threading.local()  # another thread's launches are none of a block

    @property
    def _side(self) -> Side | None:
        return getattr(self._of_thread, "side", None)

    @property
    def lacks(self) -> str:
        taken = self._world.turns is not None
        return "needs a copy engine, which takes no turns and so is not there under triton-dist-check" if taken else ""

    @contextmanager
    def beside(self) -> Iterator[Side]:
        side = self._of_thread.side = Side()
        try:
            yield side
        finally:
            self._of_thread.side = None
        thread = threading.Thread(target=self._work, args=(side,), name="copy engine", daemon=True)
        thread.start()
        try:
            for launch in side.launches:
                launch()
        except BaseException:
            side.stop.set()
            raise
        finally:
            thread.join()
        if side.error is not None:
            raise side.error

    def launch(self, run: Callable[[], object]) -> None:
        side = self._side
        if side is None:
            run()
        else:
            side.launches.append(run)

    def put(self, operations: Iterable[Operation], number: int, stream: int, first: int, second: int) -> int:
        def work(side: Side) -> None:
            for operation in operations:
                self._do(operation, (first, second), side)

        side = self._side
        if stream == SIDE and side is not None:
            side.operations.append(lambda: work(side))
        else:
            work(Side())
        return 0

    def _work(self, side: Side) -> None:
        try:
            for work in side.operations:
                work()
        except BaseException as error:  # raised where the block ends
            side.error = error

    def _do(self, operation: Operation, addresses: tuple[int, int], side: Side) -> None:
        """As ``Streams.cpp`` has it."""
        if operation.kind == TAKE:
            self._await(operation.to, side)
            WORDS[4].store(operation.to, 0, Order.RELEASE)
        elif operation.kind == GIVE:
            WORDS[4].store(operation.to, 1, Order.RELEASE)
        else:
            source = operation.source + (addresses[operation.base] if operation.base >= 0 else 0)
            for row in range(1 if operation.kind == COPY else operation.height):
                ctypes.memmove(
                    operation.to + row * operation.to_pitch, source + row * operation.source_pitch, operation.width
                )

    def _await(self, flag: int, side: Side) -> None:
        """Wait until the word is 1."""
        backoff, begin, limit = Backoff(), time.monotonic(), environment.get("TRITON_DIST_WAIT_TIMEOUT")
        while WORDS[4].load(flag, Order.ACQUIRE) != 1:
            if side.stop.is_set():
                raise RuntimeError("a kernel beside the copy engine has failed")
            if trouble := self._world.trouble():
                raise BrokenWorldError(trouble)
            if time.monotonic() - begin > limit:
                raise RuntimeError(
                    f"the copy engine has waited for {limit:g} s (TRITON_DIST_WAIT_TIMEOUT) for the flag at"
                    f" {self._world.describe(flag)} to be 1"
                )
            backoff.pause()
