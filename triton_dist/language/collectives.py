"""Collectives: every PE of a team takes part, with one program at a time.

A collective waits for the other PEs, so the programs that call it must all be resident at once, and no two programs of
a PE may be in collectives of one team at the same time. All operands on the symmetric heap are the same object on every
PE. What a program wrote before is visible to the others when they return, and they may read it at once.

``scope`` says which threads of the program do the work: ``"block"`` (the default), ``"warp"`` or ``"thread"``.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Pointer, Scope
from triton_dist.language.constants import ElementType, Reduction, ThreadScope

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


def _scope(op: str, scope: Any) -> int:
    return _check.choice(op, "scope", scope, ThreadScope)


@builtin
def barrier_all(scope: Scope = "block", _semantic: Any = None) -> None:
    """Complete outstanding operations and wait until every PE has called it. OpenSHMEM 1.5, 9.9.1."""
    emit(_semantic, "barrier_all", attributes=[_scope("barrier_all", scope)])


@builtin
def sync_all(scope: Scope = "block", _semantic: Any = None) -> None:
    """Wait until every PE has called it, without completing remote updates. OpenSHMEM 1.5, 9.9.4."""
    emit(_semantic, "sync_all", attributes=[_scope("sync_all", scope)])


@builtin
def barrier(team: Integer, scope: Scope = "block", _semantic: Any = None) -> None:
    """Complete outstanding operations and wait until every PE of ``team`` has called it: ``quiet``, then ``sync``."""
    emit(_semantic, "barrier", [_check.member_team("barrier", "team", team, _semantic)], [_scope("barrier", scope)])


@builtin
def sync(team: Integer, scope: Scope = "block", _semantic: Any = None) -> None:
    """Wait until every PE of ``team`` has called it. OpenSHMEM 1.5, 9.9.3."""
    emit(_semantic, "sync", [_check.member_team("sync", "team", team, _semantic)], [_scope("sync", scope)])


def _team_and_pointers(op: str, team: Any, dst: Any, src: Any, semantic: Any) -> list[tl.tensor]:
    operands = [
        _check.member_team(op, "team", team, semantic),
        _check.pointer(op, "dst", dst),
        _check.pointer(op, "src", src),
    ]
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
    operands.append(_check.element_count("broadcast", "nelems", nelems, src.type.element_ty, _semantic))
    operands.append(_check.pe_number("broadcast", "root", root, _semantic))
    emit(_semantic, "broadcast", operands, [_scope("broadcast", scope)])


def _exchange(op: str, team: Any, dst: Any, src: Any, nelems: Any, scope: Any, semantic: Any) -> None:
    operands = _team_and_pointers(op, team, dst, src, semantic)
    operands.append(_check.element_count(op, "nelems", nelems, src.type.element_ty, semantic))
    emit(semantic, op, operands, [_scope(op, scope)])


@builtin
def fcollect(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Concatenate, in the order of PEs, ``nelems`` elements of every PE's ``src`` in ``dst`` on all.

    OpenSHMEM 1.5, 9.9.8.
    """
    _exchange("fcollect", team, dst, src, nelems, scope, _semantic)


@builtin
def alltoall(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Send block ``i`` of ``src``, ``nelems`` elements, to PE ``i``, where it is block ``my_pe`` of ``dst``.

    OpenSHMEM 1.5, 9.9.5.
    """
    _exchange("alltoall", team, dst, src, nelems, scope, _semantic)


def _reduce(
    op: str, reduction: Reduction, team: Any, dst: Any, src: Any, nelems: Any, scope: Any, semantic: Any
) -> None:
    name = f"{reduction.name.lower()}_{op}"
    operands = _team_and_pointers(name, team, dst, src, semantic)
    operands.append(_check.byte_count(name, "nelems", nelems, semantic))
    element_type = _check.element_type(name, "src", src)
    if reduction in _BITWISE and element_type in _FLOATS:
        raise TypeError(f"{name}: src must point to integers, got a pointer to {src.type.element_ty}")
    emit(semantic, op, operands, [reduction, element_type, _scope(name, scope)])


@builtin
def sum_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by addition into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.6.
    """
    _reduce("reduce", Reduction.SUM, team, dst, src, nelems, scope, _semantic)


@builtin
def prod_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by multiplication into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.7.
    """
    _reduce("reduce", Reduction.PROD, team, dst, src, nelems, scope, _semantic)


@builtin
def min_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by minimum into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.5.
    """
    _reduce("reduce", Reduction.MIN, team, dst, src, nelems, scope, _semantic)


@builtin
def max_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by maximum into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.4.
    """
    _reduce("reduce", Reduction.MAX, team, dst, src, nelems, scope, _semantic)


@builtin
def and_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise and into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.1.
    """
    _reduce("reduce", Reduction.AND, team, dst, src, nelems, scope, _semantic)


@builtin
def or_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise or into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.2.
    """
    _reduce("reduce", Reduction.OR, team, dst, src, nelems, scope, _semantic)


@builtin
def xor_reduce(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """Combine the elements of every PE\'s ``src`` by bitwise exclusive or into ``dst`` on all; ``dst`` may be ``src``.

    OpenSHMEM 1.5, 9.9.9.3.
    """
    _reduce("reduce", Reduction.XOR, team, dst, src, nelems, scope, _semantic)


@builtin
def sum_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``sum_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.SUM, team, dst, src, nelems, scope, _semantic)


@builtin
def prod_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``prod_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.PROD, team, dst, src, nelems, scope, _semantic)


@builtin
def min_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``min_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.MIN, team, dst, src, nelems, scope, _semantic)


@builtin
def max_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``max_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.MAX, team, dst, src, nelems, scope, _semantic)


@builtin
def and_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``and_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.AND, team, dst, src, nelems, scope, _semantic)


@builtin
def or_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``or_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.OR, team, dst, src, nelems, scope, _semantic)


@builtin
def xor_reducescatter(
    team: Integer, dst: Pointer, src: Pointer, nelems: Integer, scope: Scope = "block", _semantic: Any = None
) -> None:
    """As ``xor_reduce``, but PE ``p`` gets the part of ``nelems`` elements that begins at ``p * nelems``.

    NVSHMEM's ``reducescatter``.
    """
    _reduce("reducescatter", Reduction.XOR, team, dst, src, nelems, scope, _semantic)
