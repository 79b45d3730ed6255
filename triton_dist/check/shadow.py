"""The last accesses to every piece of memory.

The pieces of a space are cut at all the places where some access begins or ends, so that each access covers whole
pieces and a tile of any size is a few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.clocks import Clock

__all__ = ["ATOMIC", "ELEMENT", "PLAIN", "VOLATILE", "Conflict", "Shadow", "Who", "was_among"]

PLAIN, ELEMENT, ATOMIC, VOLATILE = range(4)
"""How memory is accessed. ``ELEMENT``: a put or get of one element, which is never seen in parts and has no order."""

_READERS = 64
"""Readers of one piece, unordered among each other, that are remembered; further ones are not looked at."""

Pieces = NDArray[np.int64]


@dataclass(frozen=True)
class Who:
    """One access: the ``number``-th event of an ``actor``, found again by ``event``."""

    actor: int
    number: int
    event: int
    how: int
    """``PLAIN``, ``ELEMENT``, ``ATOMIC`` or ``VOLATILE``."""
    waits: int = 0
    """The number of its program's waits and polls before it."""


@dataclass(frozen=True)
class Conflict:
    """An earlier access that the clock of a later one does not know."""

    event: int
    how: int
    wrote: bool
    begin: int
    end: int
    after_write: int
    """The event that had written what the earlier access, a read, read; -1: none."""
    reread: bool
    """The earlier access is a repeated read of the same write by its program, with a wait in between."""
    before: tuple[int, int, int]
    """Actor, number and event of the write before the earlier access, a write; actor -1: none."""
    readers: int
    """The readers of that write: a bit for each actor's number modulo 64."""


class _Layer:
    """For each piece one access."""

    def __init__(self, pieces: int) -> None:
        self.actor = np.full(pieces, -1, np.int32)
        self.number = np.zeros(pieces, np.int32)
        self.event = np.full(pieces, -1, np.int64)
        self.how = np.zeros(pieces, np.int8)
        self.first = np.zeros(pieces, np.int32)
        """For its program's reads of the current write: the number of waits before the first read,"""
        self.waits = np.zeros(pieces, np.int32)
        """and before the last read."""

    def put(self, at: Pieces, who: Who) -> None:
        first = np.where(self.actor[at] == who.actor, self.first[at], who.waits)
        self.actor[at], self.number[at], self.event[at], self.how[at] = who.actor, who.number, who.event, who.how
        self.first[at], self.waits[at] = first, who.waits

    def unknown(self, at: Pieces, clock: Clock) -> NDArray[np.bool_]:
        return clock.unknown(self.actor[at], self.number[at])

    def conflicting(self, at: Pieces, clock: Clock, how: int) -> Pieces:
        """Those of the pieces whose access here is unknown to the clock of one that happens now."""
        at = at[self.unknown(at, clock)]
        if not at.size:
            return at
        theirs = self.how[at]
        # A volatile access says that others may come between; atomic ones do not disturb each other, nor single
        # elements. But two elements have no order, and of two that are put either may stay.
        are_whole = (theirs >= ELEMENT) & (how >= ELEMENT) & ((theirs != ELEMENT) | (how != ELEMENT))
        found: Pieces = at[~((theirs == VOLATILE) | (how == VOLATILE) | are_whole)]
        return found


