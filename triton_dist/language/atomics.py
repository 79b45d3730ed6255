"""Atomic memory operations on an element of a symmetric object, on any PE.

Once per program, on 32- and 64-bit integers; ``fetch``, ``set`` and ``swap`` on floats, too, and additions to floats
where the transport has them. ``sem`` orders the program's own accesses around the operation (``"relaxed"``,
``"acquire"``, ``"release"``, ``"acq_rel"``) for observers in ``scope`` (``"cta"``, ``"gpu"``, ``"sys"``), as it does in
Triton's atomics. For an atomic per element of a block use ``tl.atomic_*`` on a pointer of ``symm_at``.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import MemScope, Op, Sem, Update
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import AtomicScope, Integer, Number, Pointer, Semantics

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_compare_swap",
    "atomic_fetch",
    "atomic_fetch_add",
    "atomic_fetch_and",
    "atomic_fetch_inc",
    "atomic_fetch_or",
    "atomic_fetch_xor",
    "atomic_inc",
    "atomic_or",
    "atomic_set",
    "atomic_swap",
    "atomic_xor",
]

_BITWISE_OR_MODULAR = {Update.ADD: "add", Update.AND: "and", Update.OR: "or", Update.XOR: "xor"}
"""Atomics that compute modulo the size of the element, or bit by bit, and what Triton calls them."""


def _per_element(op: Op) -> str:
    """Triton's equivalent for a block of pointers."""
    if op.update in _BITWISE_OR_MODULAR:
        return f"tl.atomic_{_BITWISE_OR_MODULAR[op.update]}{'' if 'value' in op.operands else '(…, 1)'}"
    if op.update is Update.KEEP:
        return "tl.atomic_or(…, 0)"
    return "tl.atomic_xchg" if op.update is Update.SET else "tl.atomic_cas"


def _atomic(op: Op, dst: Any, pe: Any, sem: Any, scope: Any, semantic: Any, **values: Any) -> Any:
    dst = _check.pointer(op.name, "dst", dst, f"for one per element use {_per_element(op)} on dl.symm_at(dst, pe)")
    dtype = dst.type.element_ty
    allowed = _check.element_dtypes(op.elements)
    if dtype not in allowed:
        raise TypeError(f"{op.name}: dst must point to one of {', '.join(map(str, allowed))}, got a pointer to {dtype}")
    wraps = op.update in _BITWISE_OR_MODULAR
    return emit(
        semantic,
        op,
        dst=dst,
        **{name: _check.value_of(op.name, name, value, dtype, semantic, wraps=wraps) for name, value in values.items()},
        pe=_check.pe_number(op.name, "pe", pe, semantic),
        type=_check.element_type(op.name, "dst", dst),
        sem=_check.choice(op.name, "sem", sem, Sem),
        mem_scope=_check.choice(op.name, "scope", scope, MemScope),
        result=dtype if op.result else None,
    )


@builtin
def atomic_fetch(
    src: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> tl.tensor:
    """The element at ``src`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.1."""
    return _atomic(op_table.ATOMIC_FETCH, src, pe, sem, scope, _semantic)


@builtin
def atomic_set(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> None:
    """Write the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.2."""
    _atomic(op_table.ATOMIC_SET, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_compare_swap(
    dst: Pointer,
    cond: Number,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """Write ``value`` to the element at ``dst`` on PE ``pe`` if it is ``cond``; what it was. OpenSHMEM 1.5, 9.7.1.3."""
    return _atomic(op_table.ATOMIC_COMPARE_SWAP, dst, pe, sem, scope, _semantic, cond=cond, value=value)


@builtin
def atomic_swap(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """Write the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.4."""
    return _atomic(op_table.ATOMIC_SWAP, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_fetch_inc(
    dst: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> tl.tensor:
    """Increment the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.5."""
    return _atomic(op_table.ATOMIC_FETCH_INC, dst, pe, sem, scope, _semantic)


@builtin
def atomic_inc(
    dst: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> None:
    """Increment the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.6."""
    _atomic(op_table.ATOMIC_INC, dst, pe, sem, scope, _semantic)


@builtin
def atomic_fetch_add(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """Add to the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.7."""
    return _atomic(op_table.ATOMIC_FETCH_ADD, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_add(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> None:
    """Add to the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.8."""
    _atomic(op_table.ATOMIC_ADD, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_fetch_and(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """And into the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.9."""
    return _atomic(op_table.ATOMIC_FETCH_AND, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_and(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> None:
    """And into the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.10."""
    _atomic(op_table.ATOMIC_AND, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_fetch_or(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """Or into the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.11."""
    return _atomic(op_table.ATOMIC_FETCH_OR, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_or(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> None:
    """Or into the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.12."""
    _atomic(op_table.ATOMIC_OR, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_fetch_xor(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> tl.tensor:
    """Exclusive-or into the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.13."""
    return _atomic(op_table.ATOMIC_FETCH_XOR, dst, pe, sem, scope, _semantic, value=value)


@builtin
def atomic_xor(
    dst: Pointer,
    value: Number,
    pe: Integer,
    sem: Semantics = "acq_rel",
    scope: AtomicScope = "sys",
    _semantic: Any = None,
) -> None:
    """Exclusive-or into the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.14."""
    _atomic(op_table.ATOMIC_XOR, dst, pe, sem, scope, _semantic, value=value)
