"""GEMM + all-reduce, ``ring``: the sum over PEs of A · B on every PE, with K split over the PEs.

A: [M, K / n_pes] this PE's columns, B: [K / n_pes, N] this PE's rows; C: [M, N], symmetric.

Overlap: tiles circulate (``ring.py``), as in GEMM + reduce-scatter. A PE's own tiles, which it completes last, go to
the C of all PEs, so every PE gets the same bits.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, peer_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.pacing import PIECE
from triton_dist.kernels.gemm.hopper.ring import (
    by_tiles,
    make_received,
    make_ring_plan,
    multiply_ring_tiles,
    receive_tiles,
    store_ring_tiles,
)
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, launch

__all__ = ["gemm_all_reduce_kernel", "make_plan", "run"]


@gluon.jit
def gemm_all_reduce_kernel(
    a, b, a_piece, c, c1, c2, c3, c4, c5, c6, c7, next_staging, staging,
    work, split, scale, epilogue, state, peers, tiles_n, pacing, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    received = make_received()
    if CONFIG.scales_rows:
        scale = scales_of(scale, a)
    peers_c = (c1, c2, c3, c4, c5, c6, c7)
    # fmt: off
    gl.warp_specialize([
        (multiply_ring_tiles, (0, operands, output, received, work, trace, state, split, scale, epilogue, peers.me,
                               c.shape[0], 0, CONFIG, B_BY_COLUMNS, N_PES)),
        (multiply_ring_tiles, (1, operands, output, received, work, trace, state, split, scale, epilogue, peers.me,
                               c.shape[0], 0, CONFIG, B_BY_COLUMNS, N_PES)),
        (load_operands, (a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS)),
        (store_ring_tiles, (c, peers_c[: N_PES - 1], next_staging, output, work, trace, state, peers, tiles_n, pacing,
                            0, CONFIG, N_PES, True)),
        (receive_tiles, (staging, output, received, work, trace, state, peers, tiles_n, CONFIG, N_PES)),
    ], [4, 1, 1, 1], [232, 32, 24, 24])
    # fmt: on


def make_plan(
    comm: Communicator, a: torch.Tensor, staging: torch.Tensor, sm_margin: int = 0, of_blocks: bool = False
) -> Plan:
    """The plan for GEMMs of these shapes and dtypes. *Collective.*

    Args:
        staging: [padded M, N], of C's dtype: a multiple of 128 rows.
    """
    peers = comm.n_pes - 1
    return make_ring_plan(
        comm, "GEMM + all-reduce", a, staging, by_tiles, peers=peers, sm_margin=sm_margin, of_blocks=of_blocks
    )


def run(plan: Plan, gemm: Operands, staging: torch.Tensor) -> Launch | None:
    """c = the sum of a · b, times the scale and after the epilogue, on every PE, on the current stream.

    Args:
        gemm: whose ``c`` is symmetric.
        staging: [padded M, N], symmetric memory for the partial sums of the previous PE.
    """
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    next_staging = comm.peer(staging, (comm.my_rank + 1) % comm.n_pes)
    return launch(
        gemm_all_reduce_kernel, plan.grid, (a_map, b_map, Second(0, a_piece)),
        tile_map(gemm.c, config), *peer_maps(comm, gemm.c, PIECE), tile_map(next_staging, config, PIECE),
        tile_map(staging, config), plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers,
        plan.tile_columns, plan.pacing, plan.trace(), config, b_by_columns, comm.n_pes, **plan.options,
    )  # fmt: skip
