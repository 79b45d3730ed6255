"""GEMM + all-reduce, ``direct``: the sum over PEs of A · B on every PE, with K split over the PEs.

A: [M, K / n_pes] this PE's columns, B: [K / n_pes, N] this PE's rows; C: [M, N], symmetric.

Overlap: while tiles are computed, partial sums of those before go to their owners, and sums from there to the C of all
PEs (``direct.py``). So every PE gets the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.direct import (
    Shares,
    direct_schedule,
    load_direct_tiles,
    multiply_direct_tiles,
    store_direct_tiles,
)
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, peer_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.layout import TILES
from triton_dist.kernels.gemm.hopper.pacing import PIECE, pacing_of
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["DirectPlan", "gemm_all_reduce_direct_kernel", "make_plan", "run"]

SHARE = 0.5
"""Share of the next tile's time over which a tile is sent. (A PE's own tiles are computed a round later.)"""


@gluon.jit
def gemm_all_reduce_direct_kernel(
    a, b, a_piece, c, c1, c2, c3, c4, c5, c6, c7, staging, s1, s2, s3, s4, s5, s6, s7,
    work, split, scale, epilogue, state, peers, each, pacing, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    peers_c = (c1, c2, c3, c4, c5, c6, c7)
    stagings = (s1, s2, s3, s4, s5, s6, s7)
    # fmt: off
    gl.warp_specialize([
        (multiply_direct_tiles, (0, operands, output, work, trace, state, split, scale, epilogue, peers.me, c.shape[0],
                                 CONFIG, B_BY_COLUMNS, N_PES)),
        (multiply_direct_tiles, (1, operands, output, work, trace, state, split, scale, epilogue, peers.me, c.shape[0],
                                 CONFIG, B_BY_COLUMNS, N_PES)),
        (load_direct_tiles, (a, a_piece, b, staging, operands, output, work, trace, state, peers, each, CONFIG,
                             B_BY_COLUMNS, N_PES)),
        (store_direct_tiles, (c, peers_c[: N_PES - 1], stagings[: N_PES - 1], output, work, trace, state, peers, each,
                              pacing, CONFIG, N_PES)),
    ], [4, 1, 1], [232, 40, 40])
    # fmt: on


@dataclass(frozen=True)
class DirectPlan:
    """A plan, and how the tiles are dealt out."""

    plan: Plan
    shares: Shares


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, sm_margin: int = 0, of_blocks: bool = False
) -> DirectPlan:
    """The plan for GEMMs of these shapes and dtypes, of more than 64 rows. *Collective.*"""
    programs, n_pes = portable.programs(sm_margin), comm.n_pes
    schedule, shares = direct_schedule(a, c, programs, n_pes, comm.my_rank, of_blocks=of_blocks)
    pacing = pacing_of(shares.config, SHARE, 1, programs)
    n_flags = TILES.value + (n_pes - 1) * shares.each
    plan = Plan(comm, "GEMM + all-reduce", schedule, shares.config, n_flags=n_flags, pacing=pacing)
    return DirectPlan(plan, shares)


def run(made: DirectPlan, gemm: Operands, staging: torch.Tensor) -> Launch | None:
    """c = the sum of a · b, times the scale and after the epilogue, on every PE, on the current stream.

    Args:
        gemm: whose ``c`` is symmetric.
        staging: of ``Shares.staging_shape``, symmetric memory for the partial sums of the other PEs.
    """
    plan = made.plan
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    return launch(
        gemm_all_reduce_direct_kernel, plan.grid, (a_map, b_map, Second(0, a_piece)),
        tile_map(gemm.c, config), *peer_maps(comm, gemm.c, PIECE),
        tile_map(staging, config), *peer_maps(comm, staging, PIECE), plan.work, plan.split, scale_argument(gemm),
        gemm.epilogue, plan.state, plan.peers, made.shares.each, plan.pacing, plan.trace(), config, b_by_columns,
        comm.n_pes, **plan.options,
    )  # fmt: skip
