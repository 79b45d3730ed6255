"""Who does something: programs and hosts, the copies that they have under way, and the clocks of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from triton_dist.check.clocks import Clock
from triton_dist.check.run import Word

__all__ = ["GETS", "Actors", "Past", "Thread"]

GETS = -(1 << 30)
"""In place of the PE that puts go to: the program's non-blocking gets."""

_FENCES = 64
"""Of a program, that are remembered; what it stored before the first of them is taken to come after it."""


class Actors:
    """Numbers of actors, whose events form a chain each: what comes later knows what came before.

    The programs of a launch all come before those of the next launch of their PE, which therefore take their places;
    else clocks would grow with every launch.
    """

    def __init__(self) -> None:
        self._last: list[int] = []
        self._free: dict[int, list[int]] = defaultdict(list)

    def take(self, pe: int) -> tuple[int, int]:
        """An actor for something on ``pe``, and the number of its last event."""
        if not self._free[pe]:
            self._last.append(0)
            return len(self._last) - 1, 0
        actor = self._free[pe].pop()
        return actor, self._last[actor]

    def give(self, pe: int, actor: int, last: int) -> None:
        """All that happens on ``pe`` from now on knows the actor's events, of which the ``last`` has this number."""
        self._last[actor] = last
        self._free[pe].append(actor)


@dataclass(frozen=True)
class _Fence:
    first: int
    """The number of the program's first event behind it."""
    clock: Clock
    """What it knew."""
    puts: dict[int, tuple[int, int]]
    """By target PE: the actor of its puts there, and how many of them come before what it does from then on."""

    def known_on(self, pe: int) -> Clock:
        """What somebody knows who has seen an update on ``pe`` that came behind the fence."""
        if pe not in self.puts:
            return self.clock
        clock = self.clock.copy()
        clock.learn(*self.puts[pe])
        return clock


@dataclass
class Past:
    """What is still asked about a program when it has ended."""

    fences: list[_Fence]
    narrow: bool = False
    """Whether it has used atomics that order the programs of one PE only."""
    polled: bool = False
    put_flag: bool = False
    """Whether it has used ``p``, which orders nothing, and not called ``fence`` before."""

    def known_at_fence(self, number: int, pe: int) -> Clock:
        """What it knew at the last fence before its event of this number, as an update on ``pe`` tells of it."""
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
    """By target PE (or ``GETS``): the actor of the copies it has started there."""
    issued: dict[int, int] = field(default_factory=dict)
    """By actor: the number of the last one."""
    fenced: dict[int, int] = field(default_factory=dict)
    """By actor: the last one that comes before its next update of that PE."""
    fence_at: dict[int | None, _Fence] = field(default_factory=dict)
    """Its last fence, for one PE or for all."""
    rounds: dict[Any, int] = field(default_factory=dict)
    """By the PEs of a barrier: which one it has come to."""
    seen: Clock | None = None
    """What it will know, through its volatile and relaxed reads, after its next fence."""
    released: list[Word] = field(default_factory=list)
    """By the atomic that it is about to end."""
    waits: int = 0
    """How often it has looked whether something has come."""

    def publish(self, pe: int) -> Clock:
        """What somebody knows who acquires an update that this program makes on ``pe`` with release."""
        clock = self.clock.copy()
        actor = self.copies.get(pe)
        if actor is not None:
            clock.learn(actor, self.fenced.get(actor, 0))
        return clock

    def publish_relaxed(self, pe: int) -> Clock:
        """The same of an update that is ordered by fences only."""
        fence = self.fence_at.get(pe) or self.fence_at.get(None)
        return Clock() if fence is None else fence.known_on(pe).copy()

    def see(self, clock: Clock) -> None:
        """Something was read of somebody who knew this, without acquiring it."""
        if self.seen is None:
            self.seen = clock.copy()
        else:
            self.seen.join(clock)

    def acquire_seen(self) -> None:
        if self.seen is not None:
            self.clock.join(self.seen)
            self.seen = None

    def fence(self, pe: int | None = None) -> None:
        """Its updates, of ``pe`` or of all (None), from now on come behind what it has done."""
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
        """What follows is no part of what was published."""
        self.now += 1
        self.clock.learn(self.actor, self.now)
