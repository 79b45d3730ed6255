"""Rings of rows in shared memory from which a combine by TMA adds up (``combine_hopper.py``), and what words hold."""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.flags import reads_complete
from triton_dist.kernels.moe.rounds_hopper import LINE

__all__ = [
    *("Ring", "fill", "layout_of", "lower_of", "make_ring", "release", "step_of", "upper_of"),
    *("words_of", "zeros"),
]


class Ring(NamedTuple):
    """Pairs of boxes in shared memory, [2 x stages, 1, lines, 32] words, the second of which may be left out.

    The barriers of a stage say that it is full, and empty.
    """

    rows: Any
    full: Any
    empty: Any


@gluon.jit
def make_ring(like, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    return Ring(gl.allocate_shared_memory(gl.int32, [2 * STAGES, 1, CONFIG.box, LINE], like.layout), full, empty)


@gluon.jit
def step_of(stage, phase, STAGES: gl.constexpr):
    """The stage behind this one, and the parity with which it is full."""
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def fill(rows, first, second, pair, box: gl.constexpr, ring, stage, phase, STAGES: gl.constexpr, CONFIG: gl.constexpr):
    """Load a box of one row, and if they are a ``pair`` that of a second one, into the ring.

    Lines behind the row are zeros, and count as loaded.
    """
    BYTES: gl.constexpr = CONFIG.box * LINE * 4
    mbarrier.wait(ring.empty.index(stage), phase ^ 1)
    full = ring.full.index(stage)
    mbarrier.expect(full, BYTES, pred=pair == 0)
    mbarrier.expect(full, 2 * BYTES, pred=pair != 0)
    tma.async_load(rows, [first, box * CONFIG.box, 0], full, ring.rows.index(2 * stage))
    tma.async_load(rows, [second, box * CONFIG.box, 0], full, ring.rows.index(2 * stage + 1), pred=pair != 0)
    return step_of(stage, phase, STAGES)


@gluon.jit
def release(ring, stage, phase, STAGES: gl.constexpr):
    """Let a stage be filled again, whose words have been loaded."""
    reads_complete()
    mbarrier.arrive(ring.empty.index(stage))
    return step_of(stage, phase, STAGES)


# ---- what words hold


@gluon.constexpr_function
def layout_of(num_warps):
    """Of a box: a thread has 16 bytes of every so many lines."""
    return gl.BlockedLayout([1, 1, 4], [1, 4, 8], [1, int(num_warps), 1], [2, 1, 0])


@gluon.jit
def zeros(CONFIG: gl.constexpr):
    BOX: gl.constexpr = CONFIG.box
    LAYOUT: gl.constexpr = layout_of(gl.num_warps())
    return gl.zeros([1, BOX, LINE], gl.float32, LAYOUT)


@gluon.jit
def lower_of(words, CONFIG: gl.constexpr):
    """The first element of each word, in float32."""
    if CONFIG.dtype == "float32":
        return words.to(gl.float32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        return (words << 16).to(gl.float32, bitcast=True)
    else:
        return words.to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)


@gluon.jit
def upper_of(words, CONFIG: gl.constexpr):
    """The second one; of float32 the first."""
    if CONFIG.dtype == "float32":
        return words.to(gl.float32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        return (words & -65536).to(gl.float32, bitcast=True)
    else:
        return (words >> 16).to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)


@gluon.jit
def words_of(lower, upper, CONFIG: gl.constexpr):
    """Words of which these are the elements, rounded to the rows' type; of float32 ``upper`` is not used."""
    if CONFIG.dtype == "float32":
        return lower.to(gl.int32, bitcast=True)
    elif CONFIG.dtype == "bfloat16":
        low = lower.to(gl.bfloat16).to(gl.int16, bitcast=True).to(gl.int32) & 65535
        return low | (upper.to(gl.bfloat16).to(gl.int16, bitcast=True).to(gl.int32) << 16)
    else:
        low = lower.to(gl.float16).to(gl.int16, bitcast=True).to(gl.int32) & 65535
        return low | (upper.to(gl.float16).to(gl.int16, bitcast=True).to(gl.int32) << 16)
