"""GEMM + reduce-scatter, ``direct``: this PE's rows of the sum over PEs of A · B, with K split over the PEs.

A: [M, K / n_pes] this PE's columns, B: [K / n_pes, N] this PE's rows; C: this PE's shard of M rows.

Shards are padded to whole tiles, as for the ring (``gemm_reduce_scatter.py``): of rows that A lacks TMA loads zeros,
and rows that C lacks it does not store.

Overlap: while tiles are computed, partial sums of those before go to the PE whose rows they are (``direct.py``).
Nothing is sent behind the last tile of other PEs' rows; then this PE's are computed, whose sums have come meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.direct import (
    Deal,
    DirectPlan,
    by_rows,
    load_direct_tiles,
    make_direct_plan,
    multiply_direct_tiles,
    store_direct_tiles,
)
from triton_dist.kernels.gemm.hopper.launch import operand_maps, peer_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.pacing import PIECE
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, Step, launch, steps

__all__ = ["gemm_reduce_scatter_direct_kernel", "make_plan", "run"]


@gluon.jit(do_not_specialize=["padding", "own_rows", "own_padding"])
def gemm_reduce_scatter_direct_kernel(
    a, b, c, a_piece, staging, s1, s2, s3, s4, s5, s6, s7,
    work, split, scale, epilogue, state, peers, each, tiles_n, pacing, padding, own_rows, own_padding, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Tiles are of shards, of which a whole one has ``padding`` rows more than it has in A, and this PE's has
    ``own_rows`` in C and ``own_padding`` more."""
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    if CONFIG.scales_rows:
        scale = scales_of(scale, a, padding)
    deal = Deal(each, tiles_n)
    stagings = (s1, s2, s3, s4, s5, s6, s7)
    # fmt: off
    gl.warp_specialize([
        (multiply_direct_tiles, (0, operands, output, work, trace, state, split, scale, epilogue, peers.me, deal,
                                 own_rows, own_padding, CONFIG, B_BY_COLUMNS, N_PES)),
        (multiply_direct_tiles, (1, operands, output, work, trace, state, split, scale, epilogue, peers.me, deal,
                                 own_rows, own_padding, CONFIG, B_BY_COLUMNS, N_PES)),
        (load_direct_tiles, (a, a_piece, b, staging, operands, output, work, trace, state, peers, deal, CONFIG,
                             B_BY_COLUMNS, N_PES, padding)),
        (store_direct_tiles, (c, (), stagings[: N_PES - 1], output, work, trace, state, peers, deal,
                              pacing, own_rows + own_padding, CONFIG, N_PES)),
    ], [4, 1, 1], [232, 40, 40])
    # fmt: on


def make_plan(
    comm: Communicator, a: torch.Tensor, padded: torch.Tensor, sm_margin: int = 0, of_blocks: bool = False
) -> DirectPlan:
    """The plan for GEMMs of these shapes and dtypes. *Collective.*

    Args:
        padded: [padded M, N], of C's dtype, without memory: a multiple of 128 rows for each PE.
    """
    return make_direct_plan(comm, "GEMM + reduce-scatter", a, padded, by_rows, sm_margin=sm_margin, of_blocks=of_blocks)


def run(made: DirectPlan, gemm: Operands, staging: torch.Tensor) -> Launch | Sequence[Step] | None:
    """c = this PE's rows of the sum of a · b, times the scale and after the epilogue, on the current stream.

    Args:
        staging: of ``Shares.staging_shape``, symmetric memory for the partial sums of the other PEs.
    """
    plan = made.plan
    comm, config = plan.communicator, plan.config_of(gemm)
    shard = made.shares.each // plan.tile_columns * config.block_m  # rows, with the padding
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    # TMA has no descriptor of a matrix without rows. The kernel then stores the first row of its padding, in place of
    # the next PE's sums of that row, which it has added to its own.
    rows, c = gemm.c.shape[0], gemm.c if gemm.c.shape[0] else staging[:1]
    launched = launch(
        gemm_reduce_scatter_direct_kernel, plan.grid, (a_map, b_map, tile_map(c, config), Second(0, a_piece)),
        tile_map(staging, config), *peer_maps(comm, staging, PIECE), plan.work, plan.split, scale_argument(gemm),
        gemm.epilogue, plan.state, plan.peers, made.shares.each, plan.tile_columns, plan.pacing, shard - gemm.each,
        rows, shard - rows, plan.trace(), config, b_by_columns, comm.n_pes, **plan.options,
    )  # fmt: skip
    return launched if rows or launched is None else steps((launched, lambda call: (call.a, call.b, c)))
