"""GEMM + all-reduce, ``direct``: the sum over PEs of A · B on every PE, with K split over the PEs.

A: [M, K / n_pes] this PE's columns, B: [K / n_pes, N] this PE's rows; C: [M, N], symmetric.

Overlap: while tiles are computed, partial sums of those before go to their owners, and sums from there to the C of all
PEs (``direct.py``). So every PE gets the same bits.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.direct import (
    Deal,
    DirectPlan,
    by_turns,
    load_direct_tiles,
    make_direct_plan,
    multiply_direct_tiles,
    store_direct_tiles,
)
from triton_dist.kernels.gemm.hopper.launch import operand_maps, peer_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.pacing import PIECE
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["gemm_all_reduce_direct_kernel", "make_plan", "run"]


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
    deal = Deal(each, None)
    peers_c = (c1, c2, c3, c4, c5, c6, c7)
    stagings = (s1, s2, s3, s4, s5, s6, s7)
    # fmt: off
    gl.warp_specialize([
        (multiply_direct_tiles, (0, operands, output, work, trace, state, split, scale, epilogue, peers.me, deal,
                                 c.shape[0], 0, CONFIG, B_BY_COLUMNS, N_PES)),
        (multiply_direct_tiles, (1, operands, output, work, trace, state, split, scale, epilogue, peers.me, deal,
                                 c.shape[0], 0, CONFIG, B_BY_COLUMNS, N_PES)),
        (load_direct_tiles, (a, a_piece, b, staging, operands, output, work, trace, state, peers, deal, CONFIG,
                             B_BY_COLUMNS, N_PES)),
        (store_direct_tiles, (c, peers_c[: N_PES - 1], stagings[: N_PES - 1], output, work, trace, state, peers, deal,
                              pacing, None, CONFIG, N_PES)),
    ], [4, 1, 1], [232, 40, 40])
    # fmt: on


def make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, sm_margin: int = 0, of_blocks: bool = False
) -> DirectPlan:
    """The plan for GEMMs of these shapes and dtypes, of more than 64 rows. *Collective.*"""
    return make_direct_plan(comm, "GEMM + all-reduce", a, c, by_turns, sm_margin=sm_margin, of_blocks=of_blocks)


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
