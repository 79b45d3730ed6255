"""The warp that feeds the tensor cores: TMA loads of A and B into a ring of buffers."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_dist.kernels.gemm.hopper.flags import acquire, after_generic
from triton_dist.kernels.gemm.hopper.words import EPOCH, GATHERED, K_BEGIN, K_END, PE, TILE_COLUMN, TILE_ROW, UNIT

__all__ = ["load_tiles"]

_AHEAD = gl.constexpr(16)  # blocks of B: of all programs together about half of an H200's L2 cache


@gluon.jit
def load_tiles(
    a, a_own, b, out, b_values, b_step, ring, schedule, state, flags, pes,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, GROUPS: gl.constexpr, GATHER: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
    SENDERS: gl.constexpr,
):  # fmt: skip
    """Every unit's blocks of A and B, in order; a stage is filled when both consumers have let go of it.

    GATHER: "chunks": a unit awaits the rows of its PE in ``a``; this PE's own come from ``a_own``. "rows": all are
    awaited at once; ``a`` has two halves, for launches of even and odd number.
    """
    a_blocks, b_blocks, ready, empty = ring
    units, starts = schedule
    me, n_pes = pes
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    program = gl.program_id(0)
    step = 0
    if SENDERS > 0 and program >= gl.num_programs(0) - SENDERS:
        # This program sends: tiles of C take the way of blocks of B.
        now = gl.load(state + EPOCH) + 1
        for unit in range(gl.load(starts + program), gl.load(starts + program + 1)):
            row = gl.load(units + unit * UNIT + TILE_ROW)
            column = gl.load(units + unit * UNIT + TILE_COLUMN)
            acquire(state + gl.load(units + unit * UNIT + PE), now, "gpu")
            after_generic()
            for group in gl.static_range(GROUPS):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                mbarrier.expect(ready.index(stage), out.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    out, [row * BLOCK_M + group * ROWS, column * BLOCK_N], ready.index(stage), b_blocks.index(stage)
                )
                step += 1
    else:
        half = 0
        early = 0
        if GATHER == "rows":
            # B need not wait for A: its first blocks are loaded, and the next ones come into the L2 cache.
            unit = gl.load(starts + program)
            if unit < gl.load(starts + program + 1):
                column = gl.load(units + unit * UNIT + TILE_COLUMN) * BLOCK_N
                begin = gl.load(units + unit * UNIT + K_BEGIN)
                early = gl.minimum(STAGES, gl.load(units + unit * UNIT + K_END) - begin)
                for stage in range(early):
                    full = ready.index(stage)
                    mbarrier.expect(full, GROUPS * a.block_type.nbytes + b.block_type.nbytes)
                    load_b(b, (begin + stage) * BLOCK_K, column, full, b_blocks.index(stage), B_BY_COLUMNS)
                if not B_BY_COLUMNS:
                    prefetch(b, b_values, b_step, (begin + early) * BLOCK_K, column, BLOCK_K, BLOCK_N)
            epoch = gl.load(state + EPOCH)
            half = (epoch & 1) * (a.shape[0] // 2)
            for pe in range(n_pes):
                acquire(flags + GATHERED + pe, (epoch + 1) * gl.num_programs(0), "sys")
            after_generic()
        seen = me
        for unit in range(gl.load(starts + program), gl.load(starts + program + 1)):
            row = gl.load(units + unit * UNIT + TILE_ROW) * BLOCK_M + half
            column = gl.load(units + unit * UNIT + TILE_COLUMN) * BLOCK_N
            source = gl.load(units + unit * UNIT + PE)
            if GATHER == "chunks":
                if source != seen:
                    if source != me:
                        acquire(flags + GATHERED + source, 1, "sys")
                        after_generic()
                    seen = source
            for k in range(gl.load(units + unit * UNIT + K_BEGIN), gl.load(units + unit * UNIT + K_END)):
                stage = step % STAGES
                full = ready.index(stage)
                if step >= early:
                    mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                    mbarrier.expect(full, GROUPS * a.block_type.nbytes + b.block_type.nbytes)
                    load_b(b, k * BLOCK_K, column, full, b_blocks.index(stage), B_BY_COLUMNS)
                for group in gl.static_range(GROUPS):
                    block = a_blocks.index(stage * GROUPS + group)
                    if GATHER == "chunks":
                        own_row = row % a_own.shape[0] + group * ROWS
                        tma.async_copy_global_to_shared(a_own, [own_row, k * BLOCK_K], full, block, pred=source == me)
                        there = [row + group * ROWS, k * BLOCK_K]
                        tma.async_copy_global_to_shared(a, there, full, block, pred=source != me)
                    else:
                        tma.async_copy_global_to_shared(a, [row + group * ROWS, k * BLOCK_K], full, block)
                step += 1


@gluon.jit
def load_b(b, k, column, full, block, B_BY_COLUMNS: gl.constexpr):
    if B_BY_COLUMNS:
        tma.async_copy_global_to_shared(b, [column, k], full, block)
    else:
        tma.async_copy_global_to_shared(b, [k, column], full, block)


@gluon.jit
def prefetch(b, values, step, k, column, BLOCK_K: gl.constexpr, BLOCK_N: gl.constexpr):
    """Bring the next blocks along K into the L2 cache, as far as they are whole."""
    layout: gl.constexpr = gl.BlockedLayout([BLOCK_K // 32], [32], [1], [0])
    rows = gl.arange(0, BLOCK_K, layout)
    blocks = gl.minimum(_AHEAD, (b.shape[0] - k) // BLOCK_K)
    if column + BLOCK_N <= b.shape[1]:
        for block in range(blocks):
            at = values + (k + block * BLOCK_K + rows).to(gl.int64) * step + column
            if BLOCK_N * b.dtype.primitive_bitwidth == 2048:
                gl.inline_asm_elementwise(
                    "cp.async.bulk.prefetch.L2.global [$1], 256; mov.b32 $0, 0;",
                    "=r,l", [at.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=1,
                )  # fmt: skip
            elif BLOCK_N * b.dtype.primitive_bitwidth == 1024:
                gl.inline_asm_elementwise(
                    "cp.async.bulk.prefetch.L2.global [$1], 128; mov.b32 $0, 0;",
                    "=r,l", [at.to(gl.int64)], dtype=gl.int32, is_pure=False, pack=1,
                )  # fmt: skip
