"""Direct reduction of tiles: the PEs send their partial sums of a tile to its owner at once.

What GEMM + all-reduce and GEMM + reduce-scatter share. The owner is the PE that gets the tile's rows; where all PEs get
all rows, PEs take turns (``Deal``). The other PEs compute a tile first and send it to the owner's staging memory. The
owner computes it later, adds what has arrived in float32, in the order of the PEs after it, and has the sum: rounded
once where it leaves another PE, and in the end.

A ring (``ring.py``) sends as many bytes. But its steps follow each other, and PEs have their own tiles last, so that
sums leave for all PEs in the end. Here a tile waits for nothing but its own partial sums, and sums leave while others
are computed.

What has arrived comes through the operand ring, as further steps of a tile: the load warp waits for it, ahead of the
groups as with operands, and a block of B takes as much room as a group's block of partial sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import LARGE, WIDE, Config
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_full, await_tile_block, begin_stage
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, exchange_done, is_last_program
from triton_dist.kernels.gemm.hopper.flags import (
    acquire,
    fence_async_proxy,
    reads_complete,
    signal_peer,
    stores_complete,
    wait_peers,
)
from triton_dist.kernels.gemm.hopper.launch import Plan
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
from triton_dist.kernels.gemm.hopper.pacing import pacing_of
from triton_dist.kernels.gemm.hopper.reinterpret import reinterpret
from triton_dist.kernels.gemm.hopper.store import IN_FLIGHT, issue_intervals, release_block, send_block
from triton_dist.kernels.gemm.hopper.trace_events import HAND_OVER, PEERS, RECEIVE, SEND, record_event, time
from triton_dist.kernels.gemm.hopper.work import block_origin, field, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, groups_of, make_schedule

__all__ = [
    "Deal",
    "DirectPlan",
    "Shares",
    "by_rows",
    "by_turns",
    "computed_in_order",
    "direct_schedule",
    "each_by_rows",
    "each_by_turns",
    "load_direct_tiles",
    "make_direct_plan",
    "most_staged",
    "multiply_direct_tiles",
    "numbered",
    "store_direct_tiles",
]

SHARE = 0.5
"""Share of the next tile's time over which a tile is sent. (A PE's own tiles are computed a round later.)"""


class Deal(NamedTuple):
    """How tiles are dealt out to their owners.

    Attributes:
        each: how many a PE owns at most.
        columns: of tiles, where a PE owns the tiles of its rows, ``each`` of them: ``layout.PE`` is the owner. None:
            ``layout.PE`` numbers the tiles, and number i belongs to PE i mod n, whatever its rows are.
    """

    each: Any
    columns: Any


@gluon.jit
def _owner_of(work, unit, deal, N_PES: gl.constexpr):
    if deal.columns is None:
        return field(work, unit, PE) % N_PES
    else:
        return field(work, unit, PE)


@gluon.jit
def _place_of(work, unit, source, deal, N_PES: gl.constexpr):
    """The number of a tile's flag and of its block in the owner's staging memory: that of the ``source``-th PE after
    the owner."""
    if deal.columns is None:
        return source * deal.each + field(work, unit, PE) // N_PES
    else:
        row, column = tile_of(work, unit)
        return (source - field(work, unit, PE)) * deal.each + row * deal.columns + column


@gluon.jit
def _blocks_of_sums(operands, output, CONFIG: gl.constexpr):
    """The blocks of B in the operand ring, as blocks of partial sums of one group."""
    return reinterpret(
        operands.b, output.blocks.dtype, [CONFIG.stages, CONFIG.group_m, CONFIG.block_n], output.blocks.layout
    )


@gluon.jit
def multiply_direct_tiles(
    GROUP: gl.constexpr, operands, output, work, trace, state, split, scale, epilogue, me, deal, residual_rows, padding,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Compute this group's rows of every unit in order, and add to this PE's own tiles what has arrived.

    The residual has ``residual_rows``, and tiles are of as many and ``padding`` more.
    """
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
            if _owner_of(work, unit, deal, N_PES) == me:
                for _ in range(N_PES - 1):
                    for group in gl.static_range(GROUPS):
                        stage = await_full(operands, step, CONFIG)
                        if group == GROUP:
                            sums += arrived.index(stage).load(sums.type.layout).to(gl.float32)
                            reads_complete()
                        mbarrier.arrive(operands.empty.index(stage))
                        step += 1
                sums = finish_unit(GROUP, sums, epilogue, work, unit, CONFIG, residual_rows, padding)
            mbarrier.wait(output.empty.index(GROUP), phase)
            record_event(trace, unit, HAND_OVER + GROUP, began)
            hand_over(GROUP, sums, output)
            phase ^= 1


