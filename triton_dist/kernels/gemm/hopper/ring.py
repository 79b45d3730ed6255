"""Ring reduction of tiles: what GEMM + reduce-scatter and GEMM + all-reduce share.

Tiles of C belong to PEs. A tile of PE p starts at PE p + 1, which sends its partial sum to PE p + 2, and so on; each PE
adds its own. PE p is the last and has the sum of all. A PE therefore computes the tiles of the PE before it first, and
its own last. Partial sums are sent in C's dtype and added in float32.

Any number of rows goes. Where each PE gets rows, these are a shard, which is padded to whole tiles in the staging
memory: the sums of padding rows are those of other rows of A, or of none, and TMA does not store them to C. Where all
PEs get all rows, any PE may have any tile, so tiles are dealt out equally and only C's last ones are not full.

A receive warp loads the partial sum of the previous PE into the tile buffer. The groups add theirs to it in place, and
the store warp sends it on: one buffer for both ways.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_tile_block
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, exchange_done, is_last_program
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, signal_peer, stores_complete, wait_peers
from triton_dist.kernels.gemm.hopper.launch import Plan
from triton_dist.kernels.gemm.hopper.layout import ENTERED, PE, TILES
from triton_dist.kernels.gemm.hopper.multiply import (
    accumulate_unit,
    factor_of,
    finish_unit,
    hand_over,
    reduce_parts,
    scale_unit,
)
from triton_dist.kernels.gemm.hopper.pacing import pacing_of
from triton_dist.kernels.gemm.hopper.store import issue_intervals, release_block, send_block
from triton_dist.kernels.gemm.hopper.trace_events import HAND_OVER, PEERS, RECEIVE, SEND, record_event, time
from triton_dist.kernels.gemm.hopper.work import block_origin, field, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule
from triton_dist.kernels.gemm.tile_sizes import choose

__all__ = [
    "by_shards",
    "by_tiles",
    "make_received",
    "make_ring_plan",
    "multiply_ring_tiles",
    "receive_tiles",
    "ring_schedule",
    "store_ring_tiles",
]

SHARE = 0.5
"""Share of the next tile's time over which a tile is sent. (What is added to the next tile arrives after that.)"""


@gluon.jit
def make_received():
    """The barrier of a tile buffer that says that the previous PE's partial sum is in it."""
    received = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(received, count=1)
    return received


@gluon.jit
def starts_ring(work, unit, me, N_PES: gl.constexpr):
    """Whether this PE is the first to compute a unit's tile, which then is a tile of the PE before it."""
    return field(work, unit, PE) == (me + N_PES - 1) % N_PES


