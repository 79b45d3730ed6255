"""Ordering and world-wide collectives."""

from __future__ import annotations

from typing import Any

from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["barrier_all", "fence", "quiet", "sync_all"]


@builtin
def fence(_semantic: Any = None) -> None:
    """Order the program's earlier puts, signals and remote stores to each PE before its later ones.

    OpenSHMEM 1.5, 9.11.1.
    """
    emit(_semantic, "fence")


@builtin
def quiet(_semantic: Any = None) -> None:
    """Complete the program's outstanding operations: puts have arrived, gets have returned.

    OpenSHMEM 1.5, 9.11.2.
    """
    emit(_semantic, "quiet")


@builtin
def barrier_all(_semantic: Any = None) -> None:
    """Complete outstanding operations and wait until every PE has called it.

    Called by one program of each PE at a time, and only in grids whose programs are all resident at once.
    OpenSHMEM 1.5, 9.10.1.
    """
    emit(_semantic, "barrier_all")


@builtin
def sync_all(_semantic: Any = None) -> None:
    """Wait until every PE has called it, without completing remote updates.

    Called as ``barrier_all`` is. OpenSHMEM 1.5, 9.10.2.
    """
    emit(_semantic, "sync_all")
