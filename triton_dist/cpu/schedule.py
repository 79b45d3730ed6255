"""Who goes on next (``TRITON_DIST_SCHEDULE``): which program of this PE's grid, and which PE.

A schedule decides by what it has decided before, and by nothing else, so that the same run comes again. It is asked
where a program may be interrupted: before it touches symmetric memory.
"""

from __future__ import annotations

import enum
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = ["Access", "Schedule", "of"]

_STARTED = 64
"""How many programs of a grid may be under way before one that can go on is preferred to a new one."""


class Access(enum.IntEnum):
    """What a program is about to do. The larger, the later an adversary would have it happen."""

    NOTHING = 0
    WRITE = 1
    READ = 2
    PUBLISH = 3
    """A signal, an atomic, a barrier: what others may wait for."""


class Startable(Protocol):
    """A started program, as far as a schedule looks at it."""

    intention: Access


class Schedule(ABC):
    """The decisions of one PE."""

    delays_puts = False
    """Whether puts arrive as late as they may."""

    @abstractmethod
    def interrupts(self, access: Access) -> bool:
        """Whether a program that is about to do this lets others go first."""

    @abstractmethod
    def order(self, started: Sequence[Startable], more: bool) -> Iterable[int]:
        """Indices of ``started`` in the order of preference; -1 means to start a new one, if there are ``more``."""

    def arrival(self, count: int, *, forced: bool) -> int | None:
        """Which of ``count`` operations in flight, the youngest last, arrives before a program goes on; None: none yet.
        ``forced``: no program can go on without."""
        return count - 1 if forced else None

    @abstractmethod
    def stays(self, intention: Access, others: Sequence[Access]) -> bool:
        """Whether this PE keeps its turn, whose best program intends ``intention``; so do those of ``others``."""

    @abstractmethod
    def next_pe(self, candidates: Sequence[int], intentions: Sequence[Access], pe: int) -> int:
        """One of ``candidates`` (not empty, ascending), whose programs have these intentions; ``pe`` has the turn."""


class RoundRobin(Schedule):
    """One after the other, each as far as it gets.

    Not for ever, though: a program that looks into memory again and again may wait for another PE.
    """

    _QUANTUM = 256

    def __init__(self) -> None:
        self._accesses = 0
        self._interrupted = False

    def interrupts(self, access: Access) -> bool:
        self._accesses += 1
        self._interrupted = self._accesses % self._QUANTUM == 0
        return self._interrupted

    def order(self, started: Sequence[Startable], more: bool) -> Iterable[int]:
        yield from range(len(started))
        if more:
            yield -1

    def stays(self, intention: Access, others: Sequence[Access]) -> bool:
        interrupted, self._interrupted = self._interrupted, False
        return not interrupted

    def next_pe(self, candidates: Sequence[int], intentions: Sequence[Access], pe: int) -> int:
        return next((candidate for candidate in candidates if candidate > pe), candidates[0])


class Eager(RoundRobin):
    """A program whose wait is satisfied resumes at once, before other programs run.

    So a wait ends as early as possible. This shows waits for too few updates, or for a value that was there before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._published = False

    def interrupts(self, access: Access) -> bool:
        published, self._published = self._published, access is Access.PUBLISH
        # It is preempted at each access, too, since it may poll memory.
        self._interrupted = super().interrupts(access) or published
        return self._interrupted

    def stays(self, intention: Access, others: Sequence[Access]) -> bool:
        return super().stays(intention, others) and not self._ended()

    def _ended(self) -> bool:
        """Whether the last step was a release, such as the end of a program."""
        published, self._published = self._published, False
        return published


class Random(Schedule):
    """Any of those that can go on, as a seed has it."""

    def __init__(self, seed: int, pe: int) -> None:
        self._dice = random.Random(f"{seed}/{pe}")

    def interrupts(self, access: Access) -> bool:
        return self._dice.random() < 0.5

    def order(self, started: Sequence[Startable], more: bool) -> Iterable[int]:
        choices = [*range(len(started)), *([-1] if more else [])]
        self._dice.shuffle(choices)
        if len(started) >= _STARTED:
            choices.sort(key=lambda choice: choice < 0)
        return choices

    def arrival(self, count: int, *, forced: bool) -> int | None:
        return self._dice.randrange(count) if forced or self._dice.random() < 0.25 else None

    def stays(self, intention: Access, others: Sequence[Access]) -> bool:
        return self._dice.random() < 0.5

    def next_pe(self, candidates: Sequence[int], intentions: Sequence[Access], pe: int) -> int:
        return self._dice.choice(candidates)


class Adversarial(Schedule):
    """What others wait for comes last, reads wait for what they should not see, and puts arrive as late as they may."""

    delays_puts = True

    _PATIENCE = 256
    """Every so many decisions the one who waits longest goes on: others may look for it in a loop."""

    def __init__(self) -> None:
        self._decisions = 0
        self._merciful = False

    def interrupts(self, access: Access) -> bool:
        return access >= Access.READ

    def order(self, started: Sequence[Startable], more: bool) -> Iterable[int]:
        self._decisions += 1
        self._merciful = self._decisions % self._PATIENCE == 0
        if self._merciful:
            return [*range(len(started)), -1] if more else range(len(started))
        # Later programs first among equals: most kernels are written with the other order in mind.
        ranks = [(program.intention, -i, i) for i, program in enumerate(started)]
        if more:
            ranks.append((Access.WRITE if len(started) < _STARTED else max(Access), 1, -1))
        return [i for _, _, i in sorted(ranks)]

    def stays(self, intention: Access, others: Sequence[Access]) -> bool:
        return not self._merciful and (not others or intention <= min(others))

    def next_pe(self, candidates: Sequence[int], intentions: Sequence[Access], pe: int) -> int:
        if self._merciful:
            return next((candidate for candidate in candidates if candidate > pe), candidates[0])
        return min(zip(intentions, [-candidate for candidate in candidates], candidates, strict=True))[2]


def of(text: str, pe: int) -> Schedule:
    """The schedule that ``TRITON_DIST_SCHEDULE`` names, for PE ``pe``."""
    name, _, seed = text.partition(":")
    if name == "random":
        return Random(int(seed), pe)
    return {"adversarial": Adversarial, "eager": Eager}.get(name, RoundRobin)()
