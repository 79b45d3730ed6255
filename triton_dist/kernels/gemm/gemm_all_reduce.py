"""GEMM and all-reduce: the sum over PEs of A · B on every PE, with K split over the PEs."""

from __future__ import annotations

import torch

from triton_dist.kernels.collectives.all_reduce import all_reduce
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.choice import choose_gemm
from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.gemm_reduce_scatter import gemm_reduce_scatter
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS, computation, ring_staging
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.kernels.gemm.small_m import fits_small_m
from triton_dist.kernels.gemm.workspaces import partial_sums
from triton_dist.kernels.prepared import Launch

__all__ = ["ALGORITHMS", "gemm_all_reduce", "stores_here"]


@fused_gemm((*ALGORITHMS, "two_level"), reduces=True)
def gemm_all_reduce(call: Call) -> Computation:
    """The sum over all PEs of A · B, the same bits on every PE.

    ``a`` is [M, K / n_pes], this PE's columns of A, ``b`` [K / n_pes, N], this PE's rows of B, and ``out`` [M, N],
    symmetric but with ``fused``.

    - ``bulk_synchronous``: the GEMM, then the all-reduce.
    - ``ring``: as of :func:`gemm_reduce_scatter`; a PE's own tiles then go to all PEs. M need
      not be a multiple of the number of PEs.
    - ``direct``: the PEs send their sums of a tile to its owner at once, which adds them up and sends the sum to all,
      while the next tiles are computed. For Hopper GPUs. Any rows go.
    - ``two_level``, over several hosts: as of :func:`gemm_reduce_scatter`; the sums are then gathered.
    - ``fused``, for small M (up to 128 rows, no fp8): as of :func:`gemm_reduce_scatter`; the sums then go to all PEs.
    """
    symmetric = not stores_here(call.comm, call.a, call.b, call.out_dtype or call.a.dtype, call.algorithm)
    c = call.result((call.a.shape[0], call.b.shape[1]), symmetric=symmetric)
    gemm = call.operands(c, reduces=True)
    comm, sm_margin = gemm.comm, gemm.sm_margin

    def reduce(product: torch.Tensor, out: torch.Tensor) -> None:
        all_reduce(product, out=out, sm_margin=sm_margin, group=comm)

    on_hopper = {"ring": _ring, "direct": _direct}
    return computation(gemm, reduce, on_hopper, gemm_reduce_scatter, to_all=True)


def stores_here(comm: Communicator, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, algorithm: str) -> bool:
    """Whether ``algorithm`` is, or ``auto`` chooses, ``fused``, with which each PE stores its own result only, of any
    memory."""
    if comm.grid.hosts > 1 or a.dtype != dtype or not a.shape[0] or not fits_small_m(a.shape[0], comm.n_pes):
        return False
    if algorithm == "auto":
        c = a.new_empty(a.shape[0], b.shape[1], device="meta")
        algorithm = choose_gemm(comm, "gemm_all_reduce", a, b, c, ("bulk_synchronous", "fused"))
    return algorithm == "fused"


def _ring(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_reduce as hopper

    staging = ring_staging(gemm, gemm.a.shape[0], shards=1)
    key = gemm.key("ring, all-reduce", rows=staging.shape[0])
    plan = cached(gemm.comm, key, lambda: hopper.make_plan(gemm.comm, gemm.a, staging, gemm.sm_margin, gemm.of_blocks))
    return hopper.run(plan, gemm, staging)


def _direct(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_reduce_direct as hopper

    comm, rows = gemm.comm, ring_rows(gemm.a.shape[0], 1)
    padded = gemm.c.new_empty(rows, gemm.b.shape[1], device="meta")
    key = gemm.key("direct, all-reduce", rows=rows)
    made = cached(comm, key, lambda: hopper.make_plan(comm, gemm.a, padded, gemm.sm_margin, gemm.of_blocks))
    staging = partial_sums(comm, *made.shares.staging_shape(comm.n_pes), gemm.c.dtype)
    return hopper.run(made, gemm, staging)
