"""What a launcher tells a process of its start."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["Start", "check_range", "integer"]


@dataclass(frozen=True)
class Start:
    """Which PE this process is, by whose word, and how it meets the others."""

    launcher: str
    pe: int
    n_pes: int
    meet: Callable[[float], Store] | None = None
    """Gives, within so many seconds, a store that all PEs of the launch share. None in a launch of one."""

    local: tuple[int, int] | None = None
    """Which of how many PEs of this host, if the launcher tells."""

    holder: str = "PE 0"
    """Whose process holds that store, for messages."""

    key: str = ""
    """Tells apart the users of a store that serves several worlds, the same on all PEs. Empty: one store, one world."""


def integer(name: str, environment: Mapping[str, str] = os.environ) -> int:
    """The number that a launcher's variable holds.

    Raises:
        RuntimeError: it holds none.
    """
    try:
        return int(environment[name])
    except ValueError:
        raise RuntimeError(f"{name}={environment[name]!r} is not a number") from None


def check_range(rank: str, pe: int, size: str, n_pes: int) -> None:
    """Raises RuntimeError unless a launcher's two variables fit together."""
    if not 0 <= pe < n_pes:
        raise RuntimeError(f"{rank}={pe} is out of range [0, {n_pes}), which {size}={n_pes} allows")
