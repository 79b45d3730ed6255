"""Ordering of this PE's operations."""

from __future__ import annotations

from typing import Any

from triton_dist._C import op_table
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer

__all__ = ["fence", "pe_fence", "pe_quiet", "quiet"]


@builtin
def fence(_semantic: Any = None) -> None:
    """Order the program's earlier puts, signals and remote stores to each PE before its later ones.

    OpenSHMEM 1.5, 9.11.1.
    """
    emit(_semantic, op_table.FENCE)


@builtin
def quiet(_semantic: Any = None) -> None:
    """Complete the program's outstanding operations: puts have arrived, gets have returned.

    OpenSHMEM 1.5, 9.11.2.
    """
    emit(_semantic, op_table.QUIET)


@builtin
def pe_fence(pe: Integer, _semantic: Any = None) -> None:
    """``fence`` for one PE: order the program's earlier puts, signals and remote stores to it before its later ones.

    Never less than that, and no more where the library can tell PEs apart.

    Args:
        pe: an integer in ``[0, n_pes())``.
    """
    emit(_semantic, op_table.PE_FENCE, pe=_check.pe_number("pe_fence", "pe", pe, _semantic))


@builtin
def pe_quiet(pe: Integer, _semantic: Any = None) -> None:
    """``quiet`` for one PE: complete the program's outstanding operations on ``pe``.

    Never less than that, and no more where the library can tell PEs apart.

    Args:
        pe: an integer in ``[0, n_pes())``.
    """
    emit(_semantic, op_table.PE_QUIET, pe=_check.pe_number("pe_quiet", "pe", pe, _semantic))
