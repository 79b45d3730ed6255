"""What happened before what: vector clocks of the programs of a run, and of the copies that they have started."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock"]


class Clock:
    """A set of events: of actor i those with numbers up to ``upto[i]``, and the single ones in ``also``.

    Actors are programs, host programs, and the copies that one program has started to one PE. The latter may become
    known out of order: a ``putmem_signal`` tells of its own data only.
    """

    __slots__ = ("also", "upto")

    def __init__(self, upto: NDArray[np.int32], also: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.upto = upto
        self.also = also

    @staticmethod
    def zero(actors: int) -> Clock:
        return Clock(np.zeros(actors, np.int32))

    def copy(self) -> Clock:
        return Clock(self.upto.copy(), self.also)

    def join(self, other: Clock) -> None:
        """Know what the other knows, too."""
        np.maximum(self.upto, other.upto, out=self.upto)
        if other.also:
            self.also |= other.also
        if self.also:
            self._tidy()

    def learn(self, actor: int, number: int) -> None:
        """Know the events of ``actor`` up to ``number``."""
        self.upto[actor] = max(self.upto[actor], number)
        if self.also:
            self._tidy()

    def learn_one(self, actor: int, number: int) -> None:
        self.also |= {(actor, number)}
        self._tidy()

    def knows(self, actor: int, number: int) -> bool:
        return bool(self.upto[actor] >= number) or (actor, number) in self.also

    def unknown(self, actors: NDArray[np.int32], numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these events it does not know; actor -1 is nobody, whose events everyone knows."""
        unknown = (actors >= 0) & (self.upto[actors] < numbers)
        if self.also and unknown.any():
            for actor, number in self.also:
                unknown &= (actors != actor) | (numbers != number)
        return unknown

    def _tidy(self) -> None:
        left = []
        for actor, number in sorted(self.also):
            if number == self.upto[actor] + 1:
                self.upto[actor] = number
            elif number > self.upto[actor]:
                left.append((actor, number))
        self.also = frozenset(left)
