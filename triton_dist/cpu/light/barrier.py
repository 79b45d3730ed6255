"""Where coroutines meet, and tell each other what for."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_dist.cpu.team_sync import GroupBarrier

__all__ = ["LightBarrier", "Said"]


@dataclass
class Said:
    """What the ``n`` members of a barrier share: by ticket, what each has said, and how many have.

    ``alone``: the one that comes says it for all.
    """

    n: int
    alone: bool = False
    texts: dict[int, list[str | None]] = field(default_factory=dict)
    come: dict[int, int] = field(default_factory=dict)


class LightBarrier(GroupBarrier):
    """Of one member."""

    def __init__(self, said: Said, member: int) -> None:
        self._said, self._member = said, member
        self._ticket = 0

    def arrive(self, text: str) -> int:
        self._ticket += 1
        texts = self._said.texts.setdefault(self._ticket, [None] * self._said.n)
        if self._said.alone:
            texts[:] = [text] * self._said.n
        texts[self._member] = text
        come = self._said.n if self._said.alone else self._said.come.get(self._ticket, 0) + 1
        self._said.come[self._ticket] = come
        if self.passed(self._ticket):  # so all have left the call before the last
            self._said.texts.pop(self._ticket - 2, None)
            self._said.come.pop(self._ticket - 2, None)
        return self._ticket

    def passed(self, ticket: int) -> bool:
        return self._said.come.get(ticket, self._said.n) == self._said.n

    def wait(self, ticket: int, seconds: float) -> bool:
        return self.passed(ticket)

    def said(self, ticket: int) -> list[str]:
        return [text or "" for text in self._said.texts[ticket]]

    def said_by_now(self, ticket: int) -> list[str | None]:
        return self._said.texts[ticket]
