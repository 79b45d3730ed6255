"""The load warp: TMA loads of A and B into the operand ring."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import begin_stage
from triton_dist.kernels.gemm.hopper.layout import K_BEGIN, K_END, PE
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program

__all__ = ["load_b", "load_operands"]


@gluon.jit
def load_operands(a, b, operands, work, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, padding=None):
    """Load the blocks of every unit in order; a stage is filled when all groups have released it.

    With ``padding`` tiles are of shards, one of each PE, of which each has so many rows more than there are in A.
    """
    GROUPS: gl.constexpr = CONFIG.groups
    BLOCK_K: gl.constexpr = a.block_shape[1]
    NBYTES: gl.constexpr = GROUPS * a.block_type.nbytes + b.block_type.nbytes
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        row, column = sums_origin(*tile_of(work, unit), 0, CONFIG)
        if padding is not None:
            row -= field(work, unit, PE) * padding
        for k in range(field(work, unit, K_BEGIN), field(work, unit, K_END)):
            stage, full = begin_stage(operands, step, NBYTES, CONFIG)
            for group in gl.static_range(GROUPS):
                block = operands.a.index(stage * GROUPS + group)
                tma.async_load(a, [row + group * CONFIG.group_m, k * BLOCK_K], full, block)
            load_b(b, k * BLOCK_K, column, full, operands.b.index(stage), B_BY_COLUMNS)
            step += 1


@gluon.jit
def load_b(b, k, column, full, block, B_BY_COLUMNS: gl.constexpr):
    """Load a block of B, whose descriptor is that of B's transpose if B has contiguous columns."""
    if B_BY_COLUMNS:
        tma.async_load(b, [column, k], full, block)
    else:
        tma.async_load(b, [k, column], full, block)
