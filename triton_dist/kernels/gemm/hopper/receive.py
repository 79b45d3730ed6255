"""The warp that fetches what the PE before this one in the ring has summed of a tile."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_dist.kernels.gemm.hopper.flags import acquire, after_generic
from triton_dist.kernels.gemm.hopper.layout import EPOCH, PE, SLOT, TILE_COLUMN, TILE_ROW, TILES, UNIT
from triton_dist.kernels.gemm.hopper.trace_events import RECEIVE, note, time

__all__ = ["receive_tiles"]


@gluon.jit
def receive_tiles(
    staging, outgoing, schedule, trace, state, flags, pes, tiles_n,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """Into the buffer that a tile will leave from, once the tile before has left. It hands over the buffer for every
    tile, also where nothing has to be fetched: so it never falls behind."""
    c_blocks, _, c_empty, c_filled = outgoing
    units, starts = schedule
    me, n_pes = pes
    ROWS: gl.constexpr = BLOCK_M // GROUPS
    program = gl.program_id(0)
    now = gl.load(state + EPOCH) + 1
    phase = 1
    for unit in range(gl.load(starts + program), gl.load(starts + program + 1)):
        if gl.load(units + unit * UNIT + SLOT) < 0:
            for group in gl.static_range(GROUPS):
                mbarrier.wait(c_empty.index(group), phase)
            if gl.load(units + unit * UNIT + PE) == (me + n_pes - 1) % n_pes:
                mbarrier.arrive(c_filled)
            else:
                row = gl.load(units + unit * UNIT + TILE_ROW)
                column = gl.load(units + unit * UNIT + TILE_COLUMN)
                began = time(trace)
                acquire(flags + TILES + row * tiles_n + column, now, "sys")
                note(trace, unit, RECEIVE, began)
                after_generic()
                mbarrier.expect(c_filled, GROUPS * staging.block_type.nbytes)
                for group in gl.static_range(GROUPS):
                    place = [row * BLOCK_M + group * ROWS, column * BLOCK_N]
                    tma.async_copy_global_to_shared(staging, place, c_filled, c_blocks.index(group))
            phase ^= 1
