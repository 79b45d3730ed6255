"""Words that programs are ordered by: what those know who acquire them, and updates that a wait may never see.

A wait for a value depends on the value being there when it looks. So an update conflicts with a wait that nothing
orders it behind, if it replaces a value that the wait would take by one that it would not; and two updates that nothing
orders conflict, if a wait tells the two outcomes apart.
"""

from __future__ import annotations

import operator
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from triton_dist.check.clocks import Clock
from triton_dist.check.log import Cmp, Flag
from triton_dist.check.run import Word

__all__ = ["Condition", "Lost", "Signals", "Update"]

_UPDATES = 16
"""The last ones of a word that are remembered,"""
_WAITS = 64
"""and waits,"""
_CONDITIONS = 32
"""and what is ever waited for."""

_COMPARE = {
    Cmp.EQ: operator.eq,
    Cmp.NE: operator.ne,
    Cmp.GT: operator.gt,
    Cmp.GE: operator.ge,
    Cmp.LT: operator.lt,
    Cmp.LE: operator.le,
}


@dataclass(frozen=True)
class Condition:
    """What a wait waits for."""

    cmp: Cmp
    value: int
    bits: int
    signed: bool

    def accepts(self, value: int) -> bool:
        return bool(_COMPARE[self.cmp](self._number(value), self._number(self.value)))

    def _number(self, bits: int) -> int:
        bits %= 1 << self.bits
        return bits - (1 << self.bits) if self.signed and bits >> (self.bits - 1) else bits


@dataclass(frozen=True)
class Update:
    """The ``number``-th event of an ``actor`` changes a word from ``before`` to ``after``."""

    actor: int
    number: int
    event: int
    before: int
    after: int
    flags: int

    def outcome_if_first(self, later: Update) -> int | None:
        """What the word would be had this update come right behind ``later``, which came behind it; None: as it is."""
        sets, adds = self.flags & Flag.SETS, self.flags & Flag.ADDS
        if sets and later.flags & Flag.SETS:
            return self.after
        if sets and later.flags & Flag.ADDS:
            return self.after
        if adds and later.flags & Flag.SETS:
            return later.after + self.after - self.before
        return None


@dataclass(frozen=True)
class Lost:
    """An update that a wait may miss: two updates, or an update and a wait that it comes upon."""

    event: int
    other: int
    other_waits: bool


@dataclass(frozen=True)
class _Wait:
    actor: int
    number: int
    event: int
    condition: Condition


@dataclass
class _Word:
    known: dict[tuple[int, bool], Clock] = field(default_factory=dict)
    """To those who acquire it: by PE and scope (whether it is one PE) of those who released it."""
    updates: deque[Update] = field(default_factory=lambda: deque(maxlen=_UPDATES))
    waits: deque[_Wait] = field(default_factory=lambda: deque(maxlen=_WAITS))


class Signals:
    """All words of a run."""

    def __init__(self) -> None:
        self._words: dict[Word, _Word] = defaultdict(_Word)
        self._conditions: dict[Word, dict[Condition, None]] = defaultdict(dict)
        self._suspects: list[tuple[Word, int, int, Lost]] = []

    def forget(self) -> Iterator[tuple[Word, Lost]]:
        """All that happened so far is known to all that follows. The updates that may be lost for another's sake."""
        yield from self._lost_for_another()
        self._words.clear()
        self._suspects.clear()

    # ---- order

    def release(self, word: Word, pe: int, narrow: bool, clock: Clock, sets: bool) -> None:
        state = self._words[word]
        if sets:
            state.known.clear()
        if (pe, narrow) in state.known:
            state.known[pe, narrow].join(clock)
        else:
            state.known[pe, narrow] = clock.copy()

    def acquire(self, word: Word, pe: int, narrow: bool) -> Iterator[Clock]:
        """What becomes known."""
        if word in self._words:
            for (other, theirs), known in self._words[word].known.items():
                if other == pe or not (narrow or theirs):
                    yield known

    # ---- what is lost

    def waits(self, word: Word, actor: int, number: int, event: int, condition: Condition) -> None:
        self._words[word].waits.append(_Wait(actor, number, event, condition))
        if len(self._conditions[word]) < _CONDITIONS:
            self._conditions[word][condition] = None

    def update(self, word: Word, update: Update, clock: Clock) -> Iterator[Lost]:
        """It happens now, and ``clock`` is what its program knows. The waits that it may have come too early for."""
        state = self._words[word]
        for wait in state.waits:
            takes = wait.condition.accepts
            if takes(update.before) and not takes(update.after) and not clock.knows(wait.actor, wait.number):
                yield Lost(update.event, wait.event, True)
        for earlier in state.updates:
            if not clock.knows(earlier.actor, earlier.number) and len(self._suspects) < 1 << 12:
                outcome = earlier.outcome_if_first(update)
                if outcome is not None and outcome != update.after:
                    lost = Lost(update.event, earlier.event, False)
                    self._suspects.append((word, update.after, outcome, lost))
        state.updates.append(update)

    def _lost_for_another(self) -> Iterator[tuple[Word, Lost]]:
        for word, one, other, lost in self._suspects:
            if any(condition.accepts(one) != condition.accepts(other) for condition in self._conditions[word]):
                yield word, lost
