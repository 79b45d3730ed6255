"""Which symmetric memory a block of pointers touches: ranges of bytes, by the PE whose heap they lie in."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist.cpu.memory import SymmetricMemory

__all__ = ["Ranges", "joined", "may_touch", "of_pointers"]


@dataclass(frozen=True)
class Ranges:
    """Disjoint, ascending ranges ``[begins[i], ends[i])`` of offsets in one PE's heap."""

    pe: int
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


def may_touch(heap: SymmetricMemory, n_pes: int, pointers: NDArray[Any]) -> bool:
    """Whether some of the pointers may lie in a heap; those that a mask excludes may be anywhere."""
    if not pointers.size:
        return False
    return bool(int(pointers.max()) >= heap.base(0) and int(pointers.min()) < heap.base(n_pes - 1) + heap.size)


def of_pointers(
    heap: SymmetricMemory, n_pes: int, pointers: NDArray[Any], mask: NDArray[Any], size: int
) -> list[Ranges]:
    """What elements of ``size`` bytes at ``pointers`` where ``mask`` is true cover of the symmetric heaps."""
    chosen = np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))
    # The interpreter holds some int1 as integers, which would index elements.
    addresses = chosen[np.broadcast_to(mask, chosen.shape).astype(bool)].astype(np.int64)
    if not addresses.size:
        return []
    low, high = int(addresses.min()), int(addresses.max())
    first = bisect_left(range(n_pes), low - heap.size + 1, key=heap.base)
    beyond = bisect_left(range(n_pes), high + size, key=heap.base)
    found = []
    for pe in range(first, beyond):
        offsets = addresses - heap.base(pe)
        inside = (offsets > -size) & (offsets < heap.size)
        if inside.any():
            begins, ends = joined(offsets[inside], size)
            found.append(Ranges(pe, begins, ends))
    return found


def joined(offsets: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranges that adjoin, or overlap, as one."""
    if (offsets[1:] - offsets[:-1] == size).all():  # most blocks
        return offsets[:1], offsets[-1:] + size
    ordered = np.unique(offsets)
    gaps = np.flatnonzero(np.diff(ordered) > size)
    return ordered[np.concatenate(([0], gaps + 1))], ordered[np.concatenate((gaps, [ordered.size - 1]))] + size
