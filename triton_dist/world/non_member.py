"""What a PE has of a team that it is not in: OpenSHMEM's ``SHMEM_TEAM_INVALID``, with what it was.

It is not None, which stands for all PEs wherever a group or a team is asked for: a PE that passed it on would join a
call of the whole world, in which the others never come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

__all__ = ["NonMember"]


class NonMember:
    """In place of a team on a PE that is no member of it. It is false, so ``if team:`` tells members.

    ``handle`` (``dl.TEAM_INVALID``), ``my_pe``, ``n_pes`` and ``translate_pe`` are -1, as OpenSHMEM has it, and
    ``destroy`` does nothing. Whatever takes a team or a group raises ValueError, and what else a team has,
    AttributeError.
    """

    handle = my_pe = n_pes = -1

    def __init__(self, pe: int, team: str) -> None:
        self._pe, self._team = pe, team

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return f"<no team: PE {self._pe} is not in {self._team}>"

    def translate_pe(self, pe: int, destination: object) -> int:
        """-1: of no team."""
        return -1

    def destroy(self) -> None:
        """Do nothing: the members destroy their team."""

    def refuse(self, what: str) -> NoReturn:
        """ValueError: this PE cannot take part in ``what``."""
        raise ValueError(f"{what}: {self._why}")

    @property
    def _why(self) -> str:
        return (
            f"this PE is no member of that team: PE {self._pe} is not in {self._team}; only members take part"
            " (`if team:` tells them)"
        )

    if not TYPE_CHECKING:  # type checkers are to ask for `if team:`

        def __getattr__(self, name):
            raise AttributeError(name if name.startswith("_") else f"team.{name}: {self._why}")
