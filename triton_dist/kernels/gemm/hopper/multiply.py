"""The multiply groups: four warps each, WGMMA on blocks of the operand ring, a unit's sums in registers."""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_dist.kernels.gemm.epilogue import finish
from triton_dist.kernels.gemm.hopper.block_scales import accumulate_blocks
from triton_dist.kernels.gemm.hopper.buffers import await_full
from triton_dist.kernels.gemm.hopper.epochs import epoch_of
from triton_dist.kernels.gemm.hopper.flags import acquire
from triton_dist.kernels.gemm.hopper.layout import FIRST_INPUT, INPUTS, K_BEGIN, K_END, SLOT
from triton_dist.kernels.gemm.hopper.scales import scale_rows
from triton_dist.kernels.gemm.hopper.trace_events import COMPUTE, HAND_OVER, OPERANDS, record_event, time
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program

__all__ = [
    "SplitK",
    "accumulate_steps",
    "accumulate_unit",
    "factor_of",
    "finish_unit",
    "hand_over",
    "multiply_tiles",
    "reduce_parts",
    "scale_unit",
]


class SplitK(NamedTuple):
    """Where partial sums of tiles that are split along K are exchanged, on this GPU; instead of it None: no tile is.

    Attributes:
        sums: float32, a tile for each slot.
        flags: int32, for each slot one of each group: the epoch of the sums.
    """

    sums: Any
    flags: Any


