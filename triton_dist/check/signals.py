"""Synchronisation words: the clocks that acquires of them obtain, and lost signals.

A wait succeeds only if it polls while the word has an accepted value. So an update that replaces an accepted value by
one that is not accepted conflicts with the wait, unless it is ordered after it. Two unordered updates conflict if a
wait accepts one of the two possible outcomes and not the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from triton_dist._C.op_table import Cmp
from triton_dist.check.clocks import Clock
from triton_dist.check.log import Flag
from triton_dist.check.run import Word
from triton_dist.comparisons import COMPARE

__all__ = ["OVERTAKES", "Condition", "Lost", "Signals", "Update"]

OVERTAKES = "what a program sends to another host arrives in any order unless a fence stands between"

_UPDATES = 16
"""Recent updates that are recorded for each word."""
_WAITS = 64
"""Recent waits that are recorded for each word."""
_CONDITIONS = 32
"""Different conditions that are recorded for each word."""


@dataclass(frozen=True)
class Condition:
    """The condition of a wait."""

    cmp: Cmp
    value: int
    bits: int
    signed: bool

    def accepts(self, value: int) -> bool:
        return COMPARE[self.cmp](self._number(value), self._number(self.value))

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
        """The word's value if this update and ``later``, the next one, swapped their order. None: the same value."""
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
    """A lost signal: two conflicting updates, or an update that conflicts with a wait."""

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
    """The clock for an acquire of the word, by the PE and the scope (whether it is one PE) of the release."""
    updates: deque[Update] = field(default_factory=lambda: deque(maxlen=_UPDATES))
    waits: deque[_Wait] = field(default_factory=lambda: deque(maxlen=_WAITS))


class Signals:
    """All words of a run."""

    def __init__(self) -> None:
        self._words: dict[Word, _Word] = defaultdict(_Word)
        self._conditions: dict[Word, dict[Condition, None]] = defaultdict(dict)
        self._suspects: list[tuple[Word, int, int, Lost]] = []

    def forget(self) -> Iterator[tuple[Word, Lost]]:
        """A global barrier: discard the past. Returns the conflicts between updates."""
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
        """The clocks that an acquire of ``word`` obtains."""
        if word in self._words:
            for (other, theirs), known in self._words[word].known.items():
                if other == pe or not (narrow or theirs):
                    yield known

    # ---- lost signals

    def waits(self, word: Word, actor: int, number: int, event: int, condition: Condition) -> None:
        self._words[word].waits.append(_Wait(actor, number, event, condition))
        if len(self._conditions[word]) < _CONDITIONS:
            self._conditions[word][condition] = None

    def update(self, word: Word, update: Update, clock: Clock) -> Iterator[Lost]:
        """Record ``update`` by a program with ``clock``. Returns its conflicts with waits."""
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
