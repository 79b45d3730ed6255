"""Where the hosts of a group meet in a CPU world: a place in each member's heap, found by the group's name.

A group is opened by its members alone, so no PE hands out a number that all know. Each member takes a place that is
free on it, writes the group's name there, and looks for the places of the others. Counts in a place are never reset: a
group counts from what its place holds when it is opened.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence

from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.team_sync import PLACE_BYTES, Counter, HeapBarrier

__all__ = ["CHANNEL_BYTES", "MAX_GROUPS", "Channels"]

MAX_GROUPS = 64
"""Groups that a PE may have open at a time."""

_NAME_BYTES = 128
_CALLS_BASE = 8 + _NAME_BYTES  # behind the base of the first place's counts, and the group's name
_FIRST_PLACE = _CALLS_BASE + 56  # on a cache line of its own
_CALLS = _FIRST_PLACE + PLACE_BYTES  # a place of the same kind, for the calls of kernels
_STEP = _CALLS + PLACE_BYTES
CHANNEL_BYTES = MAX_GROUPS * _STEP
"""What the places take of each PE's heap."""


class Channels:
    """This PE's places, from byte ``offset`` of each heap."""

    def __init__(self, heap: SymmetricMemory, pe: int, offset: int) -> None:
        self._heap, self._pe, self._offset = heap, pe, offset
        self._free = deque(range(MAX_GROUPS))  # those that were closed last come last
        self._open: dict[str, int] = {}

    def open(
        self, name: str, pes: Sequence[int], wait: Callable[[Callable[[], bool]], None]
    ) -> tuple[HeapBarrier, HeapBarrier]:
        """The place where the members of the group called ``name`` meet, and that where they tell what they call.

        ``wait`` returns when its argument is true.

        Raises:
            RuntimeError: this PE has as many groups as it may.
        """
        if not self._free:
            raise RuntimeError(
                f"PE {self._pe} has {MAX_GROUPS} groups, and no more are to be had: close() those that are not used. A"
                " triton_dist.kernels.Communicator that is dropped stays open"
            )
        number = self._free.popleft()
        at = self._offset + number * _STEP
        mine = self._heap.base(self._pe) + at
        counts = [WORDS[8].load(mine + place, Order.ACQUIRE) for place in (_FIRST_PLACE, _CALLS)]
        for base, count in zip((0, _CALLS_BASE), counts, strict=True):
            WORDS[8].store(mine + base, count, Order.RELEASE)
        self._write_name(mine, name)
        self._open[name] = number
        found: dict[int, int] = {}

        def all_are_here() -> bool:
            for pe in pes:
                if pe not in found and (offset := self._find(pe, name)) is not None:
                    found[pe] = offset
            return len(found) == len(pes)

        wait(all_are_here)
        made = []
        words = self._heap.words(8)
        for place, base, count in zip((_FIRST_PLACE, _CALLS), (0, _CALLS_BASE), counts, strict=True):
            theirs = [Counter(pe, found[pe] + place, words.load(pe, found[pe] + base, Order.ACQUIRE)) for pe in pes]
            made.append(HeapBarrier(self._heap, Counter(self._pe, at + place, count), theirs))
        return made[0], made[1]

    def close(self, name: str) -> None:
        """Give this PE's place back."""
        number = self._open.pop(name)
        self._write_name(self._heap.base(self._pe) + self._offset + number * _STEP, "")
        self._free.append(number)

    def _find(self, pe: int, name: str) -> int | None:
        """The offset of the place that ``pe`` has opened for a group."""
        found = ctypes.create_string_buffer(_NAME_BYTES)
        for number in range(MAX_GROUPS):
            offset = self._offset + number * _STEP
            self._heap.read(pe, offset + 8, ctypes.addressof(found), _NAME_BYTES)
            # (The name's first bytes are written last, so a name that is found is complete.)
            if found.value == _encoded(name):
                return offset
        return None

    @staticmethod
    def _write_name(place: int, name: str) -> None:
        text = _encoded(name).ljust(_NAME_BYTES, b"\0")
        WORDS[8].store(place + 8, 0, Order.RELEASE)
        ctypes.memmove(place + 16, text[8:], _NAME_BYTES - 8)
        WORDS[8].store(place + 8, int.from_bytes(text[:8], "little", signed=True), Order.RELEASE)


def _encoded(name: str) -> bytes:
    text = name.encode()
    assert not name or 8 <= len(text) < _NAME_BYTES, f"{name!r} is no name of a group"
    return text
