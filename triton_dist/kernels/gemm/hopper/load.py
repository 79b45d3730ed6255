"""The warp that feeds the tensor cores: TMA loads of A and B into a ring of buffers."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_dist.kernels.gemm.hopper.flags import acquire, after_generic
from triton_dist.kernels.gemm.hopper.layout import EPOCH, GATHERED, K_BEGIN, K_END, PE, TILE_COLUMN, TILE_ROW, UNIT
from triton_dist.kernels.gemm.hopper.trace_events import ARRIVAL, note, time

__all__ = ["load_tiles"]


@gluon.jit
def load_tiles(
    a, a_own, b, out, ring, schedule, trace, state, flags, pes,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, GROUPS: gl.constexpr, GATHER: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
    SENDERS: gl.constexpr,
):  # fmt: skip
    """Every unit's blocks of A and B, in order; a stage is filled when both consumers have let go of it.

    GATHER: a unit awaits the rows of its PE in ``a``; this PE's own come from ``a_own``.
    """
    a_blocks, b_blocks, ready, empty = ring
    units, starts = schedule
    me, _ = pes
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    program = gl.program_id(0)
    step = 0
    if SENDERS > 0 and program >= gl.num_programs(0) - SENDERS:
        # This program sends: tiles of C take the way of blocks of B, which are as large.
        blocks = b_blocks._reinterpret(out.dtype, [STAGES, ROWS, out.block_shape[1]], out.layout)
        now = gl.load(state + EPOCH) + 1
        for unit in range(gl.load(starts + program), gl.load(starts + program + 1)):
            row = gl.load(units + unit * UNIT + TILE_ROW)
            column = gl.load(units + unit * UNIT + TILE_COLUMN)
            began = time(trace)
            acquire(state + gl.load(units + unit * UNIT + PE), now, "gpu")
            note(trace, unit, ARRIVAL, began)
            after_generic()
            for group in gl.static_range(GROUPS):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                mbarrier.expect(ready.index(stage), out.block_type.nbytes)
                tma.async_copy_global_to_shared(
                    out, [row * BLOCK_M + group * ROWS, column * BLOCK_N], ready.index(stage), blocks.index(stage)
                )
                step += 1
    else:
        seen = me
        for unit in range(gl.load(starts + program), gl.load(starts + program + 1)):
            row = gl.load(units + unit * UNIT + TILE_ROW) * BLOCK_M
            column = gl.load(units + unit * UNIT + TILE_COLUMN) * BLOCK_N
            source = gl.load(units + unit * UNIT + PE)
            if GATHER:
                if source != seen:
                    if source != me:
                        began = time(trace)
                        acquire(flags + GATHERED + source, 1, "sys")
                        note(trace, unit, ARRIVAL, began)
                        after_generic()
                    seen = source
            for k in range(gl.load(units + unit * UNIT + K_BEGIN), gl.load(units + unit * UNIT + K_END)):
                stage = step % STAGES
                full = ready.index(stage)
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                mbarrier.expect(full, GROUPS * a.block_type.nbytes + b.block_type.nbytes)
                for group in gl.static_range(GROUPS):
                    block = a_blocks.index(stage * GROUPS + group)
                    if GATHER:
                        own_row = row % a_own.shape[0] + group * ROWS
                        tma.async_copy_global_to_shared(a_own, [own_row, k * BLOCK_K], full, block, pred=source == me)
                        there = [row + group * ROWS, k * BLOCK_K]
                        tma.async_copy_global_to_shared(a, there, full, block, pred=source != me)
                    else:
                        tma.async_copy_global_to_shared(a, [row + group * ROWS, k * BLOCK_K], full, block)
                if B_BY_COLUMNS:
                    tma.async_copy_global_to_shared(b, [column, k * BLOCK_K], full, b_blocks.index(stage))
                else:
                    tma.async_copy_global_to_shared(b, [k * BLOCK_K, column], full, b_blocks.index(stage))
                step += 1
