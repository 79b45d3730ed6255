"""Actors of a run: programs, hosts and their copies in flight, and the vector clock of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from triton_dist.check.clocks import Clock
from triton_dist.check.run import Word

__all__ = ["BY_TMA", "GETS", "Actors", "Past", "Thread"]

GETS = -(1 << 30)
"""Used instead of a put's target PE for the program's non-blocking gets."""

BY_TMA = GETS + 1
"""The same for its stores by TMA, to whichever PE."""

_FENCES = 64
"""Fences that are recorded for each program. Stores before the first of them count as stores after it."""


class Actors:
    """Numbers for actors. The events of an actor are totally ordered.

    All programs of a launch precede those of the next launch on their PE. So numbers are reused from launch to launch,
    which bounds the size of clocks.
    """

    def __init__(self) -> None:
        self._last: list[int] = []
        self._free: dict[int, list[int]] = defaultdict(list)

    def take(self, pe: int) -> tuple[int, int]:
        """A free actor for ``pe``, and the number of its last event."""
        if not self._free[pe]:
            self._last.append(0)
            return len(self._last) - 1, 0
        actor = self._free[pe].pop()
        return actor, self._last[actor]

    def give(self, pe: int, actor: int, last: int) -> None:
        """Free an actor. Everything on ``pe`` from now on is ordered after its events, up to number ``last``."""
        self._last[actor] = last
        self._free[pe].append(actor)


@dataclass(frozen=True)
class _Fence:
    first: int
    """The number of the program's first event after the fence."""
    clock: Clock
    """The program's clock at the fence."""
    puts: dict[int, tuple[int, int]]
    """By target PE: the actor of its puts to that PE, and how many of them are ordered by the fence."""

    def known_on(self, pe: int) -> Clock:
        """The clock that an update on ``pe`` after the fence carries."""
        if pe not in self.puts:
            return self.clock
        clock = self.clock.copy()
        clock.learn(*self.puts[pe])
        return clock


@dataclass
class Past:
    """The part of a program's state that is needed after its end."""

    fences: list[_Fence]
    narrow: bool = False
    """Whether it has used atomics of a scope that orders only the programs of one PE."""
    polled: bool = False
    put_flag: bool = False
    """Whether it has called ``p``, which orders nothing, without a ``fence`` before."""

    def known_at_fence(self, number: int, pe: int) -> Clock:
        """The clock that an update on ``pe`` carries whose last fence precedes event ``number``."""
        fences = self.fences
        return next((fence for fence in reversed(fences) if fence.first <= number), fences[0]).known_on(pe)


@dataclass
class Thread:
    """A program, or a PE's host code."""

    actor: int
    now: int
    clock: Clock
    past: Past
    copies: dict[int, int] = field(default_factory=dict)
    """By target PE (or ``GETS``): the actor of its copies to that PE."""
    issued: dict[int, int] = field(default_factory=dict)
    """By actor: the number of the last copy."""
    fenced: dict[int, int] = field(default_factory=dict)
    """By actor: the last copy that is ordered before the program's next update on that PE."""
    fence_at: dict[int | None, _Fence] = field(default_factory=dict)
    """Its last fence, for one PE or for all."""
    rounds: dict[Any, int] = field(default_factory=dict)
    """By the PEs of a barrier: how many it has entered."""
    seen: Clock | None = None
    """The clock of its volatile and relaxed reads, which its next fence acquires."""
    released: list[Word] = field(default_factory=list)
    """The words that the current atomic has released."""
    waits: int = 0
    """The number of its waits and polls."""
    for_tma: Clock | None = None
    """What is ordered before its copies by TMA; None in a run without any."""

    def complete_tma_stores(self) -> None:
        if (actor := self.copies.get(BY_TMA)) is not None:
            self.clock.learn(actor, self.issued[actor])

    def fence_for_tma(self) -> None:
        """Order what is ordered before its ordinary accesses before its copies by TMA, too."""
        if self.for_tma is not None:
            self.for_tma = self.clock.copy()
            self.go_on()  # its own accesses from now on are not fenced

    def publish(self, pe: int) -> Clock:
        """The clock that a release update of this program on ``pe`` carries."""
        clock = self.clock.copy()
        actor = self.copies.get(pe)
        if actor is not None:
            clock.learn(actor, self.fenced.get(actor, 0))
        return clock

    def publish_relaxed(self, pe: int) -> Clock:
        """The clock that a relaxed update carries, which only fences order."""
        fence = self.fence_at.get(pe) or self.fence_at.get(None)
        return Clock() if fence is None else fence.known_on(pe).copy()

    def see(self, clock: Clock) -> None:
        """A relaxed read saw an update that carries ``clock``."""
        if self.seen is None:
            self.seen = clock.copy()
        else:
            self.seen.join(clock)

    def acquire_seen(self) -> None:
        if self.seen is not None:
            self.clock.join(self.seen)
            self.seen = None

    def fence(self, pe: int | None = None) -> None:
        """Order its earlier accesses before its later updates on ``pe``, or on all PEs (None)."""
        puts = {to: (actor, self.fenced[actor]) for to, actor in self.copies.items() if actor in self.fenced}
        fence = _Fence(self.now + 1, self.clock.copy(), puts)
        if pe is None:
            self.fence_at = {None: fence}
            self.past.fences.append(fence)
            del self.past.fences[:-_FENCES]
        else:
            self.fence_at[pe] = fence
        self.go_on()

    def go_on(self) -> None:
        """Start a new event. Clocks that were released before do not include it."""
        self.now += 1
        self.clock.learn(self.actor, self.now)
