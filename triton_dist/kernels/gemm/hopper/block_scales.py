"""Scales of blocks in the multiply groups: 1 × 128 of A and 128 × 128 of B, as DeepSeek-V3's report has them (3.3.2).

A block of the operand ring is 128 elements of fp8 along K, as many as share a scale. The tensor cores sum one block at
a time, from zero. Its sums are multiplied by both scales and added to the tile's in float32 registers, while the other
group multiplies. So the tensor cores' sums, of fewer bits than float32, are never of more than 128 products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from triton_dist.kernels.gemm.hopper.buffers import await_full
from triton_dist.kernels.gemm.hopper.layout import K_BEGIN, K_END
from triton_dist.kernels.gemm.hopper.scales import scaled_origin
from triton_dist.kernels.gemm.hopper.trace_events import COMPUTE, OPERANDS, record_event, time
from triton_dist.kernels.gemm.hopper.work import field

__all__ = ["BlockFactors", "accumulate_blocks", "accumulate_scaled"]

_BLOCK = gl.constexpr(128)


class BlockFactors(NamedTuple):
    """Scales of blocks, float32 in this GPU's memory.

    Attributes:
        a: [rows of A, K / 128]. b: [K / 128, columns of B / 128], rounded up.
        a_step, b_step: elements from row to row.
    """

    a: Any
    b: Any
    a_step: Any
    b_step: Any


@gluon.jit
def accumulate_blocks(
    GROUP: gl.constexpr, operands, work, unit, step, scale, trace, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr
):
    """The sums of a unit's products, each block's times its scales, and the step after it."""
    row, column = scaled_origin(GROUP, work, unit, scale, CONFIG)
    begin = field(work, unit, K_BEGIN)
    end = field(work, unit, K_END)
    began = time(trace)
    await_full(operands, step, CONFIG)
    record_event(trace, unit, OPERANDS + GROUP, began)
    began = time(trace)
    # Only now: the load warp has waited for the peers' rows, and for their scales with them. Its acquire has dropped
    # the lines of the L1 cache, which a row's scales of many steps come from.
    sums, step = accumulate_scaled(
        GROUP, operands, scale.of.a, row, scale.rows - 1, scale.of.a_step, scale.of.b + column // _BLOCK, None,
        scale.of.b_step, begin, end, step, CONFIG, B_BY_COLUMNS,
    )  # fmt: skip
    record_event(trace, unit, COMPUTE + GROUP, began)
    return sums, step


@gluon.jit
def accumulate_scaled(
    GROUP: gl.constexpr, operands, a, row, last, a_step, b, b_of_half, b_step, begin, end, step,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """The sums of the products of the next blocks, from ``begin`` to ``end``, each block's times its scales, and the
    step after them.

    Args:
        a, a_step: scales of rows, of which a row's are contiguous.
        row, last: the group's first row, and the last one that has scales. Rows behind it take that one's, and their
            sums are not stored.
        b, b_step: scales of the blocks of these columns, one for all of a tile, or for the first half of its columns if
            ``b_of_half`` has those of the second.
    """
    ROWS: gl.constexpr = CONFIG.group_m
    COLUMNS: gl.constexpr = CONFIG.block_n
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[gl.num_warps(), 1],
        instr_shape=[16, COLUMNS, 256 // operands.a.dtype.primitive_bitwidth],
    )
    # Offsets are of 32 bits, as registers are few: 2^31 scales are of 2^38 elements.
    of_a = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)), last) * a_step
    sums = gl.zeros((ROWS, COLUMNS), gl.float32, LAYOUT)
    products = gl.zeros((ROWS, COLUMNS), gl.float32, LAYOUT)
    next_of_a = gl.load(a + of_a + begin)
    next_of_b = gl.load(b + begin * b_step)
    if b_of_half is not None:
        in_half = (gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT)) >= COLUMNS // 2)[None, :]
        next_of_half = gl.load(b_of_half + begin * b_step)
    for k in range(begin, end):
        stage = await_full(operands, step, CONFIG)
        b_block = operands.b.index(stage)
        if B_BY_COLUMNS:
            b_block = b_block.permute((1, 0))
        block = operands.a.index(stage * CONFIG.groups + GROUP)
        products = warpgroup_mma(block, b_block, products, use_acc=False, is_async=True)
        # The next block's scales are in flight while this one is multiplied; behind the last, this one's again. This
        # one's are used behind its instructions, so that the first ones of a tile do not hold these up.
        this_of_a = next_of_a
        this_of_b = next_of_b
        following = gl.minimum(k + 1, end - 1)
        next_of_a = gl.load(a + of_a + following)
        next_of_b = gl.load(b + following * b_step)
        if b_of_half is not None:
            this_of_half = next_of_half
            next_of_half = gl.load(b_of_half + following * b_step)
        products = warpgroup_mma_wait(0, (products,))
        mbarrier.arrive(operands.empty.index(stage))
        factors = (this_of_a * this_of_b)[:, None]
        if b_of_half is not None:
            sums += products * gl.where(in_half, (this_of_a * this_of_half)[:, None], factors)
        else:
            sums += products * factors
        step += 1
    return sums, step
