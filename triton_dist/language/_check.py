"""What the arguments of an op must be. Every failure becomes a CompilationError that shows the user's line."""

from __future__ import annotations

import enum
from typing import Any

import triton.language as tl

from triton_dist.language.constants import ElementType

__all__ = [
    "byte_count",
    "choice",
    "constant",
    "element_count",
    "element_type",
    "number",
    "pe_number",
    "pointer",
    "signal_pointer",
    "stride",
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


def _describe(value: Any) -> str:
    if isinstance(value, tl.tensor):
        return f"a value of type {value.type}"
    value = getattr(value, "value", value)
    return f"{value!r} of type {type(value).__name__}"


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def pointer(op: str, name: str, value: Any) -> tl.tensor:
    """A scalar pointer."""
    if not isinstance(value, tl.tensor) or not value.type.scalar.is_ptr():
        raise TypeError(f"{op}: {name} must be a pointer, got {_describe(value)}")
    if value.type.is_block():
        raise TypeError(
            f"{op}: {name} must be one pointer, got a block of them ({value.type}): the op acts once per program; "
            "pass the pointer to the first element"
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


def _integer(op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    constant = _unwrap(value)
    if isinstance(constant, bool) or not isinstance(constant, (int, tl.tensor)):
        raise TypeError(f"{op}: {name} must be an integer, got {_describe(value)}")
    tensor = semantic.to_tensor(constant)
    if tensor.type.is_block() or not tensor.type.scalar.is_int() or tensor.type.scalar.is_bool():
        raise TypeError(f"{op}: {name} must be one integer, got {_describe(tensor)}")
    return semantic.cast(tensor, dtype)


def _non_negative(op: str, name: str, value: Any) -> None:
    constant = _unwrap(value)
    if isinstance(constant, int) and constant < 0:
        raise ValueError(f"{op}: {name} must not be negative, got {constant}")


def pe_number(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A PE number as int32."""
    _non_negative(op, name, value)
    return _integer(op, name, value, tl.int32, semantic)


def byte_count(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A size in bytes as int64."""
    _non_negative(op, name, value)
    return _integer(op, name, value, tl.int64, semantic)


def element_count(op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    """A number of elements of ``dtype``, as bytes in int64 (64-bit from the first multiplication on)."""
    count = byte_count(op, name, value, semantic)
    itemsize = semantic.scalar_constant(dtype.primitive_bitwidth // 8, tl.int64)
    return semantic.mul(count, itemsize, sanitize_overflow=False)


def number(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """An int32, such as a team."""
    return _integer(op, name, value, tl.int32, semantic)


def stride(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A distance in elements as int64; it may be negative."""
    return _integer(op, name, value, tl.int64, semantic)


def element_type(op: str, name: str, ptr: tl.tensor) -> ElementType:
    """The C element type that the pointer ``ptr`` points to."""
    dtype = ptr.type.element_ty
    if dtype not in _ELEMENT_TYPES:
        raise TypeError(f"{op}: {name} points to {dtype}, which OpenSHMEM has no routine for")
    return _ELEMENT_TYPES[dtype]


def value_of(op: str, name: str, value: Any, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    """A scalar as ``dtype``, which is what the op's pointer points to: a number, or a value of a type that fits."""
    constant = _unwrap(value)
    if isinstance(constant, bool) or not isinstance(constant, (int, float, tl.tensor)):
        raise TypeError(f"{op}: {name} must be a number, got {_describe(value)}")
    tensor = semantic.to_tensor(constant)
    if tensor.type.is_block() or tensor.type.scalar.is_ptr():
        raise TypeError(f"{op}: {name} must be one number, got {_describe(tensor)}")
    if tensor.type.scalar.is_floating() and not dtype.is_floating():
        raise TypeError(f"{op}: {name} must be an integer, as {dtype} is, got {_describe(tensor)}")
    return semantic.cast(tensor, dtype)


def choice(op: str, name: str, value: Any, kind: type[enum.IntEnum]) -> int:
    """A keyword's text, such as ``scope="block"``."""
    text = _unwrap(value)
    if not isinstance(text, str) or text.upper() not in kind.__members__:
        allowed = ", ".join(repr(member.name.lower()) for member in kind)
        raise ValueError(f"{op}: {name} must be one of {allowed}, got {_describe(value)}")
    return int(kind[text.upper()])


def word(op: str, name: str, value: Any, semantic: Any) -> tl.tensor:
    """A 64-bit word as int64 (the bits; the library takes uint64_t)."""
    return _integer(op, name, value, tl.int64, semantic)


def constant(op: str, name: str, value: Any, kind: type[enum.IntEnum]) -> int:
    """One of the symbolic constants of ``kind``."""
    value = _unwrap(value)
    if not isinstance(value, kind):
        allowed = ", ".join(f"dl.{member.name}" for member in kind)
        raise ValueError(f"{op}: {name} must be one of {allowed}, got {_describe(value)}")
    return int(value)
