"""Copies that are under way, where they arrive as late as the standard allows: those of a schedule that says so, and,
under the checker, those between hosts.

That is when the program calls ``quiet``; before its next update of the same PE, if it has called ``fence`` in between;
when nobody can go on without them; and at the end of the kernel. Otherwise copies are made at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Outstanding"]


@dataclass(frozen=True)
class _Copy:
    pe: int | None
    """Where a put goes; None: a get."""
    make: Callable[[], None]
    fenced: bool = False


class Outstanding:
    """The copies of one program."""

    def __init__(self) -> None:
        self._copies: list[_Copy] = []

    def __bool__(self) -> bool:
        return bool(self._copies)

    def add(self, pe: int | None, make: Callable[[], None]) -> None:
        """``make`` makes the copy. ``pe`` is the target of a put, None for a get."""
        self._copies.append(_Copy(pe, make))

    def fence(self, pe: int | None = None) -> None:
        """What the program does from now on, to PE ``pe`` or to any (None), comes behind its puts there."""
        self._copies = [
            replace(copy, fenced=copy.fenced or (copy.pe is not None and pe in (None, copy.pe)))
            for copy in self._copies
        ]

    def before_update(self, pe: int) -> None:
        """The program is about to change memory of PE ``pe`` with something that does not wait."""
        due = [copy for copy in self._copies if copy.fenced and copy.pe == pe]
        self._copies = [copy for copy in self._copies if not (copy.fenced and copy.pe == pe)]
        for copy in due:
            copy.make()

    def arrive(self, pe: int | None = None) -> None:
        """Make all, or all puts to PE ``pe`` and the gets; those without a fence in between in the order that is the
        least expected."""
        copies = [copy for copy in self._copies if pe is None or copy.pe in (None, pe)]
        self._copies = [copy for copy in self._copies if copy not in copies]
        for copy in [*(copy for copy in copies if copy.fenced), *reversed([c for c in copies if not c.fenced])]:
            copy.make()
