"""Barriers of the members of a team in a CPU world, at which they tell each other what for: a few words of each heap.

Each member counts its own calls and publishes them in its own heap; the others look. A member that waits for call n
leaves when all counts are n or greater. What was published for n stays until call n + 2, and no member can come to that
before all have left n: nothing is ever reset while the team lives.
"""

from __future__ import annotations

import ctypes
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.runtime.backoff import Backoff
from triton_dist.cpu.runtime.control import Caller, ControlBlock

__all__ = ["PLACE_BYTES", "ControlBarrier", "Counter", "GroupBarrier", "HeapBarrier", "TeamBarrier"]

_TEXT_BYTES = 512
_FIRST_TEXT = 64  # behind the count, on a cache line of its own
_TEXTS = 8
"""How many texts a place holds: a member that does not wait may be up to two less ahead of one that compares."""
PLACE_BYTES = _FIRST_TEXT + _TEXTS * _TEXT_BYTES
"""What a barrier state takes of each member's heap."""


class TeamBarrier(ABC):
    """Where PEs wait for each other, and tell what for. One user on a PE at a time."""

    @abstractmethod
    def arrive(self, text: str) -> int:
        """This PE arrives, and says ``text``; its ticket. A member that finds all here sees what it wrote before."""

    @abstractmethod
    def passed(self, ticket: int) -> bool:
        """Whether all have come."""

    @abstractmethod
    def wait(self, ticket: int, seconds: float) -> bool:
        """Wait for all to come, at most ``seconds``; whether they have."""

    @abstractmethod
    def said(self, ticket: int) -> list[str]:
        """What each said, in the PEs' order. Only once all have come, and before the next call of this PE."""

    def ahead(self) -> Mapping[int, str]:
        """Who has arrived once more than this PE, as far as is known, and what each said: they wait for this PE."""
        return {}


class GroupBarrier(TeamBarrier):
    """Of a group, whose members also compare calls that they do not wait for each other in."""

    @abstractmethod
    def said_by_now(self, ticket: int) -> list[str | None]:
        """What each said for a ticket that this PE has; None for those who have not come, or are too far ahead.

        Of two members, at least one finds what the other said: each comes before it looks.
        """


class ControlBarrier(TeamBarrier):
    """All PEs, in the control block of a world of one machine."""

    def __init__(self, control: ControlBlock, caller: Caller, pe: int, n_pes: int) -> None:
        self._control, self._caller, self._pe, self._n_pes = control, caller, pe, n_pes
        self._barrier = control.host_barrier if caller is Caller.HOST else control.kernel_barrier
        self._rounds = 0

    def arrive(self, text: str) -> int:
        self._control.announce(self._caller, self._pe, self._rounds, f"{self._rounds} {text}")
        self._rounds += 1
        return self._barrier.arrive()

    def passed(self, ticket: int) -> bool:
        return self._barrier.passed(ticket)

    def wait(self, ticket: int, seconds: float) -> bool:
        return self._barrier.wait(ticket, seconds)

    def said(self, ticket: int) -> list[str]:
        return [self._announced(pe, self._rounds - 1)[1] for pe in range(self._n_pes)]

    def ahead(self) -> Mapping[int, str]:
        last = {pe: self._announced(pe, self._rounds) for pe in range(self._n_pes)}
        return {pe: text for pe, (number, text) in last.items() if number == str(self._rounds)}

    def _announced(self, pe: int, number: int) -> tuple[str, str]:
        """The number of the call that ``pe`` announced last where this one is announced, and what it said."""
        number_of, _, text = self._control.announced(self._caller, pe, number).partition(" ")
        return number_of, text


class Counter(NamedTuple):
    """A place in a PE's heap, and the count that it begins with."""

    pe: int
    offset: int
    first: int = 0


class HeapBarrier(GroupBarrier):
    """A place in each member's heap."""

    def __init__(self, heap: SymmetricMemory, mine: Counter, places: Sequence[Counter]) -> None:
        """The members must meet elsewhere before the first of them arrives: an earlier team may have met here."""
        self._heap, self._words = heap, heap.words(8)
        self._mine = heap.base(mine.pe) + mine.offset
        self._first = self._count = mine.first
        self._places = places

    @staticmethod
    def at(heap: SymmetricMemory, pe: int, pes: Sequence[int], offset: int) -> HeapBarrier:
        """A new place at the same ``offset`` of each member's heap."""
        WORDS[8].store(heap.base(pe) + offset, 0, Order.RELEASE)
        return HeapBarrier(heap, Counter(pe, offset), [Counter(member, offset) for member in pes])

    def arrive(self, text: str) -> int:
        self._heap.quiet()
        self._count += 1
        said = text.encode()[: _TEXT_BYTES - 1] + b"\0"
        ctypes.memmove(self._mine + _text(self._count), said, len(said))
        WORDS[8].store(self._mine, self._count, Order.RELEASE)
        return self._count - self._first

    def passed(self, ticket: int) -> bool:
        return all(self._count_of(place) - place.first >= ticket for place in self._places)

    def wait(self, ticket: int, seconds: float) -> bool:
        deadline, backoff = time.monotonic() + seconds, Backoff()
        while not self.passed(ticket):
            if time.monotonic() > deadline:
                return False
            backoff.pause()
        return True

    def said_by_now(self, ticket: int) -> list[str | None]:
        # A full fence: the look does not pass the arrival.
        WORDS[8].fetch_add(self._mine, 0, Order.SEQUENTIALLY_CONSISTENT)
        found: list[str | None] = []
        for place in self._places:
            before = self._count_of(place)
            text = self._said_at(place, ticket)
            # The text of this ticket stays in place until that of the ticket _TEXTS later is written, in front of the
            # count: so, while the count is less than that by two.
            first, last = place.first + ticket, place.first + ticket + _TEXTS - 2
            found.append(text if first <= before and self._count_of(place) <= last else None)
        return found

    def said(self, ticket: int) -> list[str]:
        return [self._said_at(place, ticket) for place in self._places]

    def ahead(self) -> Mapping[int, str]:
        # They wait there for this PE, so their texts stay.
        ticket = self._count - self._first + 1
        ahead = (place for place in self._places if self._count_of(place) - place.first >= ticket)
        return {place.pe: self._said_at(place, ticket) for place in ahead}

    def _count_of(self, place: Counter) -> int:
        return self._words.load(place.pe, place.offset, Order.ACQUIRE)

    def _said_at(self, place: Counter, ticket: int) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        at = place.offset + _text(place.first + ticket)
        self._heap.read(place.pe, at, ctypes.addressof(text), _TEXT_BYTES)
        return text.value.decode(errors="ignore")


def _text(count: int) -> int:
    return _FIRST_TEXT + count % _TEXTS * _TEXT_BYTES
