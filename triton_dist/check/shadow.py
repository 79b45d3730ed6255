"""The last accesses to every piece of memory.

The pieces of a space are cut at all the places where some access begins or ends, so that each access covers whole
pieces and a tile of any size is a few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.clocks import Clock

__all__ = ["Conflict", "Shadow", "Who"]

_READERS = 64
"""Readers of one piece, unordered among each other, that are remembered; further ones are not looked at."""


@dataclass(frozen=True)
class Who:
    """One access: the ``number``-th event of an ``actor``, found again by ``event``."""

    actor: int
    number: int
    event: int
    how: int
    """0: plain; 1: atomic; 2: volatile."""


@dataclass(frozen=True)
class Conflict:
    """An earlier access that the clock of a later one does not know."""

    event: int
    wrote: bool
    begin: int
    end: int
    after_write: int
    """The event that had written what the earlier access, a read, read; -1: none."""


class _Layer:
    """For each piece one access."""

    def __init__(self, pieces: int) -> None:
        self.actor = np.full(pieces, -1, np.int32)
        self.number = np.zeros(pieces, np.int32)
        self.event = np.full(pieces, -1, np.int64)
        self.how = np.zeros(pieces, np.int8)

    def put(self, at: NDArray[np.int64], who: Who) -> None:
        self.actor[at], self.number[at], self.event[at], self.how[at] = who.actor, who.number, who.event, who.how

    def get(self, piece: int) -> Who:
        return Who(*(int(of[piece]) for of in (self.actor, self.number, self.event, self.how)))

    def unknown(self, at: NDArray[np.int64], clock: Clock) -> NDArray[np.bool_]:
        return clock.unknown(self.actor[at], self.number[at])

    def conflicting(self, at: NDArray[np.int64], clock: Clock, how: int) -> NDArray[np.int64]:
        """Those of the pieces whose access here is unknown to the clock of one that happens now."""
        at = at[self.unknown(at, clock)]
        theirs = self.how[at]
        # A volatile access says that others may come between; two atomic ones do not disturb each other.
        found: NDArray[np.int64] = at[~((theirs == 2) | (how == 2) | ((theirs == 1) & (how == 1)))]
        return found


class Shadow:
    """One space, of whose memory the pieces between ``bounds`` (ascending) are accessed."""

    def __init__(self, bounds: NDArray[np.int64]) -> None:
        self._bounds = bounds
        self._writes = _Layer(max(0, bounds.size - 1))
        self._reads: list[_Layer] = []

    @staticmethod
    def of(ranges: Sequence[tuple[Any, Any]]) -> Shadow:
        """For accesses to these ranges only."""
        return Shadow(np.unique(np.concatenate([np.asarray(bound, np.int64) for pair in ranges for bound in pair])))

    def read(self, begins: NDArray[np.int64], ends: NDArray[np.int64], who: Who, clock: Clock) -> list[Conflict]:
        """The access happens; the earlier ones that ``clock`` does not know."""
        at = self._pieces(begins, ends)
        conflicts = self._conflicts(self._writes, self._writes.conflicting(at, clock, who.how), wrote=True)
        left = at
        for i in range(_READERS):
            if i == len(self._reads):
                self._reads.append(_Layer(self._bounds.size - 1))
            layer = self._reads[i]
            # Whoever is ordered after this read is ordered after those it knows of, too. But a volatile read stands for
            # no other.
            free = (layer.actor[left] < 0) | (~layer.unknown(left, clock) & (layer.how[left] >= who.how))
            layer.put(left[free], who)
            left = left[~free]
            if not left.size:
                break
        return conflicts

    def unknown_writes(self, begins: NDArray[np.int64], ends: NDArray[np.int64], clock: Clock) -> list[Who]:
        """The last writes to these ranges that ``clock`` does not know."""
        at = self._pieces(begins, ends)
        at = at[self._writes.unknown(at, clock)]
        _, first = np.unique(self._writes.event[at], return_index=True)
        return [self._writes.get(piece) for piece in at[first]]

    def write(self, begins: NDArray[np.int64], ends: NDArray[np.int64], who: Who, clock: Clock) -> list[Conflict]:
        """As :meth:`read`. Who has seen a write with a volatile read, and writes itself, comes after it: accesses to
        one place have an order."""
        at = self._pieces(begins, ends)
        overwritten = self._writes.conflicting(at, clock, who.how)
        conflicts = self._conflicts(self._writes, overwritten[~self._seen(overwritten, clock)], wrote=True)
        for layer in self._reads:
            conflicts += self._conflicts(layer, layer.conflicting(at, clock, who.how), wrote=False)
            layer.actor[at] = -1
        self._writes.put(at, who)
        return conflicts

    def _seen(self, at: NDArray[np.int64], clock: Clock) -> NDArray[np.bool_]:
        """Of which pieces ``clock`` knows a volatile read that came after the last write."""
        seen = np.zeros(at.size, np.bool_)
        for layer in self._reads:
            seen |= (layer.actor[at] >= 0) & (layer.how[at] == 2) & ~layer.unknown(at, clock)
        return seen

    def _conflicts(self, layer: _Layer, bad: NDArray[np.int64], wrote: bool) -> list[Conflict]:
        """One of each event, for these pieces."""
        found = []
        for event in np.unique(layer.event[bad]):
            piece = int(bad[layer.event[bad] == event][0])
            begin, end = int(self._bounds[piece]), int(self._bounds[piece + 1])
            found.append(Conflict(int(event), wrote, begin, end, int(self._writes.event[piece])))
        return found

    def _pieces(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        first: NDArray[np.int64] = np.searchsorted(self._bounds, begins)
        last: NDArray[np.int64] = np.searchsorted(self._bounds, ends)
        counts = last - first
        if (counts == 1).all():
            return first
        pieces: NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return pieces
