"""Reduce-scatter and all-reduce of products with an epilogue, in one kernel between two stream barriers.

PE p adds up the p-th shard of the rows: it loads them from the products of all PEs, in the order of the PEs, adds them
in float32 and rounds once, after the epilogue. For the all-reduce it stores them to the C of all PEs. (A collective
would round the sums before an epilogue.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.epilogue import finish
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.prepared import Part, launch, nothing
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.stream_barrier import stream_barrier

__all__ = ["reduce_partials"]


@triton.jit(do_not_specialize=["M", "each"])
def gemm_reduce_partials(
    c, product, epilogue, M, N, each,
    TO_ALL: tl.constexpr, MEMBERS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(each, BLOCK_M) * tiles_n, tl.num_programs(0)):
        own = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        rows, columns = me * each + own, tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        exist = ((own < each) & (rows < M))[:, None] & (columns < N)[None, :]
        places = rows.to(tl.int64)[:, None] * N + columns[None, :]
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for rank in tl.static_range(N_PES):
            sums += tl.load(at_rank(product, rank, MEMBERS) + places, mask=exist, other=0.0).to(tl.float32)
        of_residual = tl.where((own < each) & (rows < M), rows if TO_ALL else own, M)  # M: not of this PE
        finished = finish(sums, epilogue, of_residual, M if TO_ALL else each, columns).to(c.dtype.element_ty)
        if TO_ALL:
            for i in tl.static_range(N_PES):
                tl.store(at_rank(c, (me + i) % N_PES, MEMBERS) + places, finished, mask=exist)
        else:
            tl.store(c + own.to(tl.int64)[:, None] * N + columns[None, :], finished, mask=exist)


def reduce_partials(gemm: Operands, product: torch.Tensor, *, to_all: bool) -> tuple[Part, ...]:
    """c = the sum of all PEs' ``product``, after the epilogue: this PE's rows of it, or all on every PE.

    Args:
        gemm: whose ``c`` is contiguous, this PE's shard of M rows, or [M, N], symmetric.
        product: [M, N], symmetric and contiguous. The next work on the stream may overwrite it.

    Returns:
        its parts, which take a call's tensors by name.
    """
    comm, sm_margin, (rows, columns) = gemm.comm, gemm.sm_margin, product.shape
    block_m, block_n = (16, 128) if triton_dist.kind() == "gpu" else (16, 32)
    each = gemm.each
    tiles = triton.cdiv(each, block_m) * triton.cdiv(columns, block_n)
    programs = min(tiles, portable.programs(sm_margin) * (1 if sm_margin else 4))
    entered = stream_barrier(comm)
    reduced = launch(
        gemm_reduce_partials, (programs,), (gemm.c,), product, gemm.epilogue, rows, columns, each,
        TO_ALL=to_all, MEMBERS=comm.members, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4,
    )  # fmt: skip
    done = stream_barrier(comm)
    return (entered, nothing), (reduced, lambda call: (call.out,)), (done, nothing)
