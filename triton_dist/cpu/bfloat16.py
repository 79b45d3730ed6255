"""bfloat16 in numpy, which has none: the interpreter keeps such values as uint16.

Triton's interpreter truncates where hardware rounds, and adds or multiplies the uint16s as if they were the values.
Here every operation decodes to float32, which holds all bfloat16 values exactly, and rounds its result to nearest even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from triton_dist.triton_api import interpreter
from triton_dist.triton_api.interpreter import TensorHandle

__all__ = ["Bfloat16Builder", "decode", "encode", "reducing"]


def decode(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values, as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def encode(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        rounded = np.where(nan, (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x0040), rounded)
    return rounded.reshape(np.shape(values))


def _is_bfloat16(handle: Any) -> bool:
    return handle.data.dtype == np.uint16 and bool(handle.dtype.scalar == tl.bfloat16)  # the first takes less time


def _decoded(handle: Any) -> Any:
    return TensorHandle(decode(handle.data), tl.float32) if _is_bfloat16(handle) else handle


def _encoded(handle: Any) -> Any:
    # Comparisons answer bools, which stay.
    return TensorHandle(encode(handle.data), tl.bfloat16) if handle.data.dtype == np.float32 else handle


def _in_float32(name: str) -> Any:
    """The builder's method ``name``, with bfloat16 arguments taken as their values."""
    method = getattr(interpreter.Builder, name)

    def call(self: Any, *args: Any) -> Any:
        for arg in args:
            if isinstance(arg, TensorHandle) and _is_bfloat16(arg):
                break
        else:
            return method(self, *args)
        return _encoded(method(self, *(_decoded(arg) if isinstance(arg, TensorHandle) else arg for arg in args)))

    return call


_binary_op = _in_float32("binary_op")


class Bfloat16Builder(interpreter.Builder):  # type: ignore[misc]
    """Triton's interpreter with bfloat16 arithmetic, and with products of small floats made and summed in float32."""

    def get_bf16(self, value: float) -> Any:
        return TensorHandle(encode(np.array([value], dtype=np.float32)), tl.bfloat16)

    unary_op = _in_float32("unary_op")

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        left, right = lhs.data, rhs.data
        if left.dtype != np.uint16 and right.dtype != np.uint16:  # most operations, without what others need
            output = op(left, right)
            if output.itemsize <= left.itemsize:
                return interpreter.handle(output, lhs.dtype.scalar)
        return _binary_op(self, lhs, rhs, op)

    ternary_op = _in_float32("ternary_op")
    create_fma = _in_float32("create_fma")
    create_fabs = _in_float32("create_fabs")
    create_rsqrt = _in_float32("create_rsqrt")
    create_erf = _in_float32("create_erf")

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        dst = dst_type.scalar
        if dst == src.dtype.scalar or tl.bfloat16 not in (dst, src.dtype.scalar):
            return super().cast_impl(src, dst_type)
        if dst != tl.bfloat16:
            return super().cast_impl(_decoded(src), dst_type)
        return TensorHandle(encode(src.data.astype(np.float32)), tl.bfloat16)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        to_nearest = interpreter.rounds_to_nearest(rounding_mode)
        if to_nearest and dst_type.scalar == tl.bfloat16 and src.dtype.scalar in (tl.float32, tl.float16):
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        if not a.dtype.is_floating() or a.dtype.primitive_bitwidth > 32:
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        total = np.matmul(_as_float32(a), _as_float32(b)) + _as_float32(d)
        if _is_bfloat16(d):
            return TensorHandle(encode(total), tl.bfloat16)
        return TensorHandle(total.astype(d.data.dtype, copy=False), d.dtype.scalar)


def _as_float32(handle: Any) -> NDArray[np.float32]:
    data: NDArray[Any] = handle.data
    if _is_bfloat16(handle):
        return decode(data)
    if handle.dtype.scalar.primitive_bitwidth == 8:
        data = interpreter.widened_float8(data, handle.dtype.scalar)
    return data.astype(np.float32, copy=False)


def reducing(apply: Any) -> Any:
    """``ReduceScanOpInterface.apply`` for tuples that may hold bfloat16 tensors."""

    def call(self: Any, input: Any) -> Any:
        if not isinstance(input, tuple) or not any(x.dtype == tl.bfloat16 for x in input):
            return apply(self, input)
        values = tuple(tl.tensor(_decoded(x.handle), x.type.with_element_ty(tl.float32)) for x in input)
        return tuple(
            tl.tensor(_encoded(y.handle), y.type.with_element_ty(tl.bfloat16)) if x.dtype == tl.bfloat16 else y
            for x, y in zip(input, apply(self, values), strict=True)
        )

    return call
