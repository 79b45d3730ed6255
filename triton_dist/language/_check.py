"""What the arguments of an op must be. Every failure becomes a CompilationError that shows the user's line."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, TypeVar

import triton.language as tl

from triton_dist._C.op_table import Cmp, ElementType, SignalUpdate
from triton_dist.language.constants import TEAM_INVALID

__all__ = [
    "byte_count",
    "choice",
    "constant",
    "element_bytes",
    "element_count",
    "element_dtypes",
    "element_type",
    "member_team",
    "number",
    "pe_number",
    "pointer",
    "signal_pointer",
    "stride",
    "team",
    "value_of",
    "word",
]

_ELEMENT_TYPES = {
    tl.int8: ElementType.I8,
    tl.uint8: ElementType.U8,
    tl.int16: ElementType.I16,
    tl.uint16: ElementType.U16,
    tl.int32: ElementType.I32,
    tl.uint32: ElementType.U32,
    tl.int64: ElementType.I64,
    tl.uint64: ElementType.U64,
    tl.float16: ElementType.F16,
    tl.bfloat16: ElementType.BF16,
    tl.float32: ElementType.F32,
    tl.float64: ElementType.F64,
}


_FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64)

_E = TypeVar("_E", bound=enum.IntEnum)

_SYMBOLS = {Cmp: "CMP", SignalUpdate: "SIGNAL"}
"""Enumerations whose members are constants of the language, with this prefix. A kernel cannot use them as numbers."""


def _describe(value: Any) -> str:
    if isinstance(value, tl.tensor):
        return f"a value of type {value.type}"
    value = _unwrap(value)
    if type(value) in _SYMBOLS:
        return _spelled(value)
    return f"{value!r} of type {type(value).__name__}"


def _spelled(symbol: enum.IntEnum) -> str:
    """The constant as a kernel spells it."""
    return f"dl.{_SYMBOLS[type(symbol)]}_{symbol.name}"


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def pointer(op: str, name: str, value: Any, instead: str = "pass the pointer to the first element") -> tl.tensor:
    """A scalar pointer; ``instead`` is the error's advice for a block of pointers."""
    if not isinstance(value, tl.tensor) or not value.type.scalar.is_ptr():
        raise TypeError(f"{op}: {name} must be a pointer, got {_describe(value)}")
    if value.type.is_block():
        raise TypeError(
            f"{op}: {name} must be one pointer, got a block of them ({value.type}): the op acts once per program; "
            f"{instead}"
        )
    return value


def signal_pointer(op: str, name: str, value: Any) -> tl.tensor:
    """A scalar pointer to 64-bit words."""
    value = pointer(op, name, value)
    if value.type.element_ty not in (tl.int64, tl.uint64):
        raise TypeError(
            f"{op}: {name} must point to 64-bit signals (a torch.int64 or torch.uint64 symmetric tensor), "
            f"got {_describe(value)}"
        )
    return value


def _bounds(dtype: tl.dtype) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype."""
    bits = dtype.primitive_bitwidth
    return (0, (1 << bits) - 1) if dtype.is_int_unsigned() else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _any_sign(dtype: tl.dtype) -> tuple[int, int]:
    """The smallest and the largest integer that the bits of a dtype represent, as a signed or an unsigned number."""
    bits = dtype.primitive_bitwidth
    return -(1 << bits - 1), (1 << bits) - 1


def _integer(
    op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any, bounds: tuple[int, int] | None = None
) -> tl.tensor:
    """An integer as ``dtype``. A constant is within ``bounds`` (by default all that ``dtype`` holds).

    A run-time value must be no wider than ``dtype``: casting it would silently drop bits.
    """
    constant = _unwrap(value)
    if isinstance(constant, tl.tensor):
        return _run_time_integer(op, name, constant, dtype, semantic)
    if isinstance(constant, (bool, *_SYMBOLS)) or not isinstance(constant, int):
        raise TypeError(f"{op}: {name} must be an integer, got {_describe(value)}")
    low, high = bounds or _bounds(dtype)
    if low == 0 and constant < 0:
        raise ValueError(f"{op}: {name} must not be negative, got {constant}")
    if not low <= constant <= high:
        raise ValueError(f"{op}: {name} is {constant}: it must be within [{low}, {high}]")
    if not dtype.is_int_unsigned() and constant > _bounds(dtype)[1]:
        constant -= 1 << dtype.primitive_bitwidth  # the same bits
    elif dtype.is_int_unsigned() and constant < 0:
        constant += 1 << dtype.primitive_bitwidth
    return semantic.scalar_constant(int(constant), dtype)


def _run_time_integer(op: str, name: str, tensor: tl.tensor, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    scalar = tensor.type.scalar
    if tensor.type.is_block() or not scalar.is_int() or scalar.is_bool():
        raise TypeError(f"{op}: {name} must be one integer, got {_describe(tensor)}")
    if scalar.primitive_bitwidth > dtype.primitive_bitwidth:
        raise TypeError(
            f"{op}: {name} must be an integer of at most {dtype.primitive_bitwidth} bits, got {_describe(tensor)}: "
            f"where its values fit, cast it with .to(tl.{dtype})"
        )
    return semantic.cast(tensor, dtype)


def pe_number(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A PE number as int32."""
    return _integer(op, name, value, tl.int32, semantic, (0, _bounds(tl.int32)[1]))


