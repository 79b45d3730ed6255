"""The load warp: TMA loads of A and B into the operand ring.

A block of A that has fewer rows than a group is loaded in pieces, and pieces without rows are not loaded. What is stale
in their place gives sums of rows that are not stored. TMA would fill the rows of a whole block with zeros, but takes as
long for them as if all programs read one line of memory (docs/decisions/0098).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_empty
from triton_dist.kernels.gemm.hopper.layout import K_BEGIN, K_END, PE
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program

__all__ = ["PIECE", "load_b", "load_operands", "load_step", "load_unit", "pieces_of"]

PIECE = gl.constexpr(16)
"""Rows of A that are loaded at a time where a block has not all of its rows."""


@gluon.jit
def load_operands(a, a_piece, b, operands, work, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, padding=None):
    """Load the blocks of every unit in order; a stage is filled when all groups have released it.

    With ``padding`` tiles are of shards, one of each PE, of which each has so many rows more than there are in A.
    """
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        step = load_unit(a, a_piece, b, operands, work, unit, step, CONFIG, B_BY_COLUMNS, padding)


@gluon.jit
def load_unit(
    a, a_piece, b, operands, work, unit, step, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, padding=None
):
    """Load the blocks of a unit, from ``step`` on. Returns the step behind them."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    row, column = sums_origin(*tile_of(work, unit), 0, CONFIG)
    if padding is not None:
        row -= field(work, unit, PE) * padding
    for k in range(field(work, unit, K_BEGIN), field(work, unit, K_END)):
        stage, full = await_empty(operands, step, CONFIG)
        load_step(a, a_piece, row, k * BLOCK_K, full, operands, stage, b.block_type.nbytes, CONFIG)
        load_b(b, k * BLOCK_K, column, full, operands.b.index(stage), B_BY_COLUMNS)
        step += 1
    return step


@gluon.jit
def load_step(a, a_piece, row, k, full, operands, stage, B_BYTES: gl.constexpr, CONFIG: gl.constexpr):
    """Load the rows of a tile from ``row`` on that there are, and let the stage be full when these and ``B_BYTES`` have
    arrived."""
    GROUPS: gl.constexpr = CONFIG.groups
    ROWS: gl.constexpr = a_piece.block_shape[0]
    PIECES: gl.constexpr = CONFIG.group_m // ROWS
    FULL: gl.constexpr = CONFIG.group_m - ROWS
    left = a.shape[0] - row
    if left >= CONFIG.block_m:
        mbarrier.expect(full, GROUPS * a.block_type.nbytes + B_BYTES)
        for group in gl.static_range(GROUPS):
            block = operands.a.index(stage * GROUPS + group)
            tma.async_load(a, [row + group * CONFIG.group_m, k], full, block)
    else:
        # Predicates, as a loop over the pieces that there are would take the warp longer.
        mbarrier.expect(full, B_BYTES, pred=left <= 0)
        for i in gl.static_range(GROUPS * PIECES):
            is_last = (left > i * ROWS) & (left <= (i + 1) * ROWS)
            mbarrier.expect(full, (i + 1) * a_piece.block_type.nbytes + B_BYTES, pred=is_last)
        places = pieces_of(operands, a_piece, CONFIG)
        for group in gl.static_range(GROUPS):
            begin, there = row + group * CONFIG.group_m, left - group * CONFIG.group_m
            tma.async_load(a, [begin, k], full, operands.a.index(stage * GROUPS + group), pred=there > FULL)
            for i in gl.static_range(PIECES - 1):
                piece = places.index((stage * GROUPS + group) * PIECES + i)
                is_there = (there > i * ROWS) & (there <= FULL)
                tma.async_load(a_piece, [begin + i * ROWS, k], full, piece, pred=is_there)


@gluon.jit
def pieces_of(operands, a_piece, CONFIG: gl.constexpr):
    """The blocks of A in the operand ring, cut into pieces as this descriptor loads them."""
    PIECES: gl.constexpr = CONFIG.block_m // a_piece.block_shape[0]
    return reinterpret(operands.a, a_piece.dtype, [CONFIG.stages * PIECES] + a_piece.block_shape, a_piece.layout)


@gluon.jit
def load_b(b, k, column, full, block, B_BY_COLUMNS: gl.constexpr):
    """Load a block of B, whose descriptor is that of B's transpose if B has contiguous columns."""
    if B_BY_COLUMNS:
        tma.async_load(b, [column, k], full, block)
    else:
        tma.async_load(b, [k, column], full, block)
