"""The programs of one grid as coroutines, so that programs may wait for each other and for other PEs.

A program runs until it ends or has to wait; then another one does. A new program is started only when no started one
can go on, so most grids never hold more than one at a time; but it *is* started then, however many there are, because
any program may be the one that the others wait for.

When nothing can go on, the process sleeps and looks again: what is awaited comes from another PE. After
``TRITON_DIST_WAIT_TIMEOUT`` seconds it gives up and says who waits for what.

Where PEs take turns (:mod:`triton_dist.cpu.turn_taking`) a schedule chooses who goes on, programs may be interrupted
before they touch symmetric memory, and it is known at once when no program can go on any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice

import greenlet

from triton_dist import environment
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.cpu import location
from triton_dist.cpu.program import INTERRUPTED, Program
from triton_dist.cpu.runtime.backoff import Backoff
from triton_dist.cpu.schedule import Access
from triton_dist.cpu.turn_taking import DeadlockError, Turns
from triton_dist.cpu.world import CpuWorld

__all__ = ["CannotGoOnError", "Scheduler"]

_LISTED = 32
"""How many waiting programs a report names."""


_STUCK_SECONDS = 2.0
"""How long no program has gone on before the other PEs are looked at: their threads may store to memory."""


class CannotGoOnError(RuntimeError):
    """All programs of a grid wait for what does not come. Its text has one line for each."""


class Scheduler:
    """Runs programs to their end, each as a :class:`Program`.

    ``enter`` is called each time before one goes on, to make it the one that the interpreter runs. ``world`` may be
    None: programs of an ordinary kernel wait for each other, too.
    """

    def __init__(self, enter: Callable[[Program], None], world: CpuWorld | None) -> None:
        self._enter = enter
        self._world = world
        self._limit = environment.get("TRITON_DIST_WAIT_TIMEOUT")
        self._waiting: list[Program] = []

    def run(self, programs: Iterator[Program]) -> None:
        """Raises what a program raises; CannotGoOnError; or, when the world is broken, BrokenWorldError."""
        turns = None if self._world is None else self._world.turns
        try:
            if turns is None:
                self._run(programs)
            else:
                self._run_in_turns(programs, turns)
        finally:
            for program in self._waiting:
                program.throw(greenlet.GreenletExit)

    def _run(self, programs: Iterator[Program]) -> None:
        backoff = Backoff()
        since = time.monotonic()
        while True:
            self._check_world()
            moved = self._go_on()
            if not moved:
                moved = self._start(programs)
            if not moved and not self._waiting:
                return
            if moved:
                backoff.reset()
                since = time.monotonic()
            else:
                self._check_others(time.monotonic() - since)
                if time.monotonic() - since > self._limit:
                    left = [] if self._world is None else self._world.pes_that_left()
                    raise CannotGoOnError(
                        f"no program could go on for {self._limit:g} s (TRITON_DIST_WAIT_TIMEOUT)"
                        f"{'; ' + _all_left(left) if left else ''}\n{self._report()}"
                    )
                if self._world is not None:
                    self._world.heap.progress()
                backoff.pause()

    def _go_on(self) -> bool:
        """Let every program that can go on do so once; whether one of them got anywhere."""
        moved = False
        waiting, self._waiting = self._waiting, []
        for i, program in enumerate(waiting):
            assert program.wait is not None
            if program.wait.ready is not None and not program.wait.ready():
                self._waiting.append(program)
                continue
            steps = program.steps
            try:
                self._switch_to(program)
            except BaseException:
                self._waiting += waiting[i + 1 :]
                raise
            moved |= program.dead or program.steps != steps
        return moved

    def _start(self, programs: Iterator[Program]) -> bool:
        """Start programs until one ends; whether there were any."""
        started = False
        # At most as many as wait already: looking through those between any two starts would be quadratic.
        for program in islice(programs, max(1, len(self._waiting))):
            started = True
            self._switch_to(program)
            if program.dead:
                break
        return started

    def _run_in_turns(self, programs: Iterator[Program], turns: Turns) -> None:
        fresh = next(programs, None)
        ended: list[Program] = []  # with operations that have not arrived
        while fresh is not None or self._waiting:
            self._check_world()
            _arrive_one([*self._waiting, *ended], turns, forced=False)
            program = None
            for i in turns.schedule.order(self._waiting, fresh is not None):
                if i < 0:
                    program, fresh = fresh, next(programs, None)
                    break
                if self._can_go_on(self._waiting[i], turns):
                    program = self._waiting.pop(i)
                    break
            if program is None:
                if not _arrive_one([*self._waiting, *ended], turns, forced=True):
                    self._let_others_go_on(turns)
                continue
            steps = program.steps
            self._switch_to(program)
            if program.dead or program.steps != steps:
                turns.step()
            else:  # it has only looked, which changes nothing for the others
                program.tried = turns.now
            if program.dead and program.outstanding:
                ended.append(program)
            if program.dead or program.wait is INTERRUPTED:
                # A program's last step may satisfy waits of others, so its end is a scheduling point, too.
                intentions = [other.intention for other in self._waiting if other.wait is INTERRUPTED]
                turns.offer(min(intentions, default=Access.WRITE))
        while _arrive_one(ended, turns, forced=True):
            self._check_world()

    @staticmethod
    def _can_go_on(program: Program, turns: Turns) -> bool:
        assert program.wait is not None
        return program.tried != turns.now if program.wait.ready is None else program.wait.ready()

    def record_waits(self) -> None:
        """Have the recorder note who waits for what."""
        assert self._world is not None and self._world.recorder is not None
        for program in self._waiting:
            self._world.recorder.stuck(program)

    def _let_others_go_on(self, turns: Turns) -> None:
        polls = any(program.wait is not None and program.wait.ready is None for program in self._waiting)
        try:
            turns.blocked(polls=polls)
        except DeadlockError as deadlock:
            if self._world is not None and self._world.checking is not None:
                self.record_waits()
                self._world.checking.give_up(first=deadlock.first)
            raise CannotGoOnError(f"no PE can go on: all wait for each other\n{self._report()}") from None
        except BrokenWorldError as error:
            raise BrokenWorldError(f"{error}\n{self._report()}") from None

    def _switch_to(self, program: Program) -> None:
        self._enter(program)
        program.limit = self._limit
        program.switch()
        self._waiting += program.started
        program.started = []
        if not program.dead:
            self._waiting.append(program)

    def _check_world(self) -> None:
        """A program that waits, though others here can go on, may wait for a PE that has failed."""
        if self._waiting and self._world is not None:
            trouble = self._world.trouble()
            if trouble is not None:
                raise BrokenWorldError(f"{trouble}\n{self._report()}")

    def _check_others(self, seconds: float) -> None:
        """CannotGoOnError if no program has gone on for so long, and all other PEs wait for this one or have left."""
        if seconds < _STUCK_SECONDS or self._world is None or self._world.n_pes == 1:
            return
        waits, left = self._world.waiting_for_this_pe(), self._world.pes_that_left()
        if len({*waits, *left}) < self._world.n_pes - 1:
            return
        reasons = [_all_left(left)] if left else []
        if waits:
            others = "all others" if left else "all other PEs"
            reasons.append(f"{others} wait for this one, " + ", ".join(f"PE {pe} in {waits[pe]}" for pe in waits))
        raise CannotGoOnError(f"no program can go on: {', and '.join(reasons)}\n{self._report()}")

    def _report(self) -> str:
        lines = [
            f"  {program} at {location.of_frame(program.gr_frame)} waits in {program.wait.describe()}"
            for program in self._waiting[:_LISTED]
            if program.wait is not None
        ]
        if len(self._waiting) > _LISTED:
            lines.append(f"  and {len(self._waiting) - _LISTED} programs more")
        return "\n".join(lines)


def _all_left(pes: list[int]) -> str:
    return f"PE {pes[0]} has left the world" if len(pes) == 1 else f"PEs {', '.join(map(str, pes))} have left the world"


def _arrive_one(programs: list[Program], turns: Turns, *, forced: bool) -> bool:
    """Have one outstanding operation of these arrive, which the schedule chooses, or none unless it is ``forced``;
    whether one has."""
    late = [(program.outstanding, count) for program in programs if (count := program.outstanding.n_next())]
    which = turns.schedule.arrival(sum(count for _, count in late), forced=forced) if late else None
    if which is None:
        return False
    for outstanding, count in late:
        if which < count:
            outstanding.arrive_one(which)
            break
        which -= count
    turns.step()
    turns.schedule.interrupts(Access.PUBLISH)  # who waits for it may resume before another one arrives
    turns.offer(Access.PUBLISH)
    return True
