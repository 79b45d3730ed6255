"""A tile of a small-M GEMM: all rows and some columns, whose part of B streams in with many loads in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.device import gpu

__all__ = ["Cut", "by_tma", "multiply", "store_tile", "tile_operands"]


@triton.jit
def multiply(
    a, b, norm, eps, first, tile, M, N, K, each, left, a_step, b_row, b_column,
    BLOCK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TURNED: tl.constexpr,
    A_TMA: tl.constexpr, B_TMA: tl.constexpr, B_BY_COLUMNS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The sums of a tile in which every PE has ``BLOCK`` rows, and uses ``left`` of them: from row ``first`` on, and
    ``each`` rows apart from PE to PE.

    ``A_TMA``: how many dimensions the descriptor ``a`` has: rows and K, or before these the PE; 0 if it is a pointer.

    With ``norm``, the weight of an RMSNorm, the operand is the norm of the rows of ``a``: elements are multiplied by
    the weight as they come, and sums are divided by their row's root mean square, once all of the row has come.
    """
    rows, inner = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    places = first + rows // BLOCK * each + rows % BLOCK
    rows_there = ((rows % BLOCK < left) & (places < M))[:, None]
    columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_N, BLOCK_M) if TURNED else (BLOCK_M, BLOCK_N), tl.float32)
    if norm is not None:
        squares = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)  # of each thread's elements, added up at the end
        weight = tl.load(norm + inner, mask=inner < K, other=0.0)
    for block in range(tl.cdiv(K, BLOCK_K)):
        k = block * BLOCK_K
        if A_TMA == 3:
            x = a.load([0, first, k]).reshape([BLOCK_M, BLOCK_K])
        elif A_TMA == 2:
            x = a.load([first, k])
        else:
            there = rows_there if WHOLE else rows_there & (k + inner < K)[None, :]
            x = tl.load(a + places.to(tl.int64)[:, None] * a_step + (k + inner)[None, :], mask=there, other=0.0)
        if B_TMA and B_BY_COLUMNS:
            y = tl.trans(b.load([tile * BLOCK_N, k]))
        elif B_TMA:
            y = b.load([k, tile * BLOCK_N])
        else:
            at = b + (k + inner).to(tl.int64)[:, None] * b_row + columns.to(tl.int64)[None, :] * b_column
            there = None if WHOLE else (k + inner < K)[:, None] & (columns < N)[None, :]
            y = tl.load(at, mask=there, other=None if WHOLE else 0.0)
        if norm is not None:
            # The next block's weights are loaded a block ahead: their latency would stand in front of each block.
            following = k + BLOCK_K + inner
            next_weight = tl.load(norm + following, mask=following < K, other=0.0)
            values = x.to(tl.float32)
            squares += values * values
            x = (values * weight.to(tl.float32)[None, :]).to(x.dtype)
            weight = next_weight
        if TURNED:
            sums = tl.dot(tl.trans(y), tl.trans(x), sums, input_precision="ieee")
        else:
            sums = tl.dot(x, y, sums, input_precision="ieee")
    sums = tl.trans(sums) if TURNED else sums
    return sums if norm is None else sums * tl.rsqrt(tl.sum(squares, axis=1) / K + eps)[:, None]


@triton.jit
def store_tile(c, values, first, begin, column, each, M, N, c_step, PES: tl.constexpr):
    """Store float32 values to the rows, from ``first`` on, of ``PES`` PEs, who have a block of equal size, and use
    ``each`` of its rows; but to none in front of ``begin``."""
    BLOCK: tl.constexpr = values.shape[0] // PES
    rows = tl.arange(0, values.shape[0])
    columns = column + tl.arange(0, values.shape[1])
    places = first + rows // BLOCK * each + rows % BLOCK
    exist = ((rows % BLOCK < each) & (places >= begin) & (places < M))[:, None] & (columns < N)[None, :]
    tl.store(c + places.to(tl.int64)[:, None] * c_step + columns[None, :], values.to(c.dtype.element_ty), mask=exist)


@dataclass(frozen=True)
class Cut:
    """How a GEMM is cut: columns and K of a block, and warps of a program."""

    block_n: int
    block_k: int
    warps: int
    turned: bool
    """Whether columns of B are what the tensor cores call rows: of those they take 64 at a time, of others 8."""


def by_tma(matrix: torch.Tensor) -> bool:
    """Whether the GPU has TMA, and it can load blocks of this matrix, whose rows are contiguous."""
    if triton_dist.kind() == "cpu" or gpu().capability < (9, 0):
        return False
    step, one = matrix.stride()
    aligned = matrix.data_ptr() % 16 == 0 and step * matrix.element_size() % 16 == 0
    return one == 1 and step >= matrix.shape[1] and aligned


def _rows_by_tma(matrix: torch.Tensor, block_m: int) -> bool:
    """Whether TMA should load blocks of ``block_m`` rows of this matrix, which has so many or fewer.

    It fills rows that lack with zeros, and many of them take it longer than loads by threads take (0098).
    """
    return by_tma(matrix) and block_m - matrix.shape[0] <= _FILLED


_FILLED = 16
"""Rows."""


class TileOperands(NamedTuple):
    """What a kernel of tiles is given of A and B: descriptors where TMA loads them, and constants that say so."""

    a: Any
    b: Any
    constants: dict[str, Any]


def tile_operands(
    a: torch.Tensor, b: torch.Tensor, block_m: int, cut: Cut, *, rows_follow: bool = True, shards: int = 1
) -> TileOperands:
    """For ``a`` [M, K], of which a tile has ``block_m`` rows, which follow each other or do not, or as many of each of
    so many equal ``shards``; and ``b`` [K, N]."""
    b_tma = by_tma(b) or by_tma(b.t())
    if shards > 1 and by_tma(a):
        of_a, a_tma = _descriptor(a.unflatten(0, (shards, -1)), shards, block_m // shards, cut.block_k), 3
    elif shards == 1 and rows_follow and _rows_by_tma(a, block_m):
        of_a, a_tma = _descriptor(a, block_m, cut.block_k), 2
    else:
        of_a, a_tma = a, 0
    by_columns = b.stride(1) != 1
    block_of_b = (cut.block_n, cut.block_k) if by_columns else (cut.block_k, cut.block_n)
    return TileOperands(
        of_a,
        _descriptor(b.t() if by_columns else b, *block_of_b) if b_tma else b,
        {
            "BLOCK_M": block_m, "BLOCK_N": cut.block_n, "BLOCK_K": cut.block_k, "TURNED": cut.turned, "A_TMA": a_tma,
            "B_TMA": b_tma, "B_BY_COLUMNS": by_columns,
            "WHOLE": a.shape[1] % cut.block_k == 0 and b.shape[1] % cut.block_n == 0,
        },
    )  # fmt: skip


def _descriptor(matrix: torch.Tensor, *block: int) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(matrix, list(block))