@gluon.jit
def multiply_ring_tiles(
    GROUP: gl.constexpr, operands, output, received, work, trace, state, split, scale, epilogue, me, residual_rows,
    padding, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Compute this group's rows of every unit in order, and add those of finished tiles to what was received.

    The sum over PEs is complete in this PE's own tiles, to which the epilogue is applied.
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
            mbarrier.wait(received, phase ^ 1)
            if not starts_ring(work, unit, me, N_PES):
                sums += output.blocks.index(GROUP).load(sums.type.layout).to(gl.float32)
            if field(work, unit, PE) == me:
                sums = finish_unit(GROUP, sums, epilogue, work, unit, CONFIG, residual_rows, padding)
            record_event(trace, unit, HAND_OVER + GROUP, began)
            hand_over(GROUP, sums, output)
            phase ^= 1


@gluon.jit
def receive_tiles(
    staging, output, received, work, trace, state, peers, tiles_n, CONFIG: gl.constexpr, N_PES: gl.constexpr
):
    """Load what the previous PE has stored to ``staging`` of every tile, once the tile before has been sent.

    The buffer is handed over for every tile, also where nothing is received, so this warp never falls behind.
    """
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    phase = 1
    for unit in range(first, last):
        if finishes_tile(work, unit):
            for group in gl.static_range(GROUPS):
                mbarrier.wait(output.empty.index(group), phase)
            if starts_ring(work, unit, peers.me, N_PES):
                mbarrier.arrive(received)
            else:
                row, column = tile_of(work, unit)
                began = time(trace)
                acquire(peers.flags + TILES + row * tiles_n + column, epoch, "sys")
                record_event(trace, unit, RECEIVE, began)
                fence_async_proxy()
                mbarrier.expect(received, GROUPS * staging.block_type.nbytes)
                for group in gl.static_range(GROUPS):
                    place = block_origin(row, column, group, CONFIG)
                    tma.async_load(staging, place, received, output.blocks.index(group))
            phase ^= 1


@gluon.jit
def _signal_next_pe(tile_row, tile_column, peers, tiles_n, epoch, N_PES: gl.constexpr):
    """Signal the next PE that a tile is in its staging memory."""
    stores_complete()
    flag = peers.flags + TILES + tile_row * tiles_n + tile_column
    signal_peer(flag, gl.load(peers.distances + (peers.me + 1) % N_PES), epoch)


@gluon.jit
def store_ring_tiles(
    c, peers_c, next_staging, output, work, trace, state, peers, tiles_n, pacing, shard_rows,
    CONFIG: gl.constexpr, N_PES: gl.constexpr, TO_ALL: gl.constexpr,
):  # fmt: skip
    """Send tiles to the next PE's staging memory. Store this PE's own to its C: to their rows of all of C and, too, to
    that of all peers in ``peers_c``, if ``TO_ALL``, else to a C that has this PE's rows only, of a shard of
    ``shard_rows`` with the padding."""
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    admit_peers(peers, epoch, N_PES)
    phase = 0
    peers_ready = False
    for unit in range(first, last):
        if finishes_tile(work, unit):
            row, column = tile_of(work, unit)
            owner = field(work, unit, PE)
            cycles, interval = issue_intervals(pacing, work, unit, last)
            if not peers_ready:
                began = time(trace)
                wait_peers(peers.flags + ENTERED, epoch, peers.me, N_PES)
                record_event(trace, unit, PEERS, began)
                peers_ready = True
            began = time(trace)
            for group in gl.static_range(GROUPS):
                began = await_tile_block(output, group, phase, trace, unit, began)
                place = block_origin(row, column, group, CONFIG)
                if owner != peers.me:
                    send_block((next_staging,), place, output, group, cycles, interval)
                elif TO_ALL:
                    tma.async_store(c, place, output.blocks.index(group))
                    send_block(peers_c, place, output, group, cycles, interval)
                else:
                    own_row = place[0] % shard_rows
                    tma.async_store(c, [own_row, place[1]], output.blocks.index(group))
                release_block(output, group)
            phase ^= 1
            if owner != peers.me:
                _signal_next_pe(row, column, peers, tiles_n, epoch, N_PES)
            record_event(trace, unit, SEND, began)
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        if TO_ALL:
            exchange_done(peers, epoch, work, trace, N_PES)


def by_shards(staging: torch.Tensor, columns: range, n_pes: int, config: Config) -> list[list[Tile]]:
    """The tiles of each PE, which has an equal part of the rows of ``staging``, whole tiles."""
    each = staging.shape[0] // config.block_m // n_pes
    return [
        [Tile(row, column, pe) for row, column in grouped(range(pe * each, (pe + 1) * each), columns)]
        for pe in range(n_pes)
    ]


def by_tiles(staging: torch.Tensor, columns: range, n_pes: int, config: Config) -> list[list[Tile]]:
    """The tiles of each PE, of which all have as many but for one."""
    places = list(grouped(range(staging.shape[0] // config.block_m), columns))
    ends = [len(places) * pe // n_pes for pe in range(n_pes + 1)]
    return [[Tile(*place, pe) for place in places[ends[pe] : ends[pe + 1]]] for pe in range(n_pes)]


def make_ring_plan(
    comm: Communicator,
    name: str,
    a: torch.Tensor,
    staging: torch.Tensor,
    owned: Callable[[torch.Tensor, range, int, Config], list[list[Tile]]],
    *,
    peers: int,
    sm_margin: int,
    of_blocks: bool,
) -> Plan:
    """The plan for GEMMs with ``a`` whose partial sums arrive in ``staging``, whole tiles of rows. *Collective.*

    PE p computes the tiles of PE p - 1 first, then those of p - 2, and its own last.

    Args:
        owned: the tiles of each PE.
        peers: to how many PEs a tile is sent at most.
        of_blocks: whether scales are of blocks.
    """
    programs = portable.programs(sm_margin)
    schedule, config = ring_schedule(a, staging, owned, programs, comm.n_pes, comm.my_rank, of_blocks=of_blocks)
    rows, columns = config.tiles(staging)
    return Plan(
        comm,
        name,
        schedule,
        config,
        n_flags=TILES.value + len(rows) * len(columns),
        tile_columns=len(columns),
        pacing=pacing_of(config, SHARE, peers, programs),
    )


def ring_schedule(
    a: torch.Tensor,
    staging: torch.Tensor,
    owned: Callable[[torch.Tensor, range, int, Config], list[list[Tile]]],
    programs: int,
    n_pes: int,
    me: int,
    *,
    of_blocks: bool = False,
) -> tuple[Schedule, Config]:
    """The schedule of PE ``me``, whose operands need no memory; for the arguments see :func:`make_ring_plan`."""
    config = choose(a, staging, programs, of_blocks=of_blocks)
    of_pes = owned(staging, config.tiles(staging)[1], n_pes, config)
    tiles = [tile for i in range(n_pes) for tile in of_pes[(me - 1 - i) % n_pes]]
    return make_schedule(tiles, config.k_steps(a), programs), config
