"""All-gather + GEMM: C = A · B with A split by rows over the PEs; the copy engine gathers A while the kernel computes.

A: [M, K], rows of PE p from p · M / n_pes on; B: [K, N] and C: [M, N] are each PE's own.

Overlap: the schedule begins with this PE's rows of A, which the kernel reads where they are, while the copy engine
sends them to one peer after the other. PE p computes the rows of p, p + 1, … and sends to p - 1 first: the PE that
needs the rows next has them next. The load warp waits for a PE's rows before it loads the first block of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable, streams
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper.buffers import begin_stage, make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, is_last_program
from triton_dist.kernels.gemm.hopper.flags import acquire, fence_async_proxy, stores_complete
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, tile_map
from triton_dist.kernels.gemm.hopper.layout import ENTERED, GATHERED, K_BEGIN, K_END, PE
from triton_dist.kernels.gemm.hopper.load import load_b
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.store import store_tiles
from triton_dist.kernels.gemm.hopper.trace_events import ARRIVAL, record_event, time
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.side_stream import side_stream

__all__ = ["all_gather_gemm_kernel", "make_plan", "run"]


@gluon.jit
def all_gather_gemm_kernel(
    own_a, b, c, a, work, split, scale, epilogue, state, peers, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    specialize(
        multiply_tiles, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS),
        _load, (a, own_a, b, operands, work, trace, peers, CONFIG, B_BY_COLUMNS),
        _store, (c, output, work, trace, state, peers, CONFIG, N_PES),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _load(a, own_a, b, operands, work, trace, peers, CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr):
    """Load the blocks of every unit in order: this PE's rows of A from ``own_a``, others when they have arrived."""
    GROUPS: gl.constexpr = CONFIG.groups
    BLOCK_K: gl.constexpr = a.block_shape[1]
    NBYTES: gl.constexpr = GROUPS * a.block_type.nbytes + b.block_type.nbytes
    me = peers.me
    first, last = units_of_program(work)
    step = 0
    arrived = me
    for unit in range(first, last):
        row, column = sums_origin(*tile_of(work, unit), 0, CONFIG)
        owner = field(work, unit, PE)
        if owner != arrived:
            if owner != me:
                began = time(trace)
                acquire(peers.flags + GATHERED + owner, 1, "sys")
                record_event(trace, unit, ARRIVAL, began)
                fence_async_proxy()
            arrived = owner
        for k in range(field(work, unit, K_BEGIN), field(work, unit, K_END)):
            stage, full = begin_stage(operands, step, NBYTES, CONFIG)
            for group in gl.static_range(GROUPS):
                block = operands.a.index(stage * GROUPS + group)
                own_row = row % own_a.shape[0] + group * CONFIG.group_m
                tma.async_copy_global_to_shared(own_a, [own_row, k * BLOCK_K], full, block, pred=owner == me)
                place = [row + group * CONFIG.group_m, k * BLOCK_K]
                tma.async_copy_global_to_shared(a, place, full, block, pred=owner != me)
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


def make_plan(comm: Communicator, a: torch.Tensor, c: torch.Tensor, config: Config, sm_margin: int = 0) -> Plan:
    """The plan for GEMMs of these shapes and dtypes. *Collective.*

    Args:
        a: this PE's rows of A, a multiple of ``config.block_m``.
    """
    n_pes, me = comm.n_pes, comm.my_rank
    tile_rows, (_, columns) = a.shape[0] // config.block_m, config.tiles(c)
    tiles = [
        Tile(row, column, pe)
        for pe in ((me + i) % n_pes for i in range(n_pes))
        for row, column in grouped(range(pe * tile_rows, (pe + 1) * tile_rows), columns)
    ]
    schedule = make_schedule(tiles, config.k_steps(a), portable.programs(sm_margin))
    return Plan(comm, "all-gather + GEMM", schedule, config)


def run(plan: Plan, gemm: Operands, gathered: torch.Tensor) -> Launch | None:
    """c = A · b, times the scale and after the epilogue, on the current stream.

    Args:
        gemm: whose ``a`` are this PE's rows of A.
        gathered: symmetric memory for all of A.
    """
    comm, config = plan.communicator, plan.config
    a_map, b_map, b_by_columns = operand_maps(gathered, gemm.b, config)
    own_a_map, _, _ = operand_maps(gemm.a, gemm.b, config)
    send = _sends(plan, gemm.a, gathered)
    with side_stream(comm) as side:
        made = launch(
            all_gather_gemm_kernel, plan.grid, (own_a_map, b_map, tile_map(gemm.c, config)), a_map,
            plan.work, plan.split, gemm.factor, gemm.epilogue, plan.state, plan.peers, plan.trace(), config,
            b_by_columns, comm.n_pes, **plan.options,
        )  # fmt: skip
        send(side, gemm.a)
    return made and made._replace(beside=send)


def _sends(plan: Plan, a: torch.Tensor, gathered: torch.Tensor) -> Callable[..., None]:
    """What puts copies of a matrix like ``a`` to the peers on a stream; it may be called again and again."""
    comm = plan.communicator
    n_pes, me, flags = comm.n_pes, comm.my_rank, plan.flags
    mine = gathered[me * a.shape[0] : (me + 1) * a.shape[0]]
    sends = []
    for pe in ((me - i) % n_pes for i in range(1, n_pes)):
        entered, arrived = flags.data_ptr() + 4 * (ENTERED.value + pe), comm.peer(flags, pe).data_ptr()
        sends.append((entered, streams.Copy(comm.peer(mine, pe), a), arrived + 4 * (GATHERED.value + me)))

    def send(side: torch.cuda.Stream, source: torch.Tensor, *_: torch.Tensor) -> None:
        for entered, copy, arrived in sends:
            streams.wait_value(side, entered)
            copy(side, source)
            streams.write_value(side, arrived)

    return send