@gluon.jit
def load_direct_tiles(
    a, a_piece, b, staging, operands, output, work, trace, state, peers, deal,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr, padding=None,
):  # fmt: skip
    """Load the blocks of every unit in order and, behind them, the other PEs' sums of a tile that this PE owns. For
    ``padding`` see ``load_unit``."""
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    arrived = _blocks_of_sums(operands, output, CONFIG)
    first, last = units_of_program(work)
    step = 0
    for unit in range(first, last):
        step = load_unit(a, a_piece, b, operands, work, unit, step, CONFIG, B_BY_COLUMNS, padding)
        if finishes_tile(work, unit) & (_owner_of(work, unit, deal, N_PES) == peers.me):
            for source in range(N_PES - 1):
                place = _place_of(work, unit, source, deal, N_PES)
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
    stagings, output, work, trace, unit, peers, deal, epoch, phase, cycles, interval,
    CONFIG: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Send a tile to its owner, and signal it."""
    GROUPS: gl.constexpr = CONFIG.groups
    ahead = (_owner_of(work, unit, deal, N_PES) - peers.me + N_PES) % N_PES
    place = _place_of(work, unit, N_PES - 1 - ahead, deal, N_PES)
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
    c, peers_c, stagings, output, work, trace, state, peers, deal, pacing, shard_rows,
    CONFIG: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Send tiles to their owners' staging memory, of the next PE, the one after it, and so on in ``stagings``. Store
    this PE's own to C: to their rows of all of C and, too, to that of all peers in ``peers_c``, if ``shard_rows`` is
    None, else to a C that has this PE's rows only, of a shard of so many with the padding."""
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
            if _owner_of(work, unit, deal, N_PES) == peers.me:
                row, column = tile_of(work, unit)
                # Few programs have an own tile at a time, which takes no longer than others.
                to_all_cycles, to_all_interval = cycles // max(1, N_PES - 1), interval // max(1, N_PES - 1)
                began = time(trace)
                for group in gl.static_range(GROUPS):
                    began = await_tile_block(output, group, phase, trace, unit, began)
                    origin = block_origin(row, column, group, CONFIG)
                    if shard_rows is None:
                        tma.async_store(c, origin, output.blocks.index(group))
                        send_block(peers_c, origin, output, group, to_all_cycles, to_all_interval, TO_ALL_IN_FLIGHT)
                    else:
                        tma.async_store(c, [origin[0] % shard_rows, origin[1]], output.blocks.index(group))
                    release_block(output, group)
                record_event(trace, unit, SEND, began)
            else:
                _send_to_owner(
                    stagings, output, work, trace, unit, peers, deal, epoch, phase, cycles, interval, CONFIG, N_PES
                )
            phase ^= 1
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        if shard_rows is None:
            exchange_done(peers, epoch, work, trace, N_PES)


class Shares(NamedTuple):
    """For how many tiles of each PE there is memory, and their size."""

    each: int
    config: Config

    def staging_shape(self, n_pes: int) -> tuple[int, int]:
        """Of what the other PEs send an owner, a tile below the other."""
        return max(1, (n_pes - 1) * self.each) * self.config.block_m, self.config.block_n


