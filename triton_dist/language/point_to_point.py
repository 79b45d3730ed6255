"""Point-to-point synchronisation: wait for, or test, elements of this PE's symmetric memory that others update.

Elements are 16-, 32- or 64-bit integers, compared with or without a sign as their type says. Waits return a token for
``consume_token`` (``any`` and ``some`` return their result, which is the token, too). The ``_vector`` forms compare
element ``i`` with ``cmp_values[i]``. Where ``status`` is a pointer to int32, elements whose status is not zero are left
out; ``None`` takes all. OpenSHMEM 1.5, 9.10.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import Cmp, Op
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language._types import Integer, Pointer

__all__ = [
    "test",
    "test_all",
    "test_all_vector",
    "test_any",
    "test_any_vector",
    "test_some",
    "test_some_vector",
    "wait_until",
    "wait_until_all",
    "wait_until_all_vector",
    "wait_until_any",
    "wait_until_any_vector",
    "wait_until_some",
    "wait_until_some_vector",
]


def _elements(op: Op, name: str, value: Any) -> tl.tensor:
    ptr = _check.pointer(op.name, name, value)
    if ptr.type.element_ty not in _check.element_dtypes(op.elements):
        raise TypeError(
            f"{op.name}: {name} must point to 16-, 32- or 64-bit integers, got a pointer to {ptr.type.element_ty}"
        )
    return ptr


def _status(op: str, value: Any, semantic: Any) -> tl.tensor:
    """A pointer to int32, or null for None."""
    if getattr(value, "value", value) is None:
        return semantic.cast(semantic.scalar_constant(0, tl.int64), tl.pointer_type(tl.int32))
    ptr = _check.pointer(op, "status", value)
    if ptr.type.element_ty != tl.int32:
        raise TypeError(f"{op}: status must point to int32, got a pointer to {ptr.type.element_ty}")
    return ptr


def _indices(op: str, value: Any) -> tl.tensor:
    """The buffer for the indices of elements that compare true, which every form of ``some`` writes."""
    ptr = _check.pointer(op, "indices", value)
    if ptr.type.element_ty not in (tl.int64, tl.uint64):
        raise TypeError(f"{op}: indices must point to int64, got a pointer to {ptr.type.element_ty}")
    return ptr


def _one(op: Op, ivar: Any, cmp: Any, cmp_value: Any, semantic: Any, result: tl.dtype) -> tl.tensor:
    ivar = _elements(op, "ivar", ivar)
    return emit(
        semantic,
        op,
        ivar=ivar,
        cmp_value=_check.value_of(op.name, "cmp_value", cmp_value, ivar.type.element_ty, semantic),
        cmp=_check.constant(op.name, "cmp", cmp, Cmp),
        type=_check.element_type(op.name, "ivar", ivar),
        result=result,
    )


def _many(
    op: Op,
    ivars: Any,
    nelems: Any,
    status: Any,
    cmp: Any,
    compared: Any,
    semantic: Any,
    result: tl.dtype,
    indices: Any = None,
) -> tl.tensor:
    ivars = _elements(op, "ivars", ivars)
    dtype = ivars.type.element_ty
    name = op.name
    operands = {"ivars": ivars, "nelems": _check.byte_count(name, "nelems", nelems, semantic)}
    if "indices" in op.operands:
        operands["indices"] = _indices(name, indices)
    operands["status"] = _status(name, status, semantic)
    if "cmp_values" in op.operands:
        operands["cmp_values"] = compared = _check.pointer(name, "cmp_values", compared)
        if compared.type.element_ty != dtype:
            raise TypeError(f"{name}: cmp_values must point to {dtype}, as ivars does, got {compared.type.element_ty}")
    else:
        operands["cmp_value"] = _check.value_of(name, "cmp_value", compared, dtype, semantic)
    comparison, element_type = _check.constant(name, "cmp", cmp, Cmp), _check.element_type(name, "ivars", ivars)
    return emit(semantic, op, **operands, cmp=comparison, type=element_type, result=result)


@builtin
def wait_until(ivar: Pointer, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None) -> tl.tensor:
    """Wait until the element at ``ivar`` compares true; a token. OpenSHMEM 1.5, 9.10.1."""
    return _one(op_table.WAIT_UNTIL, ivar, cmp, cmp_value, _semantic, tl.int64)


@builtin
def wait_until_all(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None
) -> tl.tensor:
    """Wait until all elements compare true; a token. OpenSHMEM 1.5, 9.10.2."""
    return _many(op_table.WAIT_UNTIL_ALL, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int64)


@builtin
def wait_until_any(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None
) -> tl.tensor:
    """Wait until an element compares true; its index, -1 when none is selected. OpenSHMEM 1.5, 9.10.3."""
    return _many(op_table.WAIT_UNTIL_ANY, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int64)


@builtin
def wait_until_some(
    ivars: Pointer,
    nelems: Integer,
    indices: Pointer,
    status: Any,
    cmp: tl.constexpr,
    cmp_value: Integer,
    _semantic: Any = None,
) -> tl.tensor:
    """Wait until some elements compare true; how many, their indices in ``indices`` (int64). OpenSHMEM 1.5, 9.10.4."""
    return _many(op_table.WAIT_UNTIL_SOME, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int64, indices)


@builtin
def wait_until_all_vector(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_values: Pointer, _semantic: Any = None
) -> tl.tensor:
    """Wait until all elements compare true, each with its own value; a token. OpenSHMEM 1.5, 9.10.5."""
    return _many(op_table.WAIT_UNTIL_ALL_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int64)


@builtin
def wait_until_any_vector(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_values: Pointer, _semantic: Any = None
) -> tl.tensor:
    """Wait until an element compares true with its own value; its index. OpenSHMEM 1.5, 9.10.6."""
    return _many(op_table.WAIT_UNTIL_ANY_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int64)


@builtin
def wait_until_some_vector(
    ivars: Pointer,
    nelems: Integer,
    indices: Pointer,
    status: Any,
    cmp: tl.constexpr,
    cmp_values: Pointer,
    _semantic: Any = None,
) -> tl.tensor:
    """Wait until some elements compare true, each with its own value; how many. OpenSHMEM 1.5, 9.10.7."""
    return _many(op_table.WAIT_UNTIL_SOME_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int64, indices)


@builtin
def test(ivar: Pointer, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None) -> tl.tensor:
    """Whether the element at ``ivar`` compares true, an int32. OpenSHMEM 1.5, 9.10.8."""
    return _one(op_table.TEST, ivar, cmp, cmp_value, _semantic, tl.int32)


@builtin
def test_all(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None
) -> tl.tensor:
    """Whether all elements compare true, an int32. OpenSHMEM 1.5, 9.10.9."""
    return _many(op_table.TEST_ALL, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int32)


@builtin
def test_any(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_value: Integer, _semantic: Any = None
) -> tl.tensor:
    """The index of an element that compares true, -1 when none does. OpenSHMEM 1.5, 9.10.10."""
    return _many(op_table.TEST_ANY, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int64)


@builtin
def test_some(
    ivars: Pointer,
    nelems: Integer,
    indices: Pointer,
    status: Any,
    cmp: tl.constexpr,
    cmp_value: Integer,
    _semantic: Any = None,
) -> tl.tensor:
    """How many elements compare true, their indices in ``indices`` (int64). OpenSHMEM 1.5, 9.10.11."""
    return _many(op_table.TEST_SOME, ivars, nelems, status, cmp, cmp_value, _semantic, tl.int64, indices)


@builtin
def test_all_vector(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_values: Pointer, _semantic: Any = None
) -> tl.tensor:
    """Whether all elements compare true, each with its own value, an int32. OpenSHMEM 1.5, 9.10.12."""
    return _many(op_table.TEST_ALL_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int32)


@builtin
def test_any_vector(
    ivars: Pointer, nelems: Integer, status: Any, cmp: tl.constexpr, cmp_values: Pointer, _semantic: Any = None
) -> tl.tensor:
    """The index of an element that compares true with its own value, -1 when none does. OpenSHMEM 1.5, 9.10.13."""
    return _many(op_table.TEST_ANY_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int64)


@builtin
def test_some_vector(
    ivars: Pointer,
    nelems: Integer,
    indices: Pointer,
    status: Any,
    cmp: tl.constexpr,
    cmp_values: Pointer,
    _semantic: Any = None,
) -> tl.tensor:
    """How many elements compare true, each with its own value. OpenSHMEM 1.5, 9.10.14."""
    return _many(op_table.TEST_SOME_VECTOR, ivars, nelems, status, cmp, cmp_values, _semantic, tl.int64, indices)
