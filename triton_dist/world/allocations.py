"""The allocations of the symmetric heap, and those that this PE has dropped.

Freeing memory is a collective operation, but each PE drops its tensors independently, when Python collects them. So a
drop is only recorded. PEs exchange their records at collective calls. Each computes from all records the allocations
that all PEs have dropped, with the same result on all. Drops are recorded in
:func:`~triton_dist.world.raw_tensor.release_dropped`, which all methods call whose result depends on them.
"""

from __future__ import annotations

import re
import weakref
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import torch

from triton_dist.world.raw_tensor import release_dropped

__all__ = ["Allocation", "AllocationRegistry"]


class _Use:
    """Held by every tensor on an allocation, of this PE or a peer; gone when they are."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True)
class Allocation:
    """One allocation: its number, the same on every PE, and what of memory it takes: ``[begin, begin + size)``."""

    number: int
    begin: int
    size: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    use: weakref.ref[_Use] = field(repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes that were asked for."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.shape}, {self.dtype}"


class AllocationRegistry:
    """The allocations of this PE. Places are numbers: addresses, or offsets in a heap."""

    def __init__(self) -> None:
        self._next = 0
        self._by_number: dict[int, Allocation] = {}
        self._begins: list[tuple[int, int]] = []  # (begin, number), sorted
        self._dropped: set[int] = set()
        self._freed: list[Allocation] = []  # though tensors on them live
        self.changes = 0
        """How often something was allocated or freed."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, allocation: Allocation) -> bool:
        return self._by_number.get(allocation.number) is allocation

    def enter(self, begin: int, size: int, shape: Sequence[int], dtype: torch.dtype) -> tuple[Allocation, object]:
        """A new allocation, and what its tensors have to hold: when it is gone, the allocation is dropped here."""
        use, number = _Use(), self._next
        self._next += 1
        allocation = Allocation(number, begin, size, tuple(shape), dtype, weakref.ref(use))
        self._by_number[number] = allocation
        self.changes += 1
        insort(self._begins, (begin, number))
        weakref.finalize(use, self._dropped.add, number).atexit = False
        return allocation, use

    def remove(self, allocation: Allocation) -> None:
        """It is given back."""
        del self._by_number[allocation.number]
        self.changes += 1
        self._begins.remove((allocation.begin, allocation.number))
        release_dropped()
        self._dropped.discard(allocation.number)
        self._freed = [freed for freed in [*self._freed, allocation] if freed.use() is not None]

    def find(self, place: int) -> Allocation | None:
        """The allocation in which ``place`` lies."""
        after = bisect_right(self._begins, place, key=lambda entry: entry[0])
        if after == 0:
            return None
        allocation = self._by_number[self._begins[after - 1][1]]
        return allocation if place < allocation.begin + allocation.size else None

    def started_by(self, place: int) -> Allocation | None:
        """The allocation that begins at ``place``, if one does."""
        allocation = self.find(place)
        return allocation if allocation and allocation.begin == place else None

    def was_freed(self, place: int) -> bool:
        """Whether a tensor at ``place`` is on memory that was freed, as far as one knows."""
        if not self._freed:  # as nearly always
            return False
        release_dropped()
        return any(freed.begin <= place < freed.begin + freed.size for freed in self._freed if freed.use() is not None)

    def all(self) -> list[Allocation]:
        """Every allocation, by number."""
        return sorted(self._by_number.values(), key=lambda allocation: allocation.number)

    # ---- what is not used any more

    def all_dropped(self) -> list[Allocation]:
        """The allocations that this PE has dropped and that are not freed, by number."""
        release_dropped()
        return [self._by_number[number] for number in sorted(self._dropped) if number in self._by_number]

    def dropped(self, room: int) -> str:
        """The numbers of what was dropped here, as ``2-5,7``: as many of the oldest as ``room`` characters take."""
        numbers = [allocation.number for allocation in self.all_dropped()]
        text = ""
        while numbers:
            first = last = numbers.pop(0)
            while numbers and numbers[0] == last + 1:
                last = numbers.pop(0)
            part = f"{first}-{last}" if last > first else f"{first}"
            if len(text) + len(part) + 1 > room:
                break
            text += f",{part}" if text else part
        return text

    def unused(self, dropped: Iterable[str]) -> list[Allocation]:
        """The allocations that are dropped on all PEs, by number; ``dropped`` has each PE's :meth:`dropped`.

        Raises:
            ValueError: a text is not of :meth:`dropped`, or names allocations that do not exist.
        """
        everywhere = set.intersection(*(self._numbers(text) for text in dropped))
        return [self._by_number[number] for number in sorted(everywhere)]

    def _numbers(self, text: str) -> set[int]:
        numbers: set[int] = set()
        for part in text.split(",") if text else ():
            found = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
            if not first <= last < first + len(self._by_number) + 1:
                raise ValueError(f"{text[:60]!r} is no list of dropped allocations")
            numbers.update(range(first, last + 1))
        if not numbers <= self._by_number.keys():
            raise ValueError(f"{text[:60]!r} names allocations that there are not")
        return numbers
