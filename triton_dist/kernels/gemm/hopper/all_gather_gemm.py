"""All-gather + GEMM: C = A · B with A split by rows over the PEs; the copy engine gathers A while the kernel computes.

A: [M, K], of which each PE has a shard of M / n_pes rows, rounded up, or the last PEs fewer; B: [K, N] and C: [M, N]
are each PE's own.

Overlap: the schedule begins with this PE's rows of A, which the kernel reads where they are, while the copy engine
sends them to one peer after the other. PE p computes the rows of p, p + 1, … and sends to p - 1 first: the PE that
needs the rows next has them next. The load warp waits for the PEs whose rows a tile has before it loads the first
block of them.

M / n_pes need not be a multiple of a tile's rows. A tile with rows of several PEs comes when the last of these is
due, and is read from the gathered A. This PE's own rows in such tiles are copied there in front of the kernel, and not
beside it: a copy on the same GPU may be a kernel, which finds no SM while this one waits for it.

A PE without rows sends nothing and sets no flag, and no PE waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.fp8 import BlockScales, RowScales
from triton_dist.kernels.gemm.hopper.buffers import await_empty, make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, stores_complete
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.layout import ENTERED, GATHERED, K_BEGIN, K_END, TILES
from triton_dist.kernels.gemm.hopper.load import load_b, load_step
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.hopper.store import store_tiles
from triton_dist.kernels.gemm.hopper.trace_events import ARRIVAL, record_event, time
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule
from triton_dist.kernels.prepared import Part, Second, Step, Taken, launch, nothing, steps
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_work import StreamWork, copy_rows, give, take
from triton_dist.kernels.shards import shard_of
from triton_dist.kernels.tile_order import GROUP
from triton_dist.stream_operations import Operation

__all__ = ["all_gather_gemm_kernel", "arrival_schedule", "make_plan", "pes_of_tile", "rows_as_they_arrive", "run"]


@gluon.jit(do_not_specialize=["rows"])
def all_gather_gemm_kernel(
    own_a, b, c, own_a_piece, a, a_piece, work, split, scale, epilogue, state, peers, rows, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    specialize(
        multiply_tiles, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS),
        _load, (a, a_piece, own_a, own_a_piece, b, operands, work, trace, peers, rows, CONFIG, B_BY_COLUMNS),
        _store, (c, output, work, trace, state, peers, CONFIG, N_PES),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def pes_of_tile(row, rows, m, CONFIG: gl.constexpr):
    """The first and the last PE that has rows of a tile, which begins at ``row``. There are ``m`` rows, in shards of
    so many ``rows``."""
    return row // rows, (gl.minimum(row + CONFIG.block_m, m) - 1) // rows


@gluon.jit
def _load(
    a, a_piece, own_a, own_a_piece, b, operands, work, trace, peers, rows,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
):  # fmt: skip
    """Load the blocks of every unit in order: tiles of this PE's rows of A, of which a whole shard has ``rows``, from
    ``own_a``, others when they have arrived."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    B_BYTES: gl.constexpr = b.block_type.nbytes
    me = peers.me
    first, last = units_of_program(work)
    step = 0
    arrived = 1 << me  # a bit of each PE
    for unit in range(first, last):
        row, column = sums_origin(*tile_of(work, unit), 0, CONFIG)
        first_pe, last_pe = pes_of_tile(row, rows, a.shape[0], CONFIG)
        own = (first_pe == me) & (last_pe == me)
        for pe in range(first_pe, last_pe + 1):
            if (arrived >> pe & 1) == 0:
                began = time(trace)
                acquire(peers.flags + GATHERED + pe, 1, "sys")
                record_event(trace, unit, ARRIVAL, began)
                fence_async_proxy()
                arrived |= 1 << pe
        for k in range(field(work, unit, K_BEGIN), field(work, unit, K_END)):
            stage, full = await_empty(operands, step, CONFIG)
            if own:
                load_step(own_a, own_a_piece, row - me * rows, k * BLOCK_K, full, operands, stage, B_BYTES, CONFIG)
            else:
                load_step(a, a_piece, row, k * BLOCK_K, full, operands, stage, B_BYTES, CONFIG)
            load_b(b, k * BLOCK_K, column, full, operands.b.index(stage), B_BY_COLUMNS)
            step += 1


