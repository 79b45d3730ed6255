"""Collectives: every PE of a team takes part, with one program at a time.

A collective waits for the other PEs, so the programs that call it must all be resident at once, and no two programs of
a PE may be in collectives of one team at the same time. All operands on the symmetric heap are the same object on every
PE. What a program wrote before is visible to the others when they return, and they may read it at once.

``scope`` says which threads of the program do the work: ``"block"`` (the default), ``"warp"`` or ``"thread"``.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import ElementType, Op, Reduction, ThreadScope
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Pointer, Scope

__all__ = [
    "alltoall",
    "and_reduce",
    "and_reducescatter",
    "barrier",
    "barrier_all",
    "broadcast",
    "fcollect",
    "max_reduce",
    "max_reducescatter",
    "min_reduce",
    "min_reducescatter",
    "or_reduce",
    "or_reducescatter",
    "prod_reduce",
    "prod_reducescatter",
    "sum_reduce",
    "sum_reducescatter",
    "sync",
    "sync_all",
    "xor_reduce",
    "xor_reducescatter",
]

_BITWISE = (Reduction.AND, Reduction.OR, Reduction.XOR)
_FLOATS = (ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.F64)


def _scope(op: str, scope: Any) -> ThreadScope:
    return _check.choice(op, "scope", scope, ThreadScope)


@builtin
def barrier_all(scope: Scope = "block", _semantic: Any = None) -> None:
    """Complete outstanding operations and wait until every PE has called it. OpenSHMEM 1.5, 9.9.1."""
    emit(_semantic, op_table.BARRIER_ALL, scope=_scope("barrier_all", scope))


@builtin
def sync_all(scope: Scope = "block", _semantic: Any = None) -> None:
    """Wait until every PE has called it, without completing remote updates. OpenSHMEM 1.5, 9.9.4."""
    emit(_semantic, op_table.SYNC_ALL, scope=_scope("sync_all", scope))


@builtin
def barrier(team: Integer, scope: Scope = "block", _semantic: Any = None) -> None:
    """Complete outstanding operations and wait until every PE of ``team`` has called it: ``quiet``, then ``sync``."""
    team = _check.member_team("barrier", "team", team, _semantic)
    emit(_semantic, op_table.BARRIER, team=team, scope=_scope("barrier", scope))


@builtin
def sync(team: Integer, scope: Scope = "block", _semantic: Any = None) -> None:
    """Wait until every PE of ``team`` has called it. OpenSHMEM 1.5, 9.9.3."""
    team = _check.member_team("sync", "team", team, _semantic)
    emit(_semantic, op_table.SYNC, team=team, scope=_scope("sync", scope))


def _team_and_pointers(op: str, team: Any, dst: Any, src: Any, semantic: Any) -> dict[str, tl.tensor]:
    operands = {
        "team": _check.member_team(op, "team", team, semantic),
        "dst": _check.pointer(op, "dst", dst),
        "src": _check.pointer(op, "src", src),
    }
    if dst.type.element_ty != src.type.element_ty:
        raise TypeError(
            f"{op}: dst and src must have one element type, got {dst.type.element_ty} and {src.type.element_ty}"
        )
    return operands


@builtin
def broadcast(
    team: Integer,
    dst: Pointer,
    src: Pointer,
    nelems: Integer,
    root: Integer,
    scope: Scope = "block",
    _semantic: Any = None,
) -> None:
    """Copy ``nelems`` elements at ``src`` on PE ``root`` of ``team`` to ``dst`` on all of its PEs.

    OpenSHMEM 1.5, 9.9.7.
    """
    operands = _team_and_pointers("broadcast", team, dst, src, _semantic)
    operands["nbytes"] = _check.element_count("broadcast", "nelems", nelems, src.type.element_ty, _semantic)
    operands["root"] = _check.pe_number("broadcast", "root", root, _semantic)
    emit(_semantic, op_table.BROADCAST, **operands, scope=_scope("broadcast", scope))


def _exchange(op: Op, team: Any, dst: Any, src: Any, nelems: Any, scope: Any, semantic: Any) -> None:
    operands = _team_and_pointers(op.name, team, dst, src, semantic)
    operands["nbytes"] = _check.element_count(op.name, "nelems", nelems, src.type.element_ty, semantic)
    emit(semantic, op, **operands, scope=_scope(op.name, scope))


@builtin
def fcollect(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Concatenate, in the order of PEs, ``nelems`` elements of every PE's ``src`` in ``dst`` on all.

    OpenSHMEM 1.5, 9.9.8.
    """
    _exchange(op_table.FCOLLECT, team, dst, src, nelems, scope, _semantic)


@builtin
def alltoall(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Send block ``i`` of ``src``, ``nelems`` elements, to PE ``i``, where it is block ``my_pe`` of ``dst``.

    OpenSHMEM 1.5, 9.9.5.
    """
    _exchange(op_table.ALLTOALL, team, dst, src, nelems, scope, _semantic)


def _reduce(
    op: Op, reduction: Reduction, team: Any, dst: Any, src: Any, nelems: Any, scope: Any, semantic: Any
) -> None:
    name = f"{reduction.name.lower()}_{op.name}"
    operands = _team_and_pointers(name, team, dst, src, semantic)
    operands["nelems"] = _check.byte_count(name, "nelems", nelems, semantic)
    element_type = _check.element_type(name, "src", src)
    if reduction in _BITWISE and element_type in _FLOATS:
        raise TypeError(f"{name}: src must point to integers, got a pointer to {src.type.element_ty}")
    emit(semantic, op, **operands, op=reduction, type=element_type, scope=_scope(name, scope))


@builtin
def sum_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by addition into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.6.
    """
    _reduce(op_table.REDUCE, Reduction.SUM, team, dst, src, nelems, scope, _semantic)


@builtin
def prod_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by multiplication into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.7.
    """
    _reduce(op_table.REDUCE, Reduction.PROD, team, dst, src, nelems, scope, _semantic)


@builtin
def min_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by minimum into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.5.
    """
    _reduce(op_table.REDUCE, Reduction.MIN, team, dst, src, nelems, scope, _semantic)


@builtin
def max_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by maximum into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.4.
    """
    _reduce(op_table.REDUCE, Reduction.MAX, team, dst, src, nelems, scope, _semantic)


@builtin
def and_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise and into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.1.
    """
    _reduce(op_table.REDUCE, Reduction.AND, team, dst, src, nelems, scope, _semantic)


@builtin
def or_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise or into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.2.
    """
    _reduce(op_table.REDUCE, Reduction.OR, team, dst, src, nelems, scope, _semantic)


@builtin
def xor_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise exclusive or into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.3.
    """
    _reduce(op_table.REDUCE, Reduction.XOR, team, dst, src, nelems, scope, _semantic)


@builtin
def sum_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``sum_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.SUM, team, dst, src, nelems, scope, _semantic)


@builtin
def prod_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``prod_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.PROD, team, dst, src, nelems, scope, _semantic)


@builtin
def min_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``min_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.MIN, team, dst, src, nelems, scope, _semantic)


@builtin
def max_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``max_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.MAX, team, dst, src, nelems, scope, _semantic)


@builtin
def and_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``and_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.AND, team, dst, src, nelems, scope, _semantic)


@builtin
def or_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``or_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.OR, team, dst, src, nelems, scope, _semantic)


@builtin
def xor_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``xor_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce(op_table.REDUCESCATTER, Reduction.XOR, team, dst, src, nelems, scope, _semantic)
