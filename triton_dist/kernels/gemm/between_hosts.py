"""What bulk-synchronous GEMMs of groups on several hosts do where they would load and store at peers: two-level
collectives.

Sums over PEs with an epilogue: a two-level reduce-scatter leaves the sums of this PE's rows in float32. The epilogue is
applied to these, which are rounded once behind it. For an all-reduce a two-level all-gather follows.

GEMM + all-scatter: each PE computes its columns of C into contiguous memory, which is gathered; a copy then puts the
columns side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.collectives.two_level.all_gather import gather_parts
from triton_dist.kernels.collectives.two_level.reduce_scatter import reduce_parts
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.epilogue import finish
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.workspaces import symmetric_matrix
from triton_dist.kernels.prepared import Part, Step, launch, steps

__all__ = [
    "columns_of_all",
    "finish_rows",
    "gather_rows",
    "reduce_between_hosts",
    "scatter_between_hosts",
    "sums_of_rows",
]


@triton.jit(do_not_specialize=["first", "M", "each"])
def gemm_between_hosts_finish_rows(
    c, sums, epilogue, first, M, N, each, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Rows of ``c`` from ``first`` on, of which it has M: ``each`` rows after the epilogue, added up in float32 of
    PARTS matrices of so many rows, which follow each other in ``sums``."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(each, BLOCK_M) * tiles_n, tl.num_programs(0)):
        own = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        rows, columns = first + own, tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        exist = ((own < each) & (rows < M))[:, None] & (columns < N)[None, :]
        places = sums + own.to(tl.int64)[:, None] * N + columns[None, :]
        found = tl.load(places, mask=exist, other=0.0).to(tl.float32)
        for _ in range(1, PARTS):
            places += each.to(tl.int64) * N
            found += tl.load(places, mask=exist, other=0.0).to(tl.float32)
        finished = finish(found, epilogue, tl.where(own < each, rows, M), M, columns).to(c.dtype.element_ty)
        tl.store(c + rows.to(tl.int64)[:, None] * N + columns[None, :], finished, mask=exist)


def reduce_between_hosts(gemm: Operands, product: torch.Tensor, *, to_all: bool) -> tuple[Part, ...]:
    """As :func:`~triton_dist.kernels.gemm.reduce_partials.reduce_partials`, by two-level collectives."""
    comm, columns = gemm.comm, product.shape[1]
    each = gemm.each
    sums = sums_of_rows(comm, each, columns)
    whole, own = product.view(-1), sums.view(-1)
    limit = portable.limit(gemm.sm_margin)
    reduced = reduce_parts(comm, own, whole, "sum", each * columns, in_place=False, limit=limit)
    finished = finish_rows(gemm, sums.view(1, each, columns), to_all=to_all)
    parts = (reduced, lambda call: (own, whole)), finished
    return (*parts, gather_rows(gemm)) if to_all else parts


def finish_rows(gemm: Operands, sums: torch.Tensor, *, to_all: bool) -> Part:
    """This PE's rows of C, after the epilogue, of sums over PEs: those of C that it has or, ``to_all``, of all of C.

    Args:
        sums: [parts, rows of a shard, N], whose parts are added up.
    """
    parts, each, columns = sums.shape
    block_m, block_n = (16, 128) if triton_dist.kind() == "gpu" else (16, 32)
    programs = min(triton.cdiv(each, block_m) * triton.cdiv(columns, block_n), portable.programs(gemm.sm_margin))
    finished = launch(
        gemm_between_hosts_finish_rows, (programs,), (gemm.c,), sums, gemm.epilogue,
        gemm.comm.my_rank * each if to_all else 0,
        gemm.c.shape[0], columns, each, PARTS=parts, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4,
    )  # fmt: skip
    return finished, lambda call: (call.out,)


def gather_rows(gemm: Operands) -> Part:
    """All PEs' rows of C, where each has its own in it."""
    c = gemm.c.view(-1)
    part = gemm.each * gemm.c.shape[1]
    gathered = gather_parts(gemm.comm, c, c, part, in_place=True, limit=portable.limit(gemm.sm_margin))
    return gathered, lambda call: (call.out, call.out)


def scatter_between_hosts(gemm: Operands, out: torch.Tensor) -> Sequence[Step] | None:
    """``out`` = all PEs' columns of C, of which ``gemm`` computes this PE's."""
    comm, (rows, width) = gemm.comm, gemm.c.shape
    whole = columns_of_all(comm, rows, width, out.dtype)
    mine = whole[comm.my_rank]
    multiplied = local_gemm(gemm._replace(c=mine))
    flat = whole.view(-1)
    gathered = gather_parts(comm, flat, flat, rows * width, in_place=True, limit=portable.limit(gemm.sm_margin))

    def place(out: torch.Tensor) -> None:
        out.view(rows, comm.n_pes, width).copy_(whole.transpose(0, 1))

    place(out)
    return steps(
        (multiplied, lambda call: call._replace(out=mine)),
        (gathered, lambda call: (flat, flat)),
        (place, lambda call: (call.out,)),
    )


def sums_of_rows(comm: Communicator, each: int, columns: int) -> torch.Tensor:
    """Memory for the sums that this PE finishes, of a shard of so many rows. The last PEs may have fewer, or none."""
    return symmetric_matrix(comm, "sums of rows", each, columns, torch.float32)


def columns_of_all(comm: Communicator, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for all PEs' columns of C, [n_pes, rows, width]."""
    return symmetric_matrix(comm, "columns of all", comm.n_pes * rows, width, dtype).view(comm.n_pes, rows, width)
