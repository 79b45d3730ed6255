"""GEMM + reduce-scatter, ``ring``: this PE's rows of the sum over PEs of A · B, with K split over the PEs.

A: [M, K / n_pes] this PE's columns, B: [K / n_pes, N] this PE's rows; C: this PE's shard of M rows.

Shards of M / n_pes rows, rounded up, are padded to whole tiles. A PE whose shard has fewer rows, or none, computes as
many tiles as the others: of rows that A lacks TMA loads zeros, and rows that C lacks it does not store.

Overlap: tiles circulate (``ring.py``). While the groups compute a tile, the store warp sends the one before to the next
PE, and the receive warp loads what is added to the one after. A PE's own tiles are the last; they go to its C.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.hopper.buffers import make_operand_ring, make_tile_buffer
from triton_dist.kernels.gemm.hopper.launch import Plan, operand_maps, scale_argument, tile_map
from triton_dist.kernels.gemm.hopper.load import load_operands
from triton_dist.kernels.gemm.hopper.pacing import PIECE
from triton_dist.kernels.gemm.hopper.ring import (
    by_shards,
    make_received,
    make_ring_plan,
    multiply_ring_tiles,
    receive_tiles,
    store_ring_tiles,
)
from triton_dist.kernels.gemm.hopper.scales import scales_of
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Launch, Second, Step, launch, steps

__all__ = ["gemm_reduce_scatter_kernel", "make_plan", "run"]


@gluon.jit(do_not_specialize=["padding", "own_rows", "own_padding"])
def gemm_reduce_scatter_kernel(
    a, b, c, a_piece, next_staging, staging, work, split, scale, epilogue, state, peers, tiles_n, pacing,
    padding, own_rows, own_padding, trace,
    CONFIG: gl.constexpr, B_BY_COLUMNS: gl.constexpr, N_PES: gl.constexpr,
):  # fmt: skip
    """Tiles are of shards, of which a whole one has ``padding`` rows more than it has in A, and this PE's has
    ``own_rows`` in C and ``own_padding`` more."""
    operands = make_operand_ring(a, b, CONFIG)
    output = make_tile_buffer(c, CONFIG)
    received = make_received()
    if CONFIG.scales_rows:
        scale = scales_of(scale, a, padding)
    # fmt: off
    gl.warp_specialize([
        (multiply_ring_tiles, (0, operands, output, received, work, trace, state, split, scale, epilogue, peers.me,
                               own_rows, own_padding, CONFIG, B_BY_COLUMNS, N_PES)),
        (multiply_ring_tiles, (1, operands, output, received, work, trace, state, split, scale, epilogue, peers.me,
                               own_rows, own_padding, CONFIG, B_BY_COLUMNS, N_PES)),
        (load_operands, (a, a_piece, b, operands, work, CONFIG, B_BY_COLUMNS, padding)),
        (store_ring_tiles, (c, (), next_staging, output, work, trace, state, peers, tiles_n, pacing,
                            own_rows + own_padding, CONFIG, N_PES, False)),
        (receive_tiles, (staging, output, received, work, trace, state, peers, tiles_n, CONFIG, N_PES)),
    ], [4, 1, 1, 1], [232, 32, 24, 24])
    # fmt: on


def make_plan(
    comm: Communicator, a: torch.Tensor, staging: torch.Tensor, sm_margin: int = 0, of_blocks: bool = False
) -> Plan:
    """The plan for GEMMs of these shapes and dtypes. *Collective.*

    Args:
        staging: [padded M, N], of C's dtype: a multiple of 128 rows for each PE.
    """
    return make_ring_plan(
        comm, "GEMM + reduce-scatter", a, staging, by_shards, peers=1, sm_margin=sm_margin, of_blocks=of_blocks
    )


def run(plan: Plan, gemm: Operands, staging: torch.Tensor) -> Launch | Sequence[Step] | None:
    """c = this PE's rows of the sum of a · b, times the scale and after the epilogue, on the current stream.

    Args:
        staging: [padded M, N], symmetric memory for the partial sums of the previous PE.
    """
    comm, config = plan.communicator, plan.config_of(gemm)
    a_map, a_piece, b_map, b_by_columns = operand_maps(gemm.a, gemm.b, config)
    shard, rows = staging.shape[0] // comm.n_pes, gemm.c.shape[0]
    next_staging = comm.peer(staging, (comm.my_rank + 1) % comm.n_pes)
    # TMA has no descriptor of a matrix without rows. The kernel then stores the first row of its padding, in place of
    # the previous PE's sums of that row, which it has added to its own.
    first = comm.my_rank * shard
    c = gemm.c if rows else staging[first : first + 1]
    made = launch(
        gemm_reduce_scatter_kernel, plan.grid, (a_map, b_map, tile_map(c, config), Second(0, a_piece)),
        tile_map(next_staging, config, PIECE), tile_map(staging, config),
        plan.work, plan.split, scale_argument(gemm), gemm.epilogue, plan.state, plan.peers, plan.tile_columns,
        plan.pacing, shard - gemm.each, rows, shard - rows, plan.trace(), config, b_by_columns, comm.n_pes,
        **plan.options,
    )  # fmt: skip
    return made if rows or made is None else steps((made, lambda call: (call.a, call.b, c)))
