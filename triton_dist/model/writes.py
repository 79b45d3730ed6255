"""Who wrote what last: which steps a wait of a log was for.

A wait that is an op has the values of its words in the log, so it was for the first update since which each word has
satisfied it. A loop that polls memory leaves looks without values, of which only the last one counts. The PE that it
waits for may have gone on, and updated a place a second time, before that look: the wait was for the first of its two
last updates that no earlier wait was for, or for the last, if updates add up. (A PE that is two updates ahead has heard
that the wait has ended.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.log import HOST
from triton_dist.check.run import Run, Word
from triton_dist.model.nodes import Action, Node, owner

__all__ = ["Writes"]


class Writes:
    """The last step that wrote each piece of the heaps, and each word of other memory that atomics have changed."""

    def __init__(self, run: Run, more: Iterable[tuple[int, NDArray[np.int64]]] = ()) -> None:
        """``more``: where pieces begin or end besides, by space."""
        self.nodes: list[Node] = []
        self._numbers: dict[int, int] = {}
        self._bounds = run.bounds()
        others: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
        for space, bounds in more:
            others[space].append(bounds)
        for space, found in others.items():
            known = self._bounds.get(space, np.empty(0, np.int64))
            self._bounds[space] = np.unique(np.concatenate([known, *found]))
        self._last = {space: np.full(bounds.size, -1, np.int64) for space, bounds in self._bounds.items()}
        self._before = {space: last.copy() for space, last in self._last.items()}
        """What wrote each piece before the last one did."""
        self._used = {space: last.copy() for space, last in self._last.items()}
        """The last update of each piece that a wait was for."""
        self._words: dict[Word, int] = {}
        self._values: dict[Word, list[int]] = defaultdict(list)
        """The updates of a word since the value of one was not known."""
        self._undo: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]]
        self._undo = defaultdict(list)
        self._undo_words: dict[int, list[tuple[Word, int]]] = defaultdict(list)

    def _number(self, node: Node) -> int:
        number = self._numbers.get(id(node))
        if number is None:
            number = self._numbers[id(node)] = len(self.nodes)
            self.nodes.append(node)
        return number

    def _pieces(self, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        bounds = self._bounds[space]
        firsts = np.searchsorted(bounds, begins, "right") - 1
        lasts = np.searchsorted(bounds, ends, "left")
        if begins.size == 1:
            return np.arange(int(firsts[0]), int(lasts[0]))
        return np.concatenate([np.arange(first, last) for first, last in zip(firsts, lasts, strict=True)])

    def write(self, node: Node, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        pieces = self._pieces(space, begins, ends)
        last, before = self._last[space], self._before[space]
        if node.action is Action.ATOMIC:
            self._undo[id(node)].append((space, pieces, last[pieces].copy(), before[pieces].copy()))
        before[pieces] = last[pieces]
        last[pieces] = self._number(node)
        if node.value is not None:
            self._values[space, int(begins[0])].append(self._number(node))

    def satisfied(self, word: Word, accepts: Callable[[int], bool]) -> NDArray[np.int64]:
        """The first step since which a word has satisfied a wait; the last that wrote it if values are not known."""
        found = self.word(*word)
        values = self._values.get(word, [])
        if not values or found.size != 1 or found[0] != values[-1]:
            return found
        first = values[-1]
        for number in reversed(values):
            value = self.nodes[number].value
            if value is None or not accepts(value):
                break
            first = number
        return np.array([first], np.int64)

    def write_words(self, node: Node, words: list[Word]) -> None:
        for word in words:
            self._undo_words[id(node)].append((word, self._words.get(word, -1)))
            self._words[word] = self._number(node)

    def last(self, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the steps that wrote these ranges last."""
        found: NDArray[np.int64] = np.unique(self._last[space][self._pieces(space, begins, ends)])
        return found[found >= 0]

    def awaited(self, node: Node, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of the steps that a look at these ranges, the last one of the wait ``node``, was for."""
        pieces = self._pieces(space, begins, ends)
        last, before, used = self._last[space][pieces], self._before[space][pieces], self._used[space][pieces]
        for i in np.flatnonzero((before > used) & (before < last)).tolist():
            one, other = self.nodes[int(before[i])], self.nodes[int(last[i])]
            if one.pe != owner(space) and one.program != HOST and not other.adds:
                last[i] = before[i]
        node.seen.append((space, pieces, used))
        self._used[space][pieces] = np.maximum(last, used)
        found: NDArray[np.int64] = np.unique(last)
        return found[found >= 0]

    def forget_look(self, node: Node) -> None:
        """The last look of a wait was not its end."""
        for space, pieces, used in node.seen:
            self._used[space][pieces] = used
        node.seen.clear()

    def word(self, space: int, offset: int) -> NDArray[np.int64]:
        if space < 0:
            number = self._words.get((space, offset), -1)
            return np.array([number] if number >= 0 else [], np.int64)
        return self.last(space, np.array([offset], np.int64), np.array([offset + 1], np.int64))

    def word_before(self, group: list[Node], word: Word) -> NDArray[np.int64]:
        """What an atomic operation that acquires waits for: as ``awaited``, before it has written the word itself."""
        for node in group:
            for known, number in self._undo_words.get(id(node), ()):
                if known == word:
                    return np.array([number] if number >= 0 else [], np.int64)
            for space, pieces, last, _ in self._undo.get(id(node), ()):
                if space == word[0]:
                    piece = int(np.searchsorted(self._bounds[space], word[1], "right")) - 1
                    found: NDArray[np.int64] = last[pieces == piece]
                    if found.size:
                        return found[found >= 0]
        if word[0] < 0:
            return self.word(*word)
        return self.awaited(group[-1], word[0], np.array([word[1]], np.int64), np.array([word[1] + 1], np.int64))

    def undo(self, group: list[Node]) -> None:
        for node in group:
            for space, pieces, last, before in self._undo.pop(id(node), ()):
                self._last[space][pieces] = last
                self._before[space][pieces] = before
            for word, number in self._undo_words.pop(id(node), ()):
                self._words[word] = number
