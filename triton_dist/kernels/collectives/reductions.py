"""What reductions compute: sum, max, min and avg of elements of any type, and of the words that carry them.

Floats of at most 32 bits are reduced in float32 and rounded once, float64 and integers in their own type; sums of
integers wrap around. As with NCCL, max and min return the number where one of two elements is NaN, and avg is of
floats.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.kernels.collectives.sums import element_of, word_of

__all__ = ["OPS", "begin", "combine", "finish", "reduce_words", "widen"]

OPS = ("sum", "max", "min", "avg")


@triton.constexpr_function
def _neutral(dtype, op):
    """What changes no element that it is combined with."""
    if op in ("sum", "avg"):
        return 0
    if dtype.is_floating():
        return float("nan")
    if dtype.is_int_signed():
        return -(2 ** (dtype.primitive_bitwidth - 1)) + (op == "min") * (2**dtype.primitive_bitwidth - 1)
    return (op == "min") * (2**dtype.primitive_bitwidth - 1)


@triton.constexpr_function
def _wide(dtype):
    """The type that elements are reduced in."""
    return tl.float32 if dtype.is_floating() and dtype.primitive_bitwidth < 32 else dtype


@triton.jit
def widen(elements):
    """Elements in the type that they are reduced in."""
    return elements.to(_wide(elements.dtype))


@triton.jit
def begin(shape: tl.constexpr, DTYPE: tl.constexpr, OP: tl.constexpr):
    """What a reduction of elements of ``DTYPE`` starts with."""
    return tl.full(shape, _neutral(_wide(DTYPE), OP), _wide(DTYPE))


@triton.jit
def combine(total, elements, OP: tl.constexpr):
    """One step of a reduction of elements, which :func:`widen` has widened."""
    if OP == "max":
        return tl.maximum(total, elements)
    elif OP == "min":
        return tl.minimum(total, elements)
    else:
        return total + elements


@triton.jit
def finish(total, OP: tl.constexpr, N_PES: tl.constexpr):
    """The result, after the elements of all PEs have been combined."""
    if OP != "avg":
        return total
    elif total.dtype == tl.float32:
        return tl.div_rn(total, tl.full(total.shape, N_PES, tl.float32))
    else:
        return total / N_PES


@triton.jit
def _reduce_rows(elements, N_ROWS: tl.constexpr, OP: tl.constexpr):
    used = (tl.arange(0, elements.shape[0]) < N_ROWS)[:, None]
    elements = tl.where(used, elements, _neutral(elements.dtype, OP))
    if OP == "max":
        total = tl.max(elements, axis=0)
    elif OP == "min":
        total = tl.min(elements, axis=0)
    else:
        total = tl.sum(elements, axis=0)
    return finish(total, OP, N_ROWS)


@triton.jit
def reduce_words(words, N_ROWS: tl.constexpr, DTYPE: tl.constexpr, PER_WORD: tl.constexpr, OP: tl.constexpr):
    """The reduction of the first ``N_ROWS`` rows of int32 words. The order of additions is the same on every PE.

    A word holds ``PER_WORD`` elements of ``DTYPE``; an element of 64 bits is two words, the lower half first.
    """
    if DTYPE.primitive_bitwidth == 64:
        COLUMNS: tl.constexpr = words.shape[1] // 2
        lower, upper = tl.split(words.reshape([words.shape[0], COLUMNS, 2]))
        elements = (upper.to(tl.int64) << 32) | (lower.to(tl.int64) & 0xFFFFFFFF)
        total = _reduce_rows(elements.to(DTYPE, bitcast=True), N_ROWS, OP).to(tl.int64, bitcast=True)
        return tl.join(total.to(tl.int32), (total >> 32).to(tl.int32)).reshape([2 * COLUMNS])
    else:
        total = word_of(_reduce_rows(element_of(words, DTYPE), N_ROWS, OP), DTYPE)
        for i in tl.static_range(1, PER_WORD):
            shifted = element_of(words >> i * DTYPE.primitive_bitwidth, DTYPE)
            total = total | (word_of(_reduce_rows(shifted, N_ROWS, OP), DTYPE) << i * DTYPE.primitive_bitwidth)
        return total
