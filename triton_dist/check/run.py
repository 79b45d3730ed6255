"""The logs of all PEs merged into one run: their events in order, and the data that events refer to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.log import EVENT, HOST, Kind, PELog, Place, Program

__all__ = ["Event", "Run", "Word"]

Word = tuple[int, int]
"""A synchronisation word: PE and offset. A PE of -1 - p means local memory of PE p."""


class Event(NamedTuple):
    """The fields of ``EVENT``, in its order."""

    number: int
    a: int
    b: int
    c: int
    d: int
    program: int
    place: int
    flags: int
    pe: int
    kind: int
    size: int
    cmp: int
    unused: int


_CHUNK = 4096


class Run:
    """The events that all PEs have written so far."""

    def __init__(self, logs: Sequence[PELog]) -> None:
        self._logs = logs
        self.n_pes = len(logs)
        events = np.concatenate([np.empty(0, EVENT), *(log.events for log in logs)])
        for log in logs:
            log.events = np.empty(0, EVENT)  # they are many
        self.events = events[np.argsort(events["number"], kind="stable")]

    def __len__(self) -> int:
        return int(self.events.size)

    def __iter__(self) -> Iterator[tuple[int, Event]]:
        """All events, with their indices."""
        for begin in range(0, len(self), _CHUNK):
            yield from enumerate(map(Event._make, self.events[begin : begin + _CHUNK].tolist()), begin)

    def event(self, index: int) -> Event:
        return Event._make(self.events[index].item())

    def place(self, pe: int, index: int) -> Place:
        return self._logs[pe].places[index]

    def program(self, pe: int, index: int) -> Program | None:
        """None: the host."""
        return None if index == HOST else self._logs[pe].program(index)

    def text(self, pe: int, index: int) -> str:
        return self._logs[pe].texts[index]

    def words(self, pe: int, index: int) -> list[Word]:
        return self._logs[pe].words(index)

    def pes(self, pe: int, index: int) -> tuple[int, ...]:
        return self._logs[pe].pes(index)

    def ranges(self, pe: int, index: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        return self._logs[pe].ranges(index)

    def bounds(self) -> dict[int, NDArray[np.int64]]:
        """By space: the ascending offsets at which any access begins or ends."""
        found: dict[int, list[Any]] = {}
        for pe, of_ranges in enumerate(self._used(("a", Kind.ACCESS), *_COPIES)):
            for index in of_ranges:
                space, begins, ends = self.ranges(pe, index)
                found.setdefault(space, []).extend((begins, ends))
        looks = self.events[self.events["kind"] == Kind.LOOK]
        for pe, index, size in set(zip(*(looks[field].tolist() for field in ("pe", "a", "size")), strict=True)):
            for space, offset in self.words(pe, index):
                found.setdefault(space, []).append(np.array([offset, offset + size], np.int64))
        updates = self.events[np.isin(self.events["kind"], (Kind.UPDATE, Kind.SENT))]
        for space in np.unique(updates["a"]).tolist():
            theirs = updates[updates["a"] == space]
            found.setdefault(space, []).extend((theirs["b"], theirs["b"] + theirs["size"]))
        return {space: np.unique(np.concatenate(bounds)) for space, bounds in found.items()}

    def _used(self, *fields: tuple[str, Kind]) -> Iterator[list[int]]:
        """For each PE, the list indices in these fields of events of these kinds."""
        for pe in range(self.n_pes):
            mine = self.events[self.events["pe"] == pe]
            named = [mine[field][mine["kind"] == kind] for field, kind in fields]
            indices = np.unique(np.concatenate(named))
            yield indices[indices >= 0].tolist()


_COPIES = (("a", Kind.PUT), ("b", Kind.PUT), ("a", Kind.GET), ("b", Kind.GET))
