"""One program of a grid, a coroutine, and what it waits for. :mod:`~triton_dist.cpu.scheduler` runs the programs."""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import greenlet

from triton_dist.cpu import location
from triton_dist.cpu.outstanding import Outstanding
from triton_dist.cpu.schedule import Access
from triton_dist.cpu.turn_taking import Turns

__all__ = ["INTERRUPTED", "Program", "Wait", "running"]

_GLANCES = 128
"""The number of plain loads of one value from one address after which a program yields, if no other yield came."""


@dataclass(frozen=True)
class Wait:
    """What a program waits for."""

    ready: Callable[[], bool] | None
    """Whether it can go on; None when only the program itself can tell: it polls memory in a loop of its own."""

    describe: Callable[[], str]
    """The op, the address, what is expected and what is there; called when a report is made."""

    words: tuple[tuple[int, int], ...] = ()
    """What would have to change, if it is known: PEs and offsets in their heaps."""

    pes: tuple[int, ...] = ()
    """Who would have to come, if it is a barrier."""


INTERRUPTED = Wait(lambda: True, lambda: "nothing: it was interrupted")
"""Of a program that could go on."""


class Program(greenlet.greenlet):  # type: ignore[misc]
    """One program of the grid."""

    index: tuple[int, int, int]
    wait: Wait | None = None
    steps: int = 0
    """Grows with everything the program does that may bring it, or another one, forward."""
    intention: Access = Access.NOTHING
    """What it is about to do, if it let others go first."""
    recorded: int = -1
    """Its number in the recorder's log, if there is one."""
    limit: float = float("inf")
    """Seconds after which a warning reports a loop that polls an unchanged value and also has side effects."""
    sent: int = -1
    """The number in the recorder's log of the last update that it has sent, and that arrives later."""
    tried: int = -1
    """The step of the world at which it last found nothing new in memory that it polls."""
    partition: object = None
    """What its warps have in flight, in a Gluon kernel (:mod:`triton_dist.cpu.gluon.partition`)."""
    copies_by_tma: bool = False
    """Whether what it loads and stores now is a descriptor's."""
    part: str = ""
    """Which of its program's partitions this is, if it is not all of it."""

    def __init__(
        self, index: tuple[int, int, int], body: Callable[[], None], guard: Callable[[Callable[[], None]], None]
    ) -> None:
        """``guard`` calls ``body``, and that of each part of the program, and says where an error comes from."""
        super().__init__(functools.partial(guard, body))
        self.index, self._guard = index, guard
        self.started: list[Program] = []
        """Partitions of its own that have not run yet; the scheduler takes them."""
        self.polled: dict[object, object] = {}
        self.glanced: dict[int, tuple[int, int]] = {}
        self.unchanged_since: dict[object, float] = {}
        self.outstanding = Outstanding(self._moved)

    def _moved(self) -> None:
        self.steps += 1

    def __str__(self) -> str:
        return f"program {self.index}{self.part}"

    def start(self, body: Callable[[], None], part: str) -> Program:
        """Run ``body`` beside this program, as a part of it."""
        made = Program(self.index, body, self._guard)
        made.parent, made.part, made.wait, made.recorded = self.parent, part, INTERRUPTED, self.recorded
        self.started.append(made)
        return made

    def suspend(self, wait: Wait) -> None:
        """Let others run; returns when the program may go on. Called by the program itself."""
        self.wait = wait
        self.parent.switch()
        self.wait = None

    def may_be_interrupted(self, turns: Turns | None, access: Access) -> None:
        """Called by the program before it does something to symmetric memory that others may notice."""
        if turns is not None and turns.schedule.interrupts(access):
            self.intention = access
            self.suspend(INTERRUPTED)
            self.intention = Access.NOTHING

    def wait_until(
        self,
        ready: Callable[[], bool],
        describe: Callable[[], str],
        words: tuple[tuple[int, int], ...] = (),
        pes: tuple[int, ...] = (),
    ) -> None:
        if not ready():
            self.suspend(Wait(ready, describe, words, pes))
        self.steps += 1

    def poll(self, what: object, seen: object, describe: Callable[[], str]) -> None:
        """The program looked at memory that others may change. If it saw there what it saw last time, it spins."""
        if self.polled.get(what) == seen:
            self._warn_of_long(what, describe)
            self.suspend(Wait(None, describe))
            return
        self.unchanged_since.pop(what, None)
        if len(self.polled) >= 4096:  # it walks through memory rather than spins
            self.polled.clear()
        self.polled[what] = seen
        self.steps += 1

    def glance(self, what: int, seen: int, describe: Callable[[], str]) -> None:
        """The program made a plain load. A few loads of one value are normal; many in a row are a polling loop."""
        before, times = self.glanced.get(what, (seen, 0))
        if before != seen:
            self.steps += 1
            times = 0
            self.unchanged_since.pop(what, None)
        if len(self.glanced) >= 4096:
            self.glanced.clear()
        self.glanced[what] = seen, times + 1
        if times + 1 >= _GLANCES:
            # All count anew and this one is ahead, so that a report names the load that the loop makes first or most
            # often: what it waits for.
            self.glanced = {other: (value, int(other == what)) for other, (value, _) in self.glanced.items()}
            self._warn_of_long(what, describe)
            self.suspend(Wait(None, describe))

    def _warn_of_long(self, what: object, describe: Callable[[], str]) -> None:
        """Warn once that a loop polls an unchanged value: it has side effects, so it is not reported as a deadlock."""
        now = time.monotonic()
        if now - self.unchanged_since.setdefault(what, now) > self.limit:
            self.unchanged_since[what] = float("inf")
            where = f"{self} at {location.of_frame(sys._getframe())}"
            warnings.warn(f"{where} has been for {self.limit:g} s in {describe()}", RuntimeWarning, stacklevel=2)


def running() -> Program:
    """The program that runs now. Only code inside a kernel asks."""
    program = greenlet.getcurrent()
    assert isinstance(program, Program), "no kernel runs"
    return program
