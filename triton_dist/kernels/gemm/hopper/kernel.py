"""The program: one warp loads, two groups of four multiply, one warp sends, and one receives where tiles come in."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper.load import load_tiles
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.receive import receive_tiles
from triton_dist.kernels.gemm.hopper.send import send_tiles

__all__ = ["multiply"]


@gluon.jit
def multiply(
    a, a_own, b, c, c0, c1, c2, c3, c4, c5, c6, c7, following, staging,
    units, starts, slots, slot_flags, scale, state, flags, distances, chunk_sizes, chunk_flags,
    me, tiles_n, pace, gap, trace,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUPS: gl.constexpr,
    N_PES: gl.constexpr, OUT: gl.constexpr, GATHER: gl.constexpr, SPLIT: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
    SENDERS: gl.constexpr, IN_FLIGHT: gl.constexpr,
):  # fmt: skip
    RING: gl.constexpr = OUT == "ring" or OUT == "ring_all"
    WORD: gl.constexpr = mbarrier.MBarrierLayout()
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], WORD)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], WORD)
    c_ready = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], WORD)
    c_empty = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], WORD)
    c_filled = gl.allocate_shared_memory(gl.int64, [1], WORD)
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=GROUPS)
    for i in gl.static_range(GROUPS):
        mbarrier.init(c_ready.index(i), count=1)
        mbarrier.init(c_empty.index(i), count=1)
    mbarrier.init(c_filled, count=1)
    a_blocks = gl.allocate_shared_memory(a.dtype, [STAGES * GROUPS, ROWS, BLOCK_K], a.layout)
    b_blocks = gl.allocate_shared_memory(
        b.dtype, [STAGES, BLOCK_N if B_BY_COLUMNS else BLOCK_K, BLOCK_K if B_BY_COLUMNS else BLOCK_N], b.layout
    )
    c_blocks = gl.allocate_shared_memory(c.dtype, [GROUPS, ROWS, BLOCK_N], c.layout)
    ring = (a_blocks, b_blocks, ready, empty)
    outgoing = (c_blocks, c_ready, c_empty, c_filled)
    schedule = (units, starts)
    everywhere = (c0, c1, c2, c3, c4, c5, c6, c7)
    pes = (me, N_PES)
    sums = (slots, slot_flags, scale)
    chunks = (chunk_sizes, chunk_flags)
    # (Tuples of arguments must stand here: in a variable, what is constexpr in them would no longer be.)
    # fmt: off
    if GROUPS == 1:
        gl.static_assert(not RING)
        gl.warp_specialize([
            (multiply_tiles, (ring, outgoing, schedule, trace, state, sums, pes, BLOCK_M, BLOCK_N, STAGES, GROUPS, 0,
                              SPLIT, RING, B_BY_COLUMNS, SENDERS)),
            (load_tiles, (a, a_own, b, c, ring, schedule, trace, state, flags, pes, BLOCK_M, BLOCK_N,
                          BLOCK_K, STAGES, GROUPS, GATHER, B_BY_COLUMNS, SENDERS)),
            (send_tiles, (c, everywhere, following, ring, outgoing, schedule, trace, state, flags, chunks, distances,
                          pes, tiles_n, pace, gap, BLOCK_M, BLOCK_N, STAGES, GROUPS, N_PES, OUT, GATHER, SENDERS,
                          IN_FLIGHT)),
        ], [1, 1], [24, 48])
    elif RING:
        gl.warp_specialize([
            (multiply_tiles, (ring, outgoing, schedule, trace, state, sums, pes, BLOCK_M, BLOCK_N, STAGES, GROUPS, 0,
                              SPLIT, RING, B_BY_COLUMNS, SENDERS)),
            (multiply_tiles, (ring, outgoing, schedule, trace, state, sums, pes, BLOCK_M, BLOCK_N, STAGES, GROUPS, 1,
                              SPLIT, RING, B_BY_COLUMNS, SENDERS)),
            (load_tiles, (a, a_own, b, c, ring, schedule, trace, state, flags, pes, BLOCK_M, BLOCK_N,
                          BLOCK_K, STAGES, GROUPS, GATHER, B_BY_COLUMNS, SENDERS)),
            (send_tiles, (c, everywhere, following, ring, outgoing, schedule, trace, state, flags, chunks, distances,
                          pes, tiles_n, pace, gap, BLOCK_M, BLOCK_N, STAGES, GROUPS, N_PES, OUT, GATHER, SENDERS,
                          IN_FLIGHT)),
            (receive_tiles, (staging, outgoing, schedule, trace, state, flags, pes, tiles_n, BLOCK_M, BLOCK_N, GROUPS)),
        ], [4, 1, 1, 1], [232, 24, 24, 24])
    else:
        gl.warp_specialize([
            (multiply_tiles, (ring, outgoing, schedule, trace, state, sums, pes, BLOCK_M, BLOCK_N, STAGES, GROUPS, 0,
                              SPLIT, RING, B_BY_COLUMNS, SENDERS)),
            (multiply_tiles, (ring, outgoing, schedule, trace, state, sums, pes, BLOCK_M, BLOCK_N, STAGES, GROUPS, 1,
                              SPLIT, RING, B_BY_COLUMNS, SENDERS)),
            (load_tiles, (a, a_own, b, c, ring, schedule, trace, state, flags, pes, BLOCK_M, BLOCK_N,
                          BLOCK_K, STAGES, GROUPS, GATHER, B_BY_COLUMNS, SENDERS)),
            (send_tiles, (c, everywhere, following, ring, outgoing, schedule, trace, state, flags, chunks, distances,
                          pes, tiles_n, pace, gap, BLOCK_M, BLOCK_N, STAGES, GROUPS, N_PES, OUT, GATHER, SENDERS,
                          IN_FLIGHT)),
        ], [4, 1, 1], [232, 24, 24])
    # fmt: on
