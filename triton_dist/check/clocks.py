"""What happened before what: vector clocks of the programs of a run, and of the copies that they have started."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock"]

_PAGE = 64
"""Actors on one page of a clock."""
_SINGLES = 64
"""Out-of-order events of one actor that a clock holds; beyond that it includes the earlier events."""

_EMPTY = np.zeros(_PAGE, np.int32)
_EMPTY.setflags(write=False)

_Single = tuple[int, int]


class Clock:
    """A set of events: of each actor those up to some number, and some single ones.

    Actors are programs, host programs, and the copies that one program has started to one PE. The latter may become
    known out of order: a ``putmem_signal`` tells of its own data only.

    Numbers lie on pages that are never written once made, so that clocks share most of what they know: a copy costs a
    reference for each page, and joining two looks at the pages that differ.
    """

    __slots__ = ("_pages", "_singles")

    def __init__(self) -> None:
        self._pages: list[NDArray[np.int32]] = []
        self._singles: frozenset[_Single] = frozenset()

    def copy(self) -> Clock:
        clock = Clock()
        clock._pages = self._pages.copy()
        clock._singles = self._singles
        return clock

    def of(self, actor: int) -> int:
        """The number up to which events of ``actor`` are known."""
        page, at = divmod(actor, _PAGE)
        return int(self._pages[page][at]) if page < len(self._pages) else 0

    def join(self, other: Clock) -> None:
        """Know what the other knows, too."""
        mine, theirs = self._pages, other._pages
        for i, page in enumerate(theirs):
            if i >= len(mine):
                mine.extend(theirs[i:])
                break
            if mine[i] is not page:
                joined = np.maximum(mine[i], page)
                # Equal pages are shared, which saves memory and later comparisons.
                if np.array_equal(joined, page):
                    mine[i] = page
                elif not np.array_equal(joined, mine[i]):
                    mine[i] = joined
        if other._singles and other._singles is not self._singles:
            self._singles |= other._singles
        if self._singles:
            self._tidy()

    def learn(self, actor: int, number: int) -> None:
        """Know the events of ``actor`` up to ``number``."""
        page, at = divmod(actor, _PAGE)
        while page >= len(self._pages):
            self._pages.append(_EMPTY)
        if self._pages[page][at] < number:
            changed = self._pages[page].copy()
            changed[at] = number
            self._pages[page] = changed
            if self._singles:
                self._tidy()

    def learn_one(self, actor: int, number: int) -> None:
        """Know this event of ``actor``, and not those before it."""
        known = self.of(actor)
        if number == known + 1:
            self.learn(actor, number)
        elif number > known:
            self._singles |= {(actor, number)}
            self._tidy()

    def knows(self, actor: int, number: int) -> bool:
        return self.of(actor) >= number or (actor, number) in self._singles

    def unknown(self, actors: NDArray[np.int32], numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these events it does not know; actor -1 is none, whose events all know."""
        if actors.size == 1:
            actor = int(actors[0])
            return np.array([actor >= 0 and not self.knows(actor, int(numbers[0]))])
        unknown = (actors >= 0) & (self._of_many(actors) < numbers)
        if self._singles and unknown.any():
            for actor, number in self._singles:
                unknown &= (actors != actor) | (numbers != number)
        return unknown

    def _of_many(self, actors: NDArray[np.int32]) -> NDArray[np.int32]:
        """:meth:`of` each of these; anything for -1."""
        pages = actors // _PAGE
        last = int(pages.max(initial=0))
        if last < len(self._pages) and bool(((pages == last) | (pages < 0)).all()):
            return self._pages[last][actors % _PAGE]
        numbers = np.zeros(actors.size, np.int32)
        for page in np.unique(pages[(pages >= 0) & (pages < len(self._pages))]).tolist():
            at = pages == page
            numbers[at] = self._pages[page][actors[at] % _PAGE]
        return numbers

    def _tidy(self) -> None:
        """Merge single events that directly follow the known ones, and bound the others for each actor."""
        by_actor: dict[int, list[int]] = {}
        for actor, number in sorted(self._singles):
            by_actor.setdefault(actor, []).append(number)
        self._singles = frozenset()
        left = []
        for actor, numbers in by_actor.items():
            known = max(self.of(actor), numbers[-_SINGLES - 1] if len(numbers) > _SINGLES else 0)
            for number in numbers:
                if number == known + 1:
                    known = number
            self.learn(actor, known)
            left += [(actor, number) for number in numbers if number > known]
        self._singles = frozenset(left)
