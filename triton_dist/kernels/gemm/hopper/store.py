"""The store warp: finished tiles from shared memory to this PE's memory and to peers, by TMA."""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_tile_block
from triton_dist.kernels.gemm.hopper.flags import await_time, clock, nanoseconds, stores_complete
from triton_dist.kernels.gemm.hopper.layout import K_BEGIN, K_END, UNIT
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.trace_events import SEND, record_event, time
from triton_dist.kernels.gemm.hopper.work import block_origin, finishes_tile, tile_of, units_of_program

__all__ = ["IN_FLIGHT", "Pacing", "issue_intervals", "release_block", "send_block", "store_tiles"]

IN_FLIGHT = gl.constexpr(2)  # pieces of a program


class Pacing(NamedTuple):
    """How stores to peers are throttled: the interval from piece to piece, by two clocks (``pacing.py``).

    Attributes:
        cycles: 256ths of cycles, for each step along K of the unit that is computed meanwhile.
        nanoseconds: on average of a block.
    """

    cycles: Any
    nanoseconds: Any


@gluon.jit
def store_tiles(c, output, work, trace, CONFIG: gl.constexpr):
    """Store every finished tile to ``c``."""
    GROUPS: gl.constexpr = CONFIG.groups
    first, last = units_of_program(work)
    phase = 0
    for unit in range(first, last):
        if finishes_tile(work, unit):
            row, column = tile_of(work, unit)
            began = time(trace)
            for group in gl.static_range(GROUPS):
                began = await_tile_block(output, group, phase, trace, unit, began)
                place = block_origin(row, column, group, CONFIG)
                tma.async_store(c, place, output.blocks.index(group))
                release_block(output, group)
            phase ^= 1
            record_event(trace, unit, SEND, began)


@gluon.jit
def release_block(output, group: gl.constexpr):
    """Let a group write its block of the tile buffer again, when TMA has read it."""
    tma.store_wait(0)
    mbarrier.arrive(output.empty.index(group))


@gluon.jit
def issue_intervals(pacing, work, unit, last):
    """Cycles and nanoseconds from piece to piece while the unit after ``unit`` is computed; 0 behind the last."""
    begin = gl.load(work.units + (unit + 1) * UNIT + K_BEGIN, mask=unit + 1 < last, other=0)
    end = gl.load(work.units + (unit + 1) * UNIT + K_END, mask=unit + 1 < last, other=0)
    return pacing.cycles * (end - begin) >> 8, gl.where(begin < end, pacing.nanoseconds, 0)


@gluon.jit
def send_block(peers_c, place, output, group: gl.constexpr, cycles, interval, in_flight: gl.constexpr = IN_FLIGHT):
    """Store a group's block of a tile to each descriptor in ``peers_c``, throttled, in pieces as these describe them.

    What NVLink does not take at once waits in the queue of this program's TMA loads. So pieces are issued at intervals:
    a share of the time of what is computed meanwhile, in cycles, and what NVLink takes, in nanoseconds from the begin
    of the block, which do not grow when the GPU lowers its clock.
    """
    if len(peers_c) > 0:
        _send_pieces(peers_c, place, output, group, cycles, interval, in_flight)


@gluon.jit
def _send_pieces(peers_c, place, output, group: gl.constexpr, cycles, interval, in_flight: gl.constexpr):
    ROWS: gl.constexpr = peers_c[0].block_shape[0]
    COLUMNS: gl.constexpr = peers_c[0].block_shape[1]
    DOWN: gl.constexpr = output.blocks.shape[1] // ROWS
    ACROSS: gl.constexpr = output.blocks.shape[2] // COLUMNS
    pieces = reinterpret(
        output.blocks, output.blocks.dtype, [output.blocks.shape[0] * DOWN * ACROSS, ROWS, COLUMNS], peers_c[0].layout
    )
    due = nanoseconds()
    for number in range(DOWN * ACROSS):
        piece = [place[0] + number % DOWN * ROWS, place[1] + number // DOWN * COLUMNS]
        for i in gl.static_range(len(peers_c)):
            began = clock()
            tma.async_store(peers_c[i], piece, pieces.index(group * (DOWN * ACROSS) + number))
            stores_complete(in_flight - 1)
            due += interval
            while clock() - began < cycles:
                pass
            await_time(due)