@gluon.jit
def multiply_tiles(
    GROUP: gl.constexpr, operands, output, work, trace, state, split, scale, epilogue,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """Compute this group's rows of every unit in order, and hand over those of finished tiles.

    ``scale`` is one float32 in memory, which fp8 products are multiplied by, or those of rows or blocks; None for other
    operands. Then comes the epilogue.
    """
    first, last = units_of_program(work)
    factor = factor_of(scale, CONFIG)
    epoch = epoch_of(state)
    step = 0
    phase = 1
    for unit in range(first, last):
        sums, step = accumulate_unit(GROUP, operands, work, unit, step, scale, trace, CONFIG, B_BY_COLUMNS)
        began = time(trace)
        finishes = True
        if split is not None:
            sums, finishes = reduce_parts(GROUP, sums, split, work, unit, epoch, CONFIG)
        if finishes:
            sums = scale_unit(GROUP, sums, factor, scale, work, unit, CONFIG)
            finished = finish_unit(GROUP, sums, epilogue, work, unit, CONFIG)
            mbarrier.wait(output.empty.index(GROUP), phase)
            record_event(trace, unit, HAND_OVER + GROUP, began)
            hand_over(GROUP, finished, output)
            phase ^= 1


@gluon.jit
def factor_of(scale, CONFIG: gl.constexpr):
    """The one scale of all products; None if there is none, or if rows or blocks have scales of their own."""
    if scale is not None and not CONFIG.of_blocks and not CONFIG.of_rows:
        return gl.load(scale)
    else:
        return None


@gluon.jit
def scale_unit(GROUP: gl.constexpr, sums, factor, scale, work, unit, CONFIG: gl.constexpr):
    """A group's sums of a unit that finishes its tile, times the one scale or those of rows."""
    if factor is not None:
        sums *= factor
    if CONFIG.of_rows:
        sums = scale_rows(GROUP, sums, scale, work, unit, CONFIG)
    return sums


@gluon.jit
def accumulate_unit(
    GROUP: gl.constexpr, operands, work, unit, step, scale, trace, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr
):
    """The sums of a unit's products, float32, times scales of blocks if there are such; and the step after it."""
    if CONFIG.of_blocks:
        return accumulate_blocks(GROUP, operands, work, unit, step, scale, trace, CONFIG, B_BY_COLUMNS)
    else:
        return _accumulate(GROUP, operands, work, unit, step, trace, CONFIG, B_BY_COLUMNS)


@gluon.jit
def _accumulate(
    GROUP: gl.constexpr, operands, work, unit, step, trace, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr
):
    """The sums of a unit's products, float32, and the step after it.

    Hopper's tensor cores accumulate fp8 products with fewer bits than float32 has, and the sums stay there for a whole
    unit, as cuBLAS leaves them with ``use_fast_accum=True``.
    """
    begin = field(work, unit, K_BEGIN)
    began = time(trace)
    if trace is not None:
        await_full(operands, step, CONFIG)
        record_event(trace, unit, OPERANDS + GROUP, began)
        began = time(trace)
    sums, step = accumulate_steps(GROUP, operands, begin, field(work, unit, K_END), step, CONFIG, B_BY_COLUMNS)
    record_event(trace, unit, COMPUTE + GROUP, began)
    return sums, step


@gluon.jit
def accumulate_steps(GROUP: gl.constexpr, operands, begin, end, step, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr):
    """The sums of the products of the next blocks, as many as from ``begin`` to ``end``, and the step after them."""
    ROWS: gl.constexpr = CONFIG.group_m
    COLUMNS: gl.constexpr = CONFIG.block_n
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[gl.num_warps(), 1],
        instr_shape=[16, COLUMNS, 256 // operands.a.dtype.primitive_bitwidth],
    )
    sums = gl.zeros((ROWS, COLUMNS), gl.float32, LAYOUT)
    for k in range(begin, end):
        stage = await_full(operands, step, CONFIG)
        b = operands.b.index(stage)
        if B_BY_COLUMNS:
            b = b.permute((1, 0))
        sums = warpgroup_mma(operands.a.index(stage * CONFIG.groups + GROUP), b, sums, use_acc=k > begin, is_async=True)
        sums = warpgroup_mma_wait(1, (sums,))  # all but the newest have completed: release the stage before
        mbarrier.arrive(operands.empty.index((step + CONFIG.stages - 1) % CONFIG.stages), pred=k > begin)
        step += 1
    sums = warpgroup_mma_wait(0, (sums,))
    mbarrier.arrive(operands.empty.index((step + CONFIG.stages - 1) % CONFIG.stages))
    return sums, step


@gluon.jit
def reduce_parts(GROUP: gl.constexpr, sums, split, work, unit, epoch, CONFIG: gl.constexpr):
    """Add the sums of some other parts to those of a part, and store them to its slot, if it does not finish the tile.

    Returns the sums and whether the unit finishes the tile.
    """
    TILE_SIZE: gl.constexpr = CONFIG.block_m * CONFIG.block_n
    offsets = GROUP * (CONFIG.group_m * CONFIG.block_n) + _offsets_in_slot(sums)
    first = field(work, unit, FIRST_INPUT)
    for i in range(field(work, unit, INPUTS)):
        other = first + i
        acquire(split.flags + other * CONFIG.groups + GROUP, epoch, "gpu")
        gl.barrier()
        sums += gl.load(split.sums + other.to(gl.int64) * TILE_SIZE + offsets)
    slot = field(work, unit, SLOT)
    if slot >= 0:
        gl.store(split.sums + slot.to(gl.int64) * TILE_SIZE + offsets, sums)
        gl.barrier()
        gl.atomic_xchg(split.flags + slot * CONFIG.groups + GROUP, epoch, sem="release", scope="gpu")
    return sums, slot < 0


@gluon.jit
def _offsets_in_slot(sums):
    """Where the elements of a group's sums are in a slot: eight columns beside eight others, row by row.

    That is how a warp has them, so each of its accesses is one of 256 bytes in a row. Of rows as they are in C it would
    be of 32 bytes of eight rows, for which the L1 cache takes four times as long.
    """
    LAYOUT: gl.constexpr = sums.type.layout
    ROWS: gl.constexpr = sums.shape[0]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    columns = gl.arange(0, sums.shape[1], gl.SliceLayout(0, LAYOUT))[None, :]
    return columns // 8 * (8 * ROWS) + rows * 8 + columns % 8


_finish = gluon.jit(finish.fn)


@gluon.jit
def finish_unit(GROUP: gl.constexpr, sums, epilogue, work, unit, CONFIG: gl.constexpr, residual_rows=0, padding=0):
    """A group's sums of a unit that finishes its tile, after the epilogue.

    The residual has ``residual_rows``: all of C, or those of the PE whose tile this is, whose shard then has
    ``padding`` rows more.
    """
    LAYOUT: gl.constexpr = sums.type.layout
    row, column = sums_origin(*tile_of(work, unit), GROUP, CONFIG)
    rows = row + gl.arange(0, CONFIG.group_m, gl.SliceLayout(1, LAYOUT))
    columns = column + gl.arange(0, CONFIG.block_n, gl.SliceLayout(0, LAYOUT))
    if epilogue.residual is not None:
        rows = rows % (residual_rows + padding)
    return _finish(sums, epilogue, rows, residual_rows, columns)


@gluon.jit
def hand_over(GROUP: gl.constexpr, sums, output):
    """Round the sums, write them to the tile buffer, and let the store warp read it."""
    output.blocks.index(GROUP).store(sums.to(output.blocks.dtype))
    fence_async_shared()
    mbarrier.arrive(output.full.index(GROUP))
