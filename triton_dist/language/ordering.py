"""Ordering of this PE's operations."""

from __future__ import annotations

from typing import Any

from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["fence", "quiet"]


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
