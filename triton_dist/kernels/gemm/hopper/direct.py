"""Direct reduction of tiles: the PEs send their partial sums of a tile to its owner at once.

Tile number i belongs to PE i mod n, whatever its rows are. The other PEs compute it first and send it to the owner's
staging memory. The owner computes it later, adds what has arrived in float32, in the order of the PEs after it, and has
the sum: rounded once where it leaves another PE, and in the end.

A ring (``ring.py``) sends as many bytes. But its steps follow each other, and PEs have their own tiles last, so that
sums leave for all PEs in the end. Here a tile waits for nothing but its own partial sums, and sums leave while others
are computed.

What has arrived comes through the operand ring, as further steps of a tile: the load warp waits for it, ahead of the
groups as with operands, and a block of B takes as much room as a group's block of partial sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.gemm.config import LARGE, WIDE, Config
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_full, await_tile_block, begin_stage
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, exchange_done, is_last_program
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, signal_peer, stores_complete, wait_peers
from triton_dist.kernels.gemm.hopper.layout import ENTERED, PE, TILES
from triton_dist.kernels.gemm.hopper.load import load_unit
from triton_dist.kernels.gemm.hopper.multiply import (
    accumulate_unit,
    factor_of,
    finish_unit,
    hand_over,
    reduce_parts,
    scale_unit,
)
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.store import IN_FLIGHT, issue_intervals, release_block, send_block
from triton_dist.kernels.gemm.hopper.trace_events import HAND_OVER, PEERS, RECEIVE, SEND, record_event, time
from triton_dist.kernels.gemm.hopper.work import block_origin, field, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule

__all__ = [
    "Shares",
    "computed_in_order",
    "direct_schedule",
    "load_direct_tiles",
    "most_staged",
    "multiply_direct_tiles",
    "numbered",
    "store_direct_tiles",
]


@gluon.jit
def _owner_of(work, unit, N_PES: gl.constexpr):
    return field(work, unit, PE) % N_PES


@gluon.jit
def _place_of(work, unit, source, each, N_PES: gl.constexpr):
    """The number of a tile's flag and of its block in the owner's staging memory: that of the ``source``-th PE after
    the owner, for a tile of ``each``."""
    return source * each + field(work, unit, PE) // N_PES


@gluon.jit
def _blocks_of_sums(operands, output, CONFIG: gl.constexpr):
    """The blocks of B in the operand ring, as blocks of partial sums of one group."""
    return reinterpret(
        operands.b, output.blocks.dtype, [CONFIG.stages, CONFIG.group_m, CONFIG.block_n], output.blocks.layout
    )


@gluon.jit
def multiply_direct_tiles(
    GROUP: gl.constexpr, operands, output, work, trace, state, split, scale, epilogue, me, residual_rows,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Compute this group's rows of every unit in order, and add to this PE's own tiles what has arrived."""
    GROUPS: gl.constexpr = CONFIG.groups
    first, last = units_of_program(work)
    factor = factor_of(scale, CONFIG)
    epoch = epoch_of(state)
    arrived = _blocks_of_sums(operands, output, CONFIG)
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
            if _owner_of(work, unit, N_PES) == me:
                for _ in range(N_PES - 1):
                    for group in gl.static_range(GROUPS):
                        stage = await_full(operands, step, CONFIG)
                        if group == GROUP:
                            sums += arrived.index(stage).load(sums.type.layout).to(gl.float32)
                            gl.barrier()  # all warps of the group have read it
                        mbarrier.arrive(operands.empty.index(stage))
                        step += 1
                sums = finish_unit(GROUP, sums, epilogue, work, unit, CONFIG, residual_rows)
            mbarrier.wait(output.empty.index(GROUP), phase)
            record_event(trace, unit, HAND_OVER + GROUP, began)
            hand_over(GROUP, sums, output)
            phase ^= 1