@gluon.jit
def _store(c, output, work, trace, state, peers, CONFIG: gl.constexpr, N_PES: gl.constexpr):
    """Let the peers' copies into A begin, and store tiles; the last program clears the flags of the copies."""
    epoch = epoch_of(state)
    admit_peers(peers, 1, N_PES)
    store_tiles(c, output, work, trace, CONFIG)
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        for pe in range(N_PES):
            gl.store(peers.flags + GATHERED + pe, 0)


def make_plan(
    comm: Communicator,
    a: torch.Tensor,
    c: torch.Tensor,
    config: Config,
    sm_margin: int = 0,
    *,
    name: str = "all-gather + GEMM",
    n_flags: int = TILES.value,
    state_words: int = 0,
) -> Plan:
    """The plan for GEMMs of these dtypes, with as many rows of tiles and as many columns. *Collective.*

    Args:
        a: this PE's rows of A; with fewer the plan is the same as long as ``c`` has as many rows of tiles.
        name, n_flags, state_words: as of :class:`Plan`.
    """
    tile_rows, columns = config.tiles(c)
    programs = portable.programs(sm_margin)
    group = config.order(a, -(-len(tile_rows) // comm.n_pes), len(columns), programs)  # within the rows of a PE
    schedule = arrival_schedule(a, c, config, programs, comm.n_pes, comm.my_rank, group)
    return Plan(comm, name, schedule, config, n_flags, state_words)


def arrival_schedule(
    a: torch.Tensor, c: torch.Tensor, config: Config, programs: int, n_pes: int, me: int, group: int = GROUP
) -> Schedule:
    """The schedule of PE ``me``, whose matrices need no memory, in groups of so many rows of tiles."""
    tile_rows, columns = config.tiles(c)
    tiles = [
        Tile(row, column, pe)
        for pe, rows in rows_as_they_arrive(len(tile_rows), config.block_m, c.shape[0], n_pes, me)
        for row, column in grouped(rows, columns, group)
    ]
    return make_schedule(tiles, config.k_steps(a), programs)


def rows_as_they_arrive(tile_rows: int, block_m: int, m: int, n_pes: int, me: int) -> list[tuple[int, range]]:
    """The rows of tiles, in the order in which PE ``me`` has all of their ``m`` rows, with the PE that they wait for.

    It has its own at once, then those of PE me + 1, me + 2, and so on.
    """
    due: dict[int, list[int]] = {distance: [] for distance in range(n_pes)}
    for row in range(tile_rows):
        first, last = (min(place, m - 1) * n_pes // m for place in (row * block_m, (row + 1) * block_m - 1))
        due[max((pe - me) % n_pes for pe in range(first, last + 1))].append(row)
    # Rows that wait for one PE follow each other: one of several PEs is the first or the last of those.
    return [((me + distance) % n_pes, range(rows[0], rows[-1] + 1)) for distance, rows in due.items() if rows]


def run(
    plan: Plan, gemm: Operands, gathered: torch.Tensor, gathered_scales: torch.Tensor | None = None
) -> Sequence[Step] | None:
    """c = A · b, times the scale and after the epilogue, on the current stream.

    Args:
        gemm: whose ``a`` are this PE's rows of A, and so are scales of its blocks.
        gathered: symmetric memory for all of A, with as many rows as that.
        gathered_scales: the same for scales of its blocks or rows, where this PE has its own of such.
    """
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gathered, gemm.b, config)
    # TMA has no descriptor of a matrix without rows. No tile is loaded by it then.
    rows = gemm.a.shape[0]
    own_a_map, own_a_piece, _, _ = operand_maps(gemm.a if rows else gathered, gemm.b, config)
    where = _addresses(gemm, gathered_scales)
    addresses = where(gemm.tensors)
    send = StreamWork(_sends(plan, gemm, gathered, gathered_scales))
    in_front: tuple[Part, ...] = ()
    if copies := _copies_in_front(plan, gemm, gathered, gathered_scales):
        copy_own = StreamWork(copies)
        copy_own(comm.current_stream(), *addresses)
        in_front = ((copy_own, where),)
    if isinstance(gemm.scale, (BlockScales, RowScales)) and gathered_scales is not None:
        gemm = gemm._replace(scale=gemm.scale._replace(a=gathered_scales))
    with side_stream(comm) as side:
        made = launch(
            all_gather_gemm_kernel, plan.grid,
            (own_a_map, b_map, tile_map(gemm.c, config), Second(0, own_a_piece)), a_map, a_piece,
            plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, gemm.each, plan.trace(),
            config, b_by_columns, comm.n_pes, **plan.options,
        )  # fmt: skip
        send(side.cuda_stream, *addresses)
    taken = (lambda call: (call.a, call.b, call.out)) if rows else (lambda call: (gathered, call.b, call.out))
    return steps(*in_front, (made, taken, (send, where)))


def _copies_in_front(
    plan: Plan, gemm: Operands, gathered: torch.Tensor, gathered_scales: torch.Tensor | None
) -> list[Operation]:
    """Copies of this PE's rows in tiles with rows of others to ``gathered``, from a matrix like ``a``, and of its
    scales of blocks."""
    a, m, block_m = gemm.a, gathered.shape[0], plan.config.block_m
    own = _rows_of(plan, gemm, m)
    begin, end = own.start, own.stop
    head = range(begin, min(end, -(-begin // block_m) * block_m))
    tail = range(max(begin, end // block_m * block_m), end) if end < m else range(0)
    shared = [range(begin, end)] if head.stop > tail.start and tail else [head, tail]
    copies = [
        copy_rows(gathered[rows.start : rows.stop], a[rows.start - begin : rows.stop - begin], a)
        for rows in shared
        if rows
    ]
    return copies + _scales_copy(plan, gemm, gathered_scales, plan.communicator.my_rank)


def _addresses(gemm: Operands, gathered_scales: torch.Tensor | None) -> Taken:
    """What the operations of a call are relative to: where ``a`` lies, if it has rows, and its scales, if they are
    gathered."""
    if not gemm.a.shape[0]:
        return nothing
    if _own_scales(gemm, gathered_scales) is not None:
        return lambda call: (call.a.data_ptr(), call.scale.a.data_ptr())
    return lambda call: (call.a.data_ptr(),)


def _rows_of(plan: Plan, gemm: Operands, m: int) -> slice:
    """Which of the ``m`` rows of A are this PE's."""
    rows = shard_of(m, gemm.each, plan.communicator.my_rank)
    return slice(rows.start, rows.stop)


def _own_scales(gemm: Operands, gathered_scales: torch.Tensor | None) -> torch.Tensor | None:
    """This PE's scales of A, if they are sent with its rows."""
    if gathered_scales is None or not isinstance(gemm.scale, (BlockScales, RowScales)) or not gemm.a.shape[0]:
        return None
    return gemm.scale.a


def _scales_copy(plan: Plan, gemm: Operands, gathered_scales: torch.Tensor | None, pe: int) -> list[Operation]:
    """The copy of this PE's scales of A to those of all of A on a PE; none without such scales, or rows."""
    scales = _own_scales(gemm, gathered_scales)
    if gathered_scales is None or scales is None:
        return []
    there = plan.communicator.peer(gathered_scales[_rows_of(plan, gemm, gathered_scales.shape[0])], pe)
    return [copy_rows(there.view(1, -1), scales.view(1, -1), scales, 1)]  # contiguous, though a row may be one scale


def _sends(plan: Plan, gemm: Operands, gathered: torch.Tensor, gathered_scales: torch.Tensor | None) -> list[Operation]:
    """Copies of a matrix like ``a`` to the peers, with the flags that order them.

    Scales of blocks go in front of their rows, whose flag says that both have arrived.
    """
    comm, a = plan.communicator, gemm.a
    n_pes, me, flags = comm.n_pes, comm.my_rank, plan.flags
    mine = gathered[_rows_of(plan, gemm, gathered.shape[0])]
    if not a.shape[0]:
        # It takes back that peers have admitted it, which else a later launch, with rows, would take for its own.
        admitted = [flags.data_ptr() + 4 * (ENTERED.value + pe) for pe in range(n_pes) if pe != me]
        return [take(entered) for entered in admitted]
    sends: list[Operation] = []
    for pe in ((me - i) % n_pes for i in range(1, n_pes)):
        entered, arrived = flags.data_ptr() + 4 * (ENTERED.value + pe), comm.peer(flags, pe).data_ptr()
        sends += take(entered), *_scales_copy(plan, gemm, gathered_scales, pe)
        sends += copy_rows(comm.peer(mine, pe), a, a), give(arrived + 4 * (GATHERED.value + me))
    return sends
