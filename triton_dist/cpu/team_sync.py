"""Where the members of a team meet in a CPU world, and tell each other what for: a few words in each one's heap.

Each member counts its own calls and announces them in its own heap; the others look. Whoever waits for call n leaves
when all counts are n or greater. What was announced for n stays until call n + 2, and nobody can come to that before
all have left n: nothing is ever reset while the team lives.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.runtime.backoff import Backoff
from triton_dist.cpu.runtime.heap import SymmetricHeap

__all__ = ["PLACE_BYTES", "MeetingPlace"]

_TEXT_BYTES = 512
_FIRST_TEXT = 64  # behind the count, on a cache line of its own
PLACE_BYTES = _FIRST_TEXT + 2 * _TEXT_BYTES
"""What a meeting place takes of each member's heap."""


class MeetingPlace:
    """A place in each member's heap, as its address and the count that it begins with. One user on a PE at a time."""

    def __init__(self, mine: tuple[int, int], places: Sequence[tuple[int, int]]) -> None:
        """The members must meet elsewhere before the first of them arrives: an earlier team may have met here."""
        self._mine, self._count = mine
        self._first = self._count
        self._places = places

    @staticmethod
    def at(heap: SymmetricHeap, pe: int, pes: Sequence[int], offset: int) -> MeetingPlace:
        """A new place at the same ``offset`` of each member's heap."""
        mine = heap.base(pe) + offset
        WORDS[8].store(mine, 0, Order.RELEASE)
        return MeetingPlace((mine, 0), [(heap.base(member) + offset, 0) for member in pes])

    def arrive(self, text: str) -> int:
        """This PE comes, and says ``text``; its ticket. What it wrote before is seen by whoever finds all have come."""
        self._count += 1
        said = text.encode()[: _TEXT_BYTES - 1] + b"\0"
        ctypes.memmove(self._text(self._mine, self._count), said, len(said))
        WORDS[8].store(self._mine, self._count, Order.RELEASE)
        return self._count - self._first

    def passed(self, ticket: int) -> bool:
        """Whether all have come."""
        return all(WORDS[8].load(place, Order.ACQUIRE) - first >= ticket for place, first in self._places)

    def wait(self, ticket: int, seconds: float) -> bool:
        """Wait for all to come, at most ``seconds``; whether they have."""
        deadline, backoff = time.monotonic() + seconds, Backoff()
        while not self.passed(ticket):
            if time.monotonic() > deadline:
                return False
            backoff.pause()
        return True

    def said_by_now(self, ticket: int) -> list[str | None]:
        """What each said for a ticket that this PE has; None for those who have not come, or have come to later ones.

        Of two members, at least one finds what the other said: each comes before it looks.
        """
        # A full fence: the look does not pass the arrival.
        WORDS[8].fetch_add(self._mine, 0, Order.SEQUENTIALLY_CONSISTENT)
        found: list[str | None] = []
        for place, first in self._places:
            before = WORDS[8].load(place, Order.ACQUIRE)
            text = ctypes.string_at(self._text(place, first + ticket)).decode(errors="ignore")
            # While the count stays, the text of this ticket is in place, and that of the next one goes elsewhere.
            after = WORDS[8].load(place, Order.ACQUIRE)
            found.append(text if before == after == first + ticket else None)
        return found

    def said(self, ticket: int) -> list[str]:
        """What each said, in the team's order. Only once all have come, and before the next call of this PE."""
        texts = (ctypes.string_at(self._text(place, first + ticket)) for place, first in self._places)
        return [text.decode(errors="ignore") for text in texts]

    @staticmethod
    def _text(place: int, count: int) -> int:
        return place + _FIRST_TEXT + count % 2 * _TEXT_BYTES
