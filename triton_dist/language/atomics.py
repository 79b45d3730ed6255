"""Atomic memory operations on an element of a symmetric object, on any PE.

Once per program, on 32- and 64-bit integers; ``fetch``, ``set`` and ``swap`` on floats, too, and additions to floats
where the transport has them. ``sem`` orders the program's own accesses around the operation (``"relaxed"``,
``"acquire"``, ``"release"``, ``"acq_rel"``) for observers in ``scope`` (``"cta"``, ``"gpu"``, ``"sys"``), as it does in
Triton's atomics. For an atomic per element of a block use ``tl.atomic_*`` on a pointer of ``symm_at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import AtomicScope, Integer, Number, Pointer, Semantics
from triton_dist.language.constants import MemScope, Sem

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

_INTEGERS = (tl.int32, tl.uint32, tl.int64, tl.uint64)
_FLOATS = (tl.float32, tl.float64)

_PER_ELEMENT = {
    "atomic_fetch": "tl.atomic_or(…, 0)",
    "atomic_set": "tl.atomic_xchg",
    "atomic_swap": "tl.atomic_xchg",
    "atomic_compare_swap": "tl.atomic_cas",
    **dict.fromkeys(("atomic_inc", "atomic_fetch_inc"), "tl.atomic_add(…, 1)"),
    **{
        f"atomic_{fetch}{what}": f"tl.atomic_{what}" for fetch in ("", "fetch_") for what in ("add", "and", "or", "xor")
    },
}
"""Triton's equivalent for a block of pointers, by op."""

_WRAP = {f"atomic_{fetch}{what}" for fetch in ("", "fetch_") for what in ("add", "and", "or", "xor")}
"""Atomics that compute modulo the size of the element, or bit by bit."""


def _atomic(
    op: str,
    dst: Any,
    values: Sequence[tuple[str, Any]],
    pe: Any,
    sem: Any,
    scope: Any,
    semantic: Any,
    *,
    fetches: bool,
    floats: bool = False,
) -> Any:
    dst = _check.pointer(op, "dst", dst, f"for one per element use {_PER_ELEMENT[op]} on dl.symm_at(dst, pe)")
    dtype = dst.type.element_ty
    allowed = _INTEGERS + _FLOATS if floats else _INTEGERS
    if dtype not in allowed:
        raise TypeError(f"{op}: dst must point to one of {', '.join(map(str, allowed))}, got a pointer to {dtype}")
    return emit(
        semantic,
        op,
        [
            dst,
            *(_check.value_of(op, name, value, dtype, semantic, wraps=op in _WRAP) for name, value in values),
            _check.pe_number(op, "pe", pe, semantic),
        ],
        [
            _check.element_type(op, "dst", dst),
            _check.choice(op, "sem", sem, Sem),
            _check.choice(op, "scope", scope, MemScope),
        ],
        result=dtype if fetches else None,
    )


@builtin
def atomic_fetch(
    src: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> tl.tensor:
    """The element at ``src`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.1."""
    return _atomic("atomic_fetch", src, [], pe, sem, scope, _semantic, fetches=True, floats=True)


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
    _atomic("atomic_set", dst, [("value", value)], pe, sem, scope, _semantic, fetches=False, floats=True)


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
    values = [("cond", cond), ("value", value)]
    return _atomic("atomic_compare_swap", dst, values, pe, sem, scope, _semantic, fetches=True)


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
    return _atomic("atomic_swap", dst, [("value", value)], pe, sem, scope, _semantic, fetches=True, floats=True)


@builtin
def atomic_fetch_inc(
    dst: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> tl.tensor:
    """Increment the element at ``dst`` on PE ``pe``; what it was. OpenSHMEM 1.5, 9.7.1.5."""
    return _atomic("atomic_fetch_inc", dst, [], pe, sem, scope, _semantic, fetches=True)


@builtin
def atomic_inc(
    dst: Pointer, pe: Integer, sem: Semantics = "acq_rel", scope: AtomicScope = "sys", _semantic: Any = None
) -> None:
    """Increment the element at ``dst`` on PE ``pe``. OpenSHMEM 1.5, 9.7.1.6."""
    _atomic("atomic_inc", dst, [], pe, sem, scope, _semantic, fetches=False)


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
    return _atomic("atomic_fetch_add", dst, [("value", value)], pe, sem, scope, _semantic, fetches=True, floats=True)


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
    _atomic("atomic_add", dst, [("value", value)], pe, sem, scope, _semantic, fetches=False, floats=True)


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
    return _atomic("atomic_fetch_and", dst, [("value", value)], pe, sem, scope, _semantic, fetches=True)


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
    _atomic("atomic_and", dst, [("value", value)], pe, sem, scope, _semantic, fetches=False)


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
    return _atomic("atomic_fetch_or", dst, [("value", value)], pe, sem, scope, _semantic, fetches=True)


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
    _atomic("atomic_or", dst, [("value", value)], pe, sem, scope, _semantic, fetches=False)


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
    return _atomic("atomic_fetch_xor", dst, [("value", value)], pe, sem, scope, _semantic, fetches=True)


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
    _atomic("atomic_xor", dst, [("value", value)], pe, sem, scope, _semantic, fetches=False)
