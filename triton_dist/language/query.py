"""Who am I, how many are we, and where is a peer's copy of an object."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Pointer

__all__ = ["is_reachable", "my_pe", "n_pes", "symm_at", "team_my_pe", "team_n_pes", "team_translate_pe"]


@builtin
def my_pe(_semantic: Any = None) -> tl.tensor:
    """Number of the calling PE, an int32 in ``[0, n_pes())``. OpenSHMEM 1.5, 9.1.2."""
    return emit(_semantic, op_table.MY_PE, result=tl.int32)


@builtin
def n_pes(_semantic: Any = None) -> tl.tensor:
    """Number of PEs in the world, an int32. OpenSHMEM 1.5, 9.1.3."""
    return emit(_semantic, op_table.N_PES, result=tl.int32)


@builtin
def is_reachable(pe: Integer, _semantic: Any = None) -> tl.tensor:
    """Whether ``symm_at(…, pe)`` may be loaded from and stored to (``shmem_ptr`` is not null), an int1."""
    pe = _check.pe_number("is_reachable", "pe", pe, _semantic)
    reachable = emit(_semantic, op_table.IS_REACHABLE, pe=pe, result=tl.int32)
    return _semantic.not_equal(reachable, _semantic.scalar_constant(0, tl.int32))


@builtin
def symm_at(ptr: Pointer, pe: Integer, _semantic: Any = None) -> tl.tensor:
    """Where PE ``pe`` keeps its copy of the symmetric object at ``ptr``: the device's ``shmem_ptr``.

    The result has ``ptr``'s type and alignment and may be used in ``tl.load``, ``tl.store``, ``tl.atomic_*`` and
    pointer arithmetic. Stores through it are ordered like the program's own: ``signal_op`` and the other releasing ops
    publish them.

    Args:
        ptr: a pointer into the symmetric heap, or a block of them. Of one pointer the result is null when ``pe`` cannot
            be reached by load and store; before using a block, know that it can (``is_reachable``).
        pe: an integer in ``[0, n_pes())``.

    OpenSHMEM 1.5, 9.1.8.
    """
    pe = _check.pe_number("symm_at", "pe", pe, _semantic)
    if isinstance(ptr, tl.tensor) and ptr.type.is_block() and ptr.type.scalar.is_ptr():
        distance = emit(_semantic, op_table.HEAP_DISTANCE, pe=pe, result=tl.int64)
    else:
        ptr = _check.pointer("symm_at", "ptr", ptr)
        distance = emit(_semantic, op_table.SYMM_OFFSET, ptr=ptr, pe=pe, result=tl.int64)
    here = _semantic.bitcast(ptr, tl.pointer_type(tl.int8, ptr.type.scalar.address_space))
    there = _semantic.add(here, distance, sanitize_overflow=False)
    return _semantic.bitcast(there, ptr.type.scalar)


@builtin
def team_my_pe(team: Integer, _semantic: Any = None) -> tl.tensor:
    """Number of the calling PE in ``team``, an int32; -1 if it is not in it. OpenSHMEM 1.5, 9.4.1.

    For ``TEAM_INVALID`` these three are -1, as the standard has it.
    """
    team = _check.team("team_my_pe", "team", team, _semantic)
    return emit(_semantic, op_table.TEAM_MY_PE, team=team, result=tl.int32)


@builtin
def team_n_pes(team: Integer, _semantic: Any = None) -> tl.tensor:
    """Number of PEs in ``team``, an int32; -1 for ``TEAM_INVALID``. OpenSHMEM 1.5, 9.4.2."""
    team = _check.team("team_n_pes", "team", team, _semantic)
    return emit(_semantic, op_table.TEAM_N_PES, team=team, result=tl.int32)


@builtin
def team_translate_pe(src_team: Integer, src_pe: Integer, dest_team: Integer, _semantic: Any = None) -> tl.tensor:
    """Number in ``dest_team`` of PE ``src_pe`` of ``src_team``, an int32; -1 if it is not there.

    OpenSHMEM 1.5, 9.4.5.
    """
    op = "team_translate_pe"
    return emit(
        _semantic,
        op_table.TEAM_TRANSLATE_PE,
        src_team=_check.team(op, "src_team", src_team, _semantic),
        src_pe=_check.number(op, "src_pe", src_pe, _semantic),
        dest_team=_check.team(op, "dest_team", dest_team, _semantic),
        result=tl.int32,
    )
