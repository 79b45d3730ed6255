"""A group of four warps that multiplies: WGMMA on the ring's blocks, and what becomes of a finished tile's sums."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from triton_dist.kernels.gemm.hopper.flags import acquire
from triton_dist.kernels.gemm.hopper.layout import EPOCH, FIRST_INPUT, INPUTS, K_BEGIN, K_END, PE, SLOT, UNIT
from triton_dist.kernels.gemm.hopper.trace_events import COMPUTE, HAND_OVER, OPERANDS, note, time

__all__ = ["multiply_tiles"]


@gluon.jit
def multiply_tiles(
    ring, outgoing, schedule, trace, state, partial_sums, pes,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr, GROUP: gl.constexpr,
    SPLIT: gl.constexpr, RING: gl.constexpr, B_BY_COLUMNS: gl.constexpr, SENDERS: gl.constexpr,
):  # fmt: skip
    """Every unit's rows of this group, in order: sums in registers, then to the outgoing buffer or a slot.

    SPLIT: units may be parts of tiles, whose sums meet in ``partial_sums``. RING: the outgoing buffer
    has the sum of the PEs before this one, which is added, except for the PE's that begins.

    Sums of fp8 products are multiplied by ``scale``. Hopper's tensor cores add them up with fewer bits than float32 has
    (cuBLAS does the same with ``use_fast_accum=True``), and their sums stay there for a whole unit.
    """
    a_blocks, b_blocks, ready, empty = ring
    c_blocks, c_ready, c_empty, c_filled = outgoing
    units, starts = schedule
    slots, slot_flags, scale = partial_sums
    me, n_pes = pes
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[gl.num_warps(), 1],
        instr_shape=[16, BLOCK_N, 256 // a_blocks.dtype.primitive_bitwidth],
    )
    program = gl.program_id(0)
    first, last = gl.load(starts + program), gl.load(starts + program + 1)
    if SENDERS > 0:
        if program >= gl.num_programs(0) - SENDERS:
            last = first
    FP8: gl.constexpr = a_blocks.dtype.primitive_bitwidth == 8
    if FP8:
        factor = gl.load(scale)
    now = gl.load(state + EPOCH) + 1
    step = 0
    phase = 1
    for unit in range(first, last):
        sums = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        begin = gl.load(units + unit * UNIT + K_BEGIN)
        began = time(trace)
        if trace is not None:
            mbarrier.wait(ready.index(step % STAGES), step // STAGES & 1)
            note(trace, unit, OPERANDS + GROUP, began)
            began = time(trace)
        for k in range(begin, gl.load(units + unit * UNIT + K_END)):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), step // STAGES & 1)
            b = b_blocks.index(stage)
            if B_BY_COLUMNS:
                b = b.permute((1, 0))
            sums = warpgroup_mma(a_blocks.index(stage * GROUPS + GROUP), b, sums, use_acc=k > begin, is_async=True)
            sums = warpgroup_mma_wait(1, (sums,))  # all but the newest are done: let go of the stage before
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=k > begin)
            step += 1
        sums = warpgroup_mma_wait(0, (sums,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES))
        note(trace, unit, COMPUTE + GROUP, began)

        began = time(trace)
        finishes = True
        if SPLIT:
            slot = gl.load(units + unit * UNIT + SLOT)
            rows = GROUP * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
            offsets = rows[:, None] * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))[None, :]
            if slot >= 0:
                finishes = False
                gl.store(slots + slot.to(gl.int64) * (BLOCK_M * BLOCK_N) + offsets, sums)
                gl.barrier()
                gl.atomic_xchg(slot_flags + slot * GROUPS + GROUP, now, sem="release", scope="gpu")
            else:
                one = gl.load(units + unit * UNIT + FIRST_INPUT)
                for i in range(gl.load(units + unit * UNIT + INPUTS)):
                    other = one + i
                    acquire(slot_flags + other * GROUPS + GROUP, now, "gpu")
                    gl.barrier()
                    sums += gl.load(slots + other.to(gl.int64) * (BLOCK_M * BLOCK_N) + offsets)
        if finishes:
            if FP8:
                sums *= factor
            block = c_blocks.index(GROUP)
            if RING:
                mbarrier.wait(c_filled, phase ^ 1)
                if gl.load(units + unit * UNIT + PE) != (me + n_pes - 1) % n_pes:
                    sums += block.load(layout).to(gl.float32)
            else:
                mbarrier.wait(c_empty.index(GROUP), phase)
            note(trace, unit, HAND_OVER + GROUP, began)
            block.store(sums.to(c_blocks.dtype))
            fence_async_shared()
            mbarrier.arrive(c_ready.index(GROUP))
            phase ^= 1