def byte_count(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A size in bytes, or a number of elements, as int64."""
    return _integer(op, name, value, tl.int64, semantic, (0, _bounds(tl.int64)[1]))


def element_bytes(op: str, dtype: tl.dtype) -> int:
    """Bytes from one element to the next: an int1 (``torch.bool``) takes one byte in memory."""
    bits = int(dtype.primitive_bitwidth) if dtype.is_int() or dtype.is_floating() else 0
    if not bits:
        raise TypeError(f"{op}: elements of type {dtype} have no known size: copy bytes with putmem or getmem")
    return max(1, bits // 8)


def element_count(op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    """A number of elements of ``dtype``, as bytes in int64 (64-bit from the first multiplication on)."""
    itemsize = element_bytes(op, dtype)
    count = _integer(op, name, value, tl.int64, semantic, (0, _bounds(tl.int64)[1] // itemsize))
    return semantic.mul(count, semantic.scalar_constant(itemsize, tl.int64), sanitize_overflow=False)


def team(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A team's handle as int32."""
    return _integer(op, name, value, tl.int32, semantic, (TEAM_INVALID.value, _bounds(tl.int32)[1]))


def member_team(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """The handle, as int32, of a team for a collective operation."""
    constant = _unwrap(value)
    if not isinstance(constant, tl.tensor) and constant == TEAM_INVALID.value:
        raise ValueError(f"{op}: {name} is dl.TEAM_INVALID, which has no PEs: pass the handle of a team with this PE")
    return team(op, name, value, semantic)


def number(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """An int32."""
    return _integer(op, name, value, tl.int32, semantic)


def stride(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A distance in elements as int64; it may be negative."""
    return _integer(op, name, value, tl.int64, semantic)


def element_dtypes(elements: Iterable[ElementType]) -> tuple[tl.dtype, ...]:
    """Triton's types of these C element types."""
    return tuple(dtype for dtype, element in _ELEMENT_TYPES.items() if element in elements)


def element_type(op: str, name: str, ptr: tl.tensor) -> ElementType:
    """The C element type that the pointer ``ptr`` points to."""
    dtype = ptr.type.element_ty
    if dtype not in _ELEMENT_TYPES:
        raise TypeError(f"{op}: {name} points to {dtype}, which OpenSHMEM has no routine for")
    return _ELEMENT_TYPES[dtype]


def value_of(op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any, *, wraps: bool = False) -> tl.tensor:
    """A scalar as ``dtype``, the element type of the op's pointer: a number, or a value of a type that fits.

    Args:
        wraps: the op computes modulo the size of the element or bit by bit, so that a constant may be any whose bits
            fit: -1 for an unsigned element, 0xFFFFFFFF for an int32.
    """
    constant = _unwrap(value)
    if isinstance(constant, tuple(_SYMBOLS)) or not isinstance(constant, (int, float, tl.tensor)):
        raise TypeError(f"{op}: {name} must be a number, got {_describe(value)}")
    is_bool = isinstance(constant, bool) or (isinstance(constant, tl.tensor) and constant.type.scalar.is_bool())
    if is_bool and not dtype.is_bool():
        raise TypeError(f"{op}: {name} must be a number, as {dtype} is, got {_describe(value)}")
    if not isinstance(constant, tl.tensor):
        if dtype.is_bool():
            return _constant_bool(op, name, constant, semantic)
        if dtype.is_int() and isinstance(constant, int):
            return _integer(op, name, value, dtype, semantic, _any_sign(dtype) if wraps else None)
        if dtype in _FLOATS:  # Triton's own constants are float32 where they can, and lose -0.0's sign
            return tl.tensor(getattr(semantic.builder, f"get_{dtype.name}")(float(constant)), dtype)
    tensor = semantic.to_tensor(constant)
    if tensor.type.is_block() or tensor.type.scalar.is_ptr():
        raise TypeError(f"{op}: {name} must be one number, got {_describe(tensor)}")
    if tensor.type.scalar.is_floating() and not dtype.is_floating():
        raise TypeError(f"{op}: {name} must be an integer, as {dtype} is, got {_describe(value)}")
    if dtype.is_bool() and not is_bool:
        raise TypeError(f"{op}: {name} must be a truth value (int1), as {dtype} is, got {_describe(value)}")
    if dtype.is_int() and not is_bool:
        return _run_time_integer(op, name, tensor, dtype, semantic)
    return semantic.cast(tensor, dtype)


def _constant_bool(op: str, name: str, value: int | float, semantic: Any) -> tl.tensor:
    if value not in (0, 1):
        raise ValueError(f"{op}: {name} must be True or False, as the elements are, got {_describe(value)}")
    return semantic.scalar_constant(bool(value), tl.int1)


def choice(op: str, name: str, value: Any, kind: type[_E]) -> _E:
    """A keyword's text, such as ``scope="block"``."""
    text = _unwrap(value)
    if not isinstance(text, str) or text.upper() not in kind.__members__:
        allowed = ", ".join(repr(member.name.lower()) for member in kind)
        raise ValueError(f"{op}: {name} must be one of {allowed}, got {_describe(value)}")
    return kind[text.upper()]


def word(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A 64-bit word as int64 (the bits; the library takes uint64_t)."""
    return _integer(op, name, value, tl.int64, semantic, _any_sign(tl.int64))


def constant(op: str, name: str, value: Any, kind: type[_E]) -> _E:
    """One of the symbolic constants of ``kind``."""
    value = _unwrap(value)
    if not isinstance(value, kind):
        allowed = ", ".join(map(_spelled, kind))
        raise ValueError(f"{op}: {name} must be one of {allowed}, got {_describe(value)}")
    return value