def most_staged(rows: int, columns: int, n_pes: int, each: Callable[[int, int, int], int]) -> tuple[int, int]:
    """The largest shape of staging memory for sums of up to so many rows, which are whole tiles.

    Args:
        each: the most tiles that a PE owns of so many rows and columns of tiles: :func:`each_by_turns` or
            :func:`each_by_rows`.
    """
    shares = []
    for config in (LARGE, WIDE):
        height, width = rows // config.block_m, -(-columns // config.block_n)
        shares.append(Shares(max(each(some, width, n_pes) for some in range(1, 1 + height)), config))
    return max((one.staging_shape(n_pes) for one in shares), key=math.prod)


def each_by_turns(rows: int, columns: int, n_pes: int) -> int:
    """The most tiles that a PE has of so many rows and columns of tiles, if PEs take turns."""
    groups = -(-rows // _HEIGHT)
    return -(-groups * columns // n_pes) * -(-rows // groups)


def each_by_rows(rows: int, columns: int, n_pes: int) -> int:
    """The same if each PE has as many of the rows."""
    return rows // n_pes * columns


@dataclass(frozen=True)
class DirectPlan:
    """A plan, and how the tiles are dealt out."""

    plan: Plan
    shares: Shares


Dealt = tuple[list[Tile], list[int], int]
"""Tiles in an order that is the same on all PEs, the owner of each, and how many a PE owns at most."""


def make_direct_plan(
    comm: Communicator,
    name: str,
    a: torch.Tensor,
    c: torch.Tensor,
    dealt: Callable[[range, range, int], Dealt],
    *,
    sm_margin: int,
    of_blocks: bool,
) -> DirectPlan:
    """The plan for GEMMs with ``a`` in ``c``, whole tiles of rows, more than 64. *Collective.*

    Args:
        dealt: the tiles of these rows and columns for so many PEs.
        of_blocks: whether scales are of blocks.
    """
    programs, n_pes = portable.programs(sm_margin), comm.n_pes
    schedule, shares = direct_schedule(a, c, dealt, programs, n_pes, comm.my_rank, of_blocks=of_blocks)
    n_flags = TILES.value + (n_pes - 1) * shares.each
    tile_columns = len(shares.config.tiles(c)[1])
    pacing = pacing_of(shares.config, SHARE, 1, programs)
    plan = Plan(comm, name, schedule, shares.config, n_flags=n_flags, tile_columns=tile_columns, pacing=pacing)
    return DirectPlan(plan, shares)


def direct_schedule(
    a: torch.Tensor,
    c: torch.Tensor,
    dealt: Callable[[range, range, int], Dealt],
    programs: int,
    n_pes: int,
    me: int,
    *,
    of_blocks: bool = False,
) -> tuple[Schedule, Shares]:
    """The schedule of PE ``me``, whose operands need no memory; for the arguments see :func:`make_direct_plan`."""
    config = _config(c, programs, of_blocks=of_blocks)
    tiles, owners, each = dealt(*config.tiles(c), n_pes)
    lag = programs if config.block_n == WIDE.block_n else 2 * programs
    order = computed_in_order([owner == me for owner in owners], programs, lag)
    return make_schedule([tiles[i] for i in order], config.k_steps(a), programs), Shares(each, config)


def by_turns(rows: range, columns: range, n_pes: int) -> Dealt:
    """Tiles of rows for all PEs, numbered (``numbered``)."""
    places = list(grouped(rows, columns, _HEIGHT))
    numbers = numbered(len(rows), places, n_pes)
    tiles = [Tile(*place, number) for place, number in zip(places, numbers, strict=True)]
    return tiles, [number % n_pes for number in numbers], each_by_turns(len(rows), len(columns), n_pes)


def by_rows(rows: range, columns: range, n_pes: int) -> Dealt:
    """Tiles of rows of which each PE gets as many: a few of each PE, column by column, so that sums leave for all PEs
    all the time, and tiles that are computed together share rows of A and columns of B."""
    each = len(rows) // n_pes
    tiles = [
        Tile(pe * each + row, column, pe)
        for some in groups_of(range(each), max(1, _HEIGHT // n_pes))
        for column in columns
        for pe in range(n_pes)
        for row in some
    ]
    return tiles, [tile.pe for tile in tiles], each_by_rows(len(rows), len(columns), n_pes)


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
