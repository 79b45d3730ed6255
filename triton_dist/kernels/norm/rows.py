"""Device code of the fused norms: blocks of whole rows are normalised and quantised."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["add", "load_rows", "load_vectors", "normalize", "store_normalized", "store_rows"]

_FP8_MAX = tl.constexpr(448.0)
_LEAST_SCALE = tl.constexpr(1.1754943508222875e-38)  # a smaller one is no normal float32


# ---- rows in registers: [ROWS, BLOCK], zero behind the last column
#
# Kernels load all that they add and multiply with before they wait for peers or for a reduction: no load is moved there
# by a compiler, and each would add a latency of memory behind the wait. Until they are used, elements stay in the dtype
# of memory, which takes half the registers. Vectors are loaded for each row: kept for all rows, the compiler would keep
# them as float32.


@triton.jit
def load_rows(ptr, rows, there, H, BLOCK: tl.constexpr):
    """Rows of a contiguous matrix with ``H`` columns; zeros for those that are not ``there``. None without a matrix."""
    if ptr is None:
        return None
    else:
        columns = tl.arange(0, BLOCK)
        mask = there[:, None] & (columns < H)[None, :]
        return tl.load(ptr + rows.to(tl.int64)[:, None] * H + columns[None, :], mask=mask, other=0.0)


@triton.jit
def load_vectors(bias, weight, shift, H, BLOCK: tl.constexpr):
    """Vectors with ``H`` elements, each as a row that is the same for all rows, or None."""
    row, there = tl.zeros([1], tl.int32), tl.full([1], 1, tl.int1)
    return (
        load_rows(bias, row, there, H, BLOCK),
        load_rows(weight, row, there, H, BLOCK),
        load_rows(shift, row, there, H, BLOCK),
    )


@triton.jit
def add(total, bias, residual, DTYPE: tl.constexpr):
    """The new residual: ``total`` plus what there is of bias and residual, rounded once to ``DTYPE``; float32."""
    total = total.to(tl.float32)
    if bias is not None:
        total += bias.to(tl.float32)
    if residual is not None:
        total += residual.to(tl.float32)
    return total.to(DTYPE).to(tl.float32)


@triton.jit
def normalize(values, weight, shift, H, eps, LAYER: tl.constexpr):
    """RMSNorm, or LayerNorm, of each row, times ``weight`` and plus ``shift`` if there are any."""
    if LAYER:
        exist = tl.arange(0, values.shape[1]) < H
        values = tl.where(exist[None, :], values - (tl.sum(values, axis=1) / H)[:, None], 0.0)
    values *= tl.rsqrt(tl.sum(values * values, axis=1) / H + eps)[:, None]
    if weight is not None:
        values *= weight.to(tl.float32)
    if shift is not None:
        values += shift.to(tl.float32)
    return values


@triton.jit
def _scale(largest):
    return tl.maximum(largest / _FP8_MAX, _LEAST_SCALE)


@triton.jit
def store_normalized(out, scales, values, rows, there, H, QUANTUM: tl.constexpr):
    """Store rows to ``out``; where that is fp8, divided by the scales of ``QUANTUM`` columns each (0: a whole row)."""
    ROWS: tl.constexpr = values.shape[0]
    BLOCK: tl.constexpr = values.shape[1]
    if scales is not None:
        if QUANTUM == 0:
            scale = _scale(tl.max(tl.abs(values), axis=1))
            values = values / scale[:, None]
            tl.store(scales + rows, scale, mask=there)
        else:
            QUANTA: tl.constexpr = BLOCK // QUANTUM
            pieces = values.reshape([ROWS, QUANTA, QUANTUM])
            scale = _scale(tl.max(tl.abs(pieces), axis=2))
            values = (pieces / scale[:, :, None]).reshape([ROWS, BLOCK])
            quanta = tl.arange(0, QUANTA)
            places = scales + rows.to(tl.int64)[:, None] * (H // QUANTUM) + quanta[None, :]
            tl.store(places, scale, mask=there[:, None] & (quanta < H // QUANTUM)[None, :])
        values = tl.clamp(values, -_FP8_MAX, _FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    store_rows(out, values, rows, there, H)


@triton.jit
def store_rows(ptr, values, rows, there, H):
    """Store rows to a contiguous matrix with ``H`` columns, where they are ``there``."""
    columns = tl.arange(0, values.shape[1])
    mask = there[:, None] & (columns < H)[None, :]
    tl.store(ptr + rows.to(tl.int64)[:, None] * H + columns[None, :], values.to(ptr.dtype.element_ty), mask=mask)