@gluon.jit
def load_direct_tiles(
    a, a_piece, b, staging, operands, output, work, trace, state, peers, each,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Load the blocks of every unit in order and, behind them, the other PEs' sums of a tile that this PE owns."""
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    arrived = _blocks_of_sums(operands, output, CONFIG)
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        step = load_unit(a, a_piece, b, operands, work, unit, step, CONFIG, B_BY_COLUMNS)
        if finishes_tile(work, unit) & (_owner_of(work, unit, N_PES) == peers.me):
            for source in range(N_PES - 1):
                place = _place_of(work, unit, source, each, N_PES)
                began = time(trace)
                acquire(peers.flags + TILES + place, epoch, "sys")
                record_event(trace, unit, RECEIVE, began)
                fence_async_proxy()
                for group in gl.static_range(GROUPS):
                    stage, full = begin_stage(operands, step, staging.block_type.nbytes, CONFIG)
                    row = place * CONFIG.block_m + group * CONFIG.group_m
                    tma.async_load(staging, [row, 0], full, arrived.index(stage))
                    step += 1


@gluon.jit
def _send_to_owner(
    stagings, output, work, trace, unit, peers, each, epoch, phase, cycles, interval,
    CONFIG: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Send a tile to its owner, and signal it."""
    GROUPS: gl.constexpr = CONFIG.groups
    ahead = (_owner_of(work, unit, N_PES) - peers.me + N_PES) % N_PES
    place = _place_of(work, unit, N_PES - 1 - ahead, each, N_PES)
    began = time(trace)
    for group in gl.static_range(GROUPS):
        began = await_tile_block(output, group, phase, trace, unit, began)
        origin = [place * CONFIG.block_m + group * CONFIG.group_m, 0]
        for i in gl.static_range(N_PES - 1):
            if ahead == i + 1:
                send_block((stagings[i],), origin, output, group, cycles, interval)
        release_block(output, group)
    stores_complete()
    distance = gl.load(peers.distances + (peers.me + ahead) % N_PES)
    signal_peer(peers.flags + TILES + place, distance, epoch)
    record_event(trace, unit, SEND, began)


@gluon.jit
def store_direct_tiles(
    c, peers_c, stagings, output, work, trace, state, peers, each, pacing, CONFIG: gl.constexpr, N_PES: gl.constexpr
):
    """Send tiles to their owners' staging memory, of the next PE, the one after it, and so on in ``stagings``. Store
    this PE's own to C and, too, to that of all peers in ``peers_c``."""
    GROUPS: gl.constexpr = CONFIG.groups
    TO_ALL_IN_FLIGHT: gl.constexpr = IN_FLIGHT * max(1, N_PES - 1)
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    admit_peers(peers, epoch, N_PES)
    phase = 0
    peers_ready = False
    for unit in range(first, last):
        if finishes_tile(work, unit):
            cycles, interval = issue_intervals(pacing, work, unit, last)
            if not peers_ready:
                began = time(trace)
                wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
                record_event(trace, unit, PEERS, began)
                peers_ready = True
            if _owner_of(work, unit, N_PES) == peers.me:
                row, column = tile_of(work, unit)
                # Few programs have an own tile at a time, which takes no longer than others.
                to_all_cycles, to_all_interval = cycles // max(1, N_PES - 1), interval // max(1, N_PES - 1)
                began = time(trace)
                for group in gl.static_range(GROUPS):
                    began = await_tile_block(output, group, phase, trace, unit, began)
                    origin = block_origin(row, column, group, CONFIG)
                    tma.async_store(c, origin, output.blocks.index(group))
                    send_block(peers_c, origin, output, group, to_all_cycles, to_all_interval, TO_ALL_IN_FLIGHT)
                    release_block(output, group)
                record_event(trace, unit, SEND, began)
            else:
                _send_to_owner(
                    stagings, output, work, trace, unit, peers, each, epoch, phase, cycles, interval, CONFIG, N_PES
                )
            phase ^= 1
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        exchange_done(peers, epoch, work, trace, N_PES)


class Shares(NamedTuple):
    """For how many tiles of each PE there is memory, and their size."""

    each: int
    config: Config

    def staging_shape(self, n_pes: int) -> tuple[int, int]:
        """Of what the other PEs send an owner, a tile below the other."""
        return max(1, (n_pes - 1) * self.each) * self.config.block_m, self.config.block_n


def most_staged(rows: int, columns: int, n_pes: int) -> tuple[int, int]:
    """The largest shape of staging memory for a C of up to so many rows."""
    heights = range(1, 1 + -(-rows // LARGE.block_m))
    shares = [
        Shares(_each(height, -(-columns // config.block_n), n_pes), config)
        for height in heights
        for config in (LARGE, WIDE)
    ]
    return max((one.staging_shape(n_pes) for one in shares), key=math.prod)


def _each(rows: int, columns: int, n_pes: int) -> int:
    """The most tiles that a PE has of so many rows and columns of tiles."""
    groups = -(-rows // _HEIGHT)
    return -(-groups * columns // n_pes) * -(-rows // groups)


def direct_schedule(
    a: torch.Tensor, c: torch.Tensor, programs: int, n_pes: int, me: int, *, of_blocks: bool = False
) -> tuple[Schedule, Shares]:
    """The schedule of PE ``me`` for a GEMM with ``a`` in ``c``, which need no memory."""
    config = _config(c, programs, of_blocks=of_blocks)
    rows, columns = config.tiles(c)
    places = list(grouped(rows, columns, _HEIGHT))
    numbers = numbered(len(rows), places, n_pes)
    lag = programs if config.block_n == WIDE.block_n else 2 * programs
    order = computed_in_order([number % n_pes == me for number in numbers], programs, lag)
    tiles = [Tile(*places[i], numbers[i]) for i in order]
    return make_schedule(tiles, config.k_steps(a), programs), Shares(_each(len(rows), len(columns), n_pes), config)


def _config(c: torch.Tensor, programs: int, *, of_blocks: bool) -> Config:
    """Wide tiles where there are many. Of few, what counts is how soon the first are sent, and the last."""
    rows, columns = WIDE.tiles(c)
    wide = len(rows) * len(columns) > _WIDE_ROUNDS * programs and not of_blocks
    return WIDE if wide else replace(LARGE, of_blocks=of_blocks)


_HEIGHT = 8
"""Rows of a group of tiles, at most, of which a column belongs to one PE."""
_WIDE_ROUNDS = 2.5
"""Measured on 4 H100s with N = 5120: 2.4 rounds take as long with either size, 4.8 take 12 % longer with small ones."""


def numbered(rows: int, places: Sequence[tuple[int, int]], n_pes: int) -> list[int]:
    """The numbers of tiles: PE p's are p, p + n_pes and so on.

    PEs take turns from column to column of a group of the ``rows``, as they follow each other in ``places``: those that
    are computed together then share columns of B as they do without owners.
    """
    groups = -(-rows // _HEIGHT)
    counts, numbers, turn = [0] * n_pes, [], -1
    before = None
    for row, column in places:
        place = ((row + 1) * groups - 1) // rows, column  # the group that begins at rows · i // groups
        turn += place != before
        before, owner = place, turn % n_pes
        numbers.append(counts[owner] * n_pes + owner)
        counts[owner] += 1
    return numbers


def computed_in_order(own: Sequence[bool], programs: int, lag: int) -> list[int]:
    """The places of tiles in the order in which a PE computes them: its ``own`` come as many places later as the
    ``lag``.

    When a PE computes its own tile, the others have computed it a round of programs before, or two, and sent it
    meanwhile. So none of the first round is its own, if there are enough others. PEs never wait for each other in a
    circle: a tile of another PE waits only behind own ones that have smaller places.
    """
    of_others = [i for i, is_own in enumerate(own) if not is_own]
    first = of_others[:programs][-1] if of_others else 0
    return sorted(range(len(own)), key=lambda i: max(i + lag, first + 1) if own[i] else i)
