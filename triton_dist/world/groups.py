"""Groups of PEs whose hosts act together, and symmetric memory that such a group allocates by itself.

A :class:`HostGroup` is opened by its members alone, and kernels have no number for it: unlike a team, which all PEs of
the team that it is split from make together. Groups may overlap, and one set of PEs may open several.

The heap of a world is allocated by all PEs. Groups have a part of symmetric memory of their own, of equal size on all
PEs, in which members agree on a range that is free on all of them, the lowest. So ranges of groups that share a PE are
disjoint, and others may have the same.
"""

from __future__ import annotations

import gc
import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

import torch

from triton_dist.world.allocations import Allocation, AllocationRegistry
from triton_dist.world.raw_tensor import start_of, tensor_at

__all__ = ["ALIGNMENT", "GroupMemory", "HostGroup"]

ALIGNMENT = 512
"""Of ranges, in bytes: as of the heap."""


class HostGroup:
    """Members of a group, by their numbers in the world; made by ``World.open_group``."""

    def __init__(self, name: str, pes: range) -> None:
        self.name = name
        """The same on all members, and on no other group of the world."""
        self.pes = pes
        self.registry = AllocationRegistry()
        """What the group has allocated."""

    def __repr__(self) -> str:
        return f"the group of {_shown(self.pes)}"


class Exchange(Protocol):
    """``World.together``."""

    def __call__(self, group: HostGroup, call: str, value: str = "", /) -> list[str]: ...


class GroupMemory:
    """This PE's memory of groups.

    Args:
        address: where it begins.
        origin: the same, as places are numbered in the world's registry: an address, or an offset in a heap.
        size: bytes, the same on all PEs.
        keep: held by every tensor in it.
        changed: called with each new allocation, and again when it is given back.
    """

    def __init__(
        self,
        address: int,
        origin: int,
        size: int,
        device: torch.device,
        keep: object,
        changed: Callable[[Allocation], None] = lambda allocation: None,
    ) -> None:
        self._address, self._origin, self._size = address, origin, size
        self._device, self._keep, self._changed = device, keep, changed
        self._taken: list[tuple[int, int]] = []
        """Offset and size of each range, by offset."""
        self._groups: dict[int, HostGroup] = {}
        """By the offset of the range: who has allocated it. Ranges that members still agree on are not among them."""
        self._lock = threading.Lock()
        self.changes = 0
        """How often something was allocated or freed."""

    @property
    def free_bytes(self) -> int:
        return self._size - sum(size for _, size in self._taken)

    def allocate(
        self, together: Exchange, finish_work: Callable[[], None], group: HostGroup, shape: tuple[int, ...], dtype: Any
    ) -> torch.Tensor:
        """A tensor with unspecified contents. *Collective* over ``group``.

        Raises:
            RuntimeError: members ask for different shapes or dtypes; the message holds both. MemoryError: no range is
                free on all members.
        """
        call = f"empty({tuple(shape)}, {dtype})"
        size = max(1, -(-prod(shape) * dtype.itemsize // ALIGNMENT)) * ALIGNMENT
        self._collect(together, finish_work, group, call)
        offset = self._agree(together, group, call, size)
        if offset is None:
            gc.collect()  # tensors in cycles of references are still there
            self._collect(together, finish_work, group, f"{call}, when memory is full")
            offset = self._agree(together, group, call, size)
        if offset is None:
            raise MemoryError(
                f"{group} cannot allocate {size} bytes more ({tuple(shape)}, {dtype}): on this PE {self.free_bytes} of"
                f" the {self._size} bytes for groups are free, and not all members have a free range in common. Set"
                " TRITON_DIST_GROUP_MEMORY to a larger size, such as 1G, on all PEs"
            )
        allocation, use = group.registry.enter(self._origin + offset, size, shape, dtype)
        self._groups[offset] = group
        self.changes += 1
        self._changed(allocation)
        return tensor_at(self._address + offset, tuple(shape), dtype, self._device, use, self._keep)

    def release(self, group: HostGroup) -> None:
        """Give back all that ``group`` has allocated. No member may use it any more."""
        for allocation in group.registry.all():
            self._give_back(group, allocation)

    def find(self, address: int) -> tuple[Allocation, HostGroup] | None:
        """The allocation in which an address of this PE lies, and whose it is."""
        offset = address - self._address
        if not 0 <= offset < self._size:
            return None
        after = bisect_right(self._taken, offset, key=lambda taken: taken[0])
        group = self._groups.get(self._taken[after - 1][0]) if after else None
        allocation = group.registry.find(self._origin + offset) if group is not None else None
        return None if group is None or allocation is None else (allocation, group)

    def contains(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins in this memory."""
        return tensor.device == self._device and 0 <= start_of(tensor) - self._address < self._size

    # ---- what members agree on

    def _collect(self, together: Exchange, finish_work: Callable[[], None], group: HostGroup, call: str) -> None:
        """Give back what all members have dropped."""
        unused = group.registry.unused(together(group, call, group.registry.dropped(200)))
        if unused:
            finish_work()
        for allocation in unused:
            self._give_back(group, allocation)

    def _agree(self, together: Exchange, group: HostGroup, call: str, size: int) -> int | None:
        """The lowest offset at which ``size`` bytes are free on all members, now taken; None if there is none.

        Each member takes its lowest range and names it; from the highest that was named they look again. A range is
        taken while members agree on it, since a thread of this PE may do so for another group.
        """
        first: int | None = 0
        while first is not None:
            mine = self._take(size, first)
            said: Sequence[str] = ()
            try:
                said = together(group, call, "full" if mine is None else str(mine))
            finally:
                if mine is not None and set(said) != {str(mine)}:
                    self._leave(mine, size)
            if set(said) == {str(mine)}:
                return mine
            first = None if "full" in said else max(map(self._offset, said))
        return None

    def _offset(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) > self._size:
            raise ValueError(f"{text[:60]!r} is no offset in the memory of groups")
        return int(text)

    def _take(self, size: int, first: int) -> int | None:
        """Take the lowest free range from ``first`` on."""
        with self._lock:
            at = first
            for begin, length in self._taken:
                if begin + length <= at:
                    continue
                if begin >= at + size:
                    break
                at = begin + length
            if at + size > self._size:
                return None
            insort(self._taken, (at, size))
            return at

    def _leave(self, offset: int, size: int) -> None:
        with self._lock:
            self._taken.remove((offset, size))

    def _give_back(self, group: HostGroup, allocation: Allocation) -> None:
        group.registry.remove(allocation)
        offset = allocation.begin - self._origin
        del self._groups[offset]
        self.changes += 1
        self._leave(offset, allocation.size)
        self._changed(allocation)


def _shown(pes: range) -> str:
    listed = ", ".join(map(str, pes)) if len(pes) < 9 else f"{pes[0]}, {pes[1]}, …, {pes[-1]}"
    return f"PE {pes[0]}" if len(pes) == 1 else f"PEs {listed}"
