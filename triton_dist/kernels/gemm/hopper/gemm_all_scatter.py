"""GEMM + all-scatter, ``warp_specialized``: C = A · B with B split by columns, and all of C on every PE.

A: [M, K] on every PE, B: [K, N / n_pes] this PE's columns; C: [M, N], symmetric; a PE computes its columns of it.

Overlap: the store warp sends a tile to all PEs while the groups compute the next one. Stores to peers are throttled
(``store.send_block``), and tiles that are sent together lie close together, because peers take stores faster so.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.hopper import tma
from triton_dist.kernels.gemm.hopper.buffers import await_tile_block, make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.epochs import admit_peers, end_epoch, epoch_of, exchange_done, is_last_program
from triton_dist.kernels.gemm.hopper.flags import stores_complete, wait_peers
from triton_dist.kernels.gemm.hopper.launch import (
    Plan,
    grouped_schedule,
    operand_maps,
    peer_maps,
    scale_argument,
    tile_map,
)
from triton_dist.kernels.gemm.hopper.layout import ENTERED
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.multiply import multiply_tiles
from triton_dist.kernels.gemm.hopper.pacing import pacing_of, piece_of
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.hopper.store import issue_intervals, release_block, send_block
from triton_dist.kernels.gemm.hopper.trace_events import PEERS, SEND, record_event, time
from triton_dist.kernels.gemm.hopper.warps import specialize
from triton_dist.kernels.gemm.hopper.work import block_origin, finishes_tile, tile_of, units_of_program
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["gemm_all_scatter_kernel", "make_plan", "run"]

SHARE = 0.9
"""Share of the next tile's time over which a program sends a tile."""


@gluon.jit
def gemm_all_scatter_kernel(
    a, b, a_piece, c, c1, c2, c3, c4, c5, c6, c7, work, split, scale, epilogue, state, peers, pacing, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    peers_c = (c1, c2, c3, c4, c5, c6, c7)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    specialize(
        multiply_tiles, (operands, output, work, trace, state, split, scale, epilogue, CONFIG, B_BY_COLUMNS),
        load_operands, (a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS),
        _store, (c, peers_c[: N_PES - 1], output, work, trace, state, peers, pacing, CONFIG, N_PES),
        CONFIG,
    )  # fmt: skip


@gluon.jit
def _store(c, peers_c, output, work, trace, state, peers, pacing, CONFIG: gl.constexpr, N_PES: gl.constexpr):
    """Store tiles to this PE's C and to those of all peers."""
    GROUPS: gl.constexpr = CONFIG.groups
    epoch = epoch_of(state)
    first, last = units_of_program(work)
    admit_peers(peers, epoch, N_PES)
    phase = 0
    peers_ready = False
    for unit in range(first, last):
        if finishes_tile(work, unit):
            row, column = tile_of(work, unit)
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
                tma.async_store(c, place, output.blocks.index(group))
                send_block(peers_c, place, output, group, cycles, interval)
                release_block(output, group)
            phase ^= 1
            record_event(trace, unit, SEND, began)
    stores_complete()
    if is_last_program(state):
        end_epoch(state, epoch)
        exchange_done(peers, epoch, work, trace, N_PES)


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, sm_margin: int = 0, fold: int = 1, of_blocks: bool = False
) -> Plan:
    """The plan for GEMMs of these shapes and dtypes, with scales of blocks or others. *Collective.*"""
    peers, programs = comm.n_pes - 1, portable.programs(sm_margin)
    schedule, config = grouped_schedule(a, c, programs, peers=peers, fold=fold, of_blocks=of_blocks)
    return Plan(comm, "GEMM + all-scatter", schedule, config, pacing=pacing_of(config, SHARE, peers, programs))


def run(plan: Plan, gemm: Operands) -> Launch | None:
    """c = a · b, times the scale and after the epilogue, on every PE, on the current stream.

    Args:
        gemm: whose ``c`` are this PE's columns of a symmetric matrix.
    """
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    return launch(
        gemm_all_scatter_kernel, plan.grid, (a_map, b_map, Second(0, a_piece)),
        tile_map(gemm.c, config), *peer_maps(comm, gemm.c, piece_of(config)), plan.work, plan.split,
        scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, plan.pacing, plan.trace(), config, b_by_columns,
        comm.n_pes, **plan.options,
    )  # fmt: skip