class Shadow:
    """One space, of whose memory the pieces between ``bounds`` (ascending) are accessed."""

    def __init__(self, bounds: NDArray[np.int64]) -> None:
        self._bounds = bounds
        self._clear()

    def _clear(self) -> None:
        pieces = max(0, self._bounds.size - 1)
        self._writes = _Layer(pieces)
        self._before = tuple(np.full(pieces, -1, dtype) for dtype in (np.int32, np.int32, np.int64))
        self._readers = np.zeros((2, pieces), np.uint64)
        self._reads: list[_Layer] = []
        self._fresh = True

    def forget(self) -> None:
        """A global barrier: discard all accesses."""
        if not self._fresh:
            self._clear()

    def pieces(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Pieces:
        """The pieces of these ranges. Each range begins and ends at a bound."""
        first: Pieces = np.searchsorted(self._bounds, begins)
        last: Pieces = np.searchsorted(self._bounds, ends)
        counts = last - first
        if (counts == 1).all():
            return first
        pieces: Pieces = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return pieces

    def span(self, at: Pieces) -> tuple[int, int]:
        """Where pieces begin and end."""
        return int(self._bounds[at.min()]), int(self._bounds[at.max() + 1])

    def read(self, at: Pieces, who: Who, clock: Clock) -> list[Conflict]:
        """The access happens; the earlier ones that ``clock`` does not know."""
        self._fresh = False
        conflicts = self._conflicts(self._writes, self._writes.conflicting(at, clock, who.how), wrote=True)
        self._readers[0][at] |= _bit(who.actor)
        left = at
        for i in range(_READERS):
            if i == len(self._reads):
                self._reads.append(_Layer(self._bounds.size - 1))
            layer = self._reads[i]
            # An access that is ordered after this read is ordered after those it knows of, too. But a volatile read
            # stands for no other.
            free = (layer.actor[left] < 0) | (~layer.unknown(left, clock) & (layer.how[left] >= who.how))
            if free.all():
                layer.put(left, who)
                break
            layer.put(left[free], who)
            left = left[~free]
        return conflicts

    def unknown_writes(self, at: Pieces, clock: Clock) -> list[tuple[int, int, int]]:
        """The last writes at ``at`` that ``clock`` does not include: actor, number and event of each."""
        at = at[self._writes.unknown(at, clock)]
        if not at.size:
            return []
        _, first = np.unique(self._writes.event[at], return_index=True)
        of = self._writes
        return [(int(of.actor[i]), int(of.number[i]), int(of.event[i])) for i in at[first]]

    def write(self, at: Pieces, who: Who, clock: Clock) -> list[Conflict]:
        """As :meth:`read`. Who has seen a write with a volatile read, and writes itself, comes after it: accesses to
        one place have an order."""
        self._fresh = False
        overwritten = self._writes.conflicting(at, clock, who.how)
        if overwritten.size:
            overwritten = overwritten[~self._seen(overwritten, clock)]
        conflicts = self._conflicts(self._writes, overwritten, wrote=True)
        for layer in self._reads:
            conflicts += self._conflicts(layer, layer.conflicting(at, clock, who.how), wrote=False)
            layer.actor[at] = -1
        last = self._writes
        self._before[0][at], self._before[1][at], self._before[2][at] = last.actor[at], last.number[at], last.event[at]
        self._readers[1][at] = self._readers[0][at]
        self._readers[0][at] = 0
        self._writes.put(at, who)
        return conflicts

    def _seen(self, at: Pieces, clock: Clock) -> NDArray[np.bool_]:
        """Of which pieces ``clock`` knows a volatile read that came after the last write."""
        seen = np.zeros(at.size, np.bool_)
        for layer in self._reads:
            seen |= (layer.actor[at] >= 0) & (layer.how[at] == VOLATILE) & ~layer.unknown(at, clock)
        return seen

    def _conflicts(self, layer: _Layer, bad: Pieces, wrote: bool) -> list[Conflict]:
        """One of each event, for these pieces."""
        if not bad.size:
            return []
        found = []
        events, first = np.unique(layer.event[bad], return_index=True)
        for event, piece in zip(events.tolist(), bad[first].tolist(), strict=True):
            found.append(
                Conflict(
                    event,
                    int(layer.how[piece]),
                    wrote,
                    int(self._bounds[piece]),
                    int(self._bounds[piece + 1]),
                    int(self._writes.event[piece]),
                    bool(layer.first[piece] < layer.waits[piece]),
                    (int(self._before[0][piece]), int(self._before[1][piece]), int(self._before[2][piece])),
                    int(self._readers[1][piece]),
                )
            )
        return found


def _bit(actor: int) -> np.uint64:
    return np.uint64(1 << actor % 64)


def was_among(readers: int, actor: int) -> bool:
    """Whether ``Conflict.readers`` may have ``actor``."""
    return bool(readers >> actor % 64 & 1)
