"""One PE for all: a recording of symmetric PEs of which one runs.

What the others would do to its flags and signals is what it does to theirs (:mod:`triton_dist.check.symmetry`), and is
done when it does that. Their other memory is not read, and what they would store to its tensors is not stored, so
results are not those of a whole run. A wait for something else never ends, which the scheduler reports. That PEs are
symmetric is not checked: the caller knows.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from triton_dist.check.log import Flag, Log
from triton_dist.check.symmetry import Symmetry
from triton_dist.cpu.program import running
from triton_dist.cpu.recorder import Recorded, Recorder, Word
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.turn_taking import Turns

__all__ = ["RepresentativeRecorder"]


class RepresentativeRecorder(Recorder):
    """Of the representative, whose changes of peers' words it makes to their images, too."""

    def __init__(self, world: Recorded, turns: Turns, log: Log, symmetry: Symmetry) -> None:
        super().__init__(world, turns, log, work=True)
        self._symmetry = symmetry
        self._changed: list[tuple[int, int, int]] = []
        """Words of peers that the program is about to change: PE, offset, size."""
        self._sent: dict[int, tuple[Word, int]] = {}
        """Words of peers, and their sizes, that change later; by the number of the event."""

    def update(
        self, what: str, word: Word, size: int, values: tuple[int, int] | None, flags: int, *, relaxed: bool = False,
        scope: str = "sys",
    ) -> None:  # fmt: skip
        super().update(what, word, size, values, flags, relaxed=relaxed, scope=scope)
        if word[0] != self._world.pe:
            self._check_sets(what, flags)
            assert values is not None
            self._change(word, size, values[1])

    def send(self, what: str, word: Word, size: int, flags: int, *, relaxed: bool = False, scope: str = "sys") -> None:
        self._check_sets(what, flags)
        super().send(what, word, size, flags, relaxed=relaxed, scope=scope)
        self._sent[running().sent] = word, size

    def arrived(self, program: int, sent: int, values: tuple[int, int] | None) -> None:
        super().arrived(program, sent, values)
        assert values is not None
        self._change(*self._sent.pop(sent), values[1])

    @staticmethod
    def _check_sets(what: str, flags: int) -> None:
        if not flags & Flag.SETS:
            raise ValueError(f"{what} on a peer, by one PE for all: words are set, since each has one sender")

    def atomic_block(
        self, what: str, pointers: NDArray[Any], mask: NDArray[Any], size: int, sem: str, scope: str, writes: bool
    ) -> list[Word]:
        words = super().atomic_block(what, pointers, mask, size, sem, scope, writes)
        if writes:
            self._changed += [(pe, offset, size) for pe, offset in words if pe >= 0 and pe != self._world.pe]
        return words

    def _change(self, word: Word, size: int, value: int) -> None:
        """Change the image of a word."""
        image = self._symmetry.image(*word, size)
        self._world.heap.words(size).store(self._world.pe, image, value, Order.RELEASE)

    def _add(self, kind: Any, program: int, place: int, *operands: int, **more: int) -> None:
        for pe, offset, size in self._changed:  # by now
            self._change((pe, offset), size, self._world.heap.words(size).load(pe, offset, Order.RELAXED))
        self._changed.clear()
        super()._add(kind, program, place, *operands, **more)
