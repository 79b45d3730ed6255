"""GEMM and reduce-scatter: this PE's rows of the sum over PEs of A · B, with K split over the PEs."""

from __future__ import annotations

import torch

from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter
from triton_dist.kernels.gemm.arguments import check_rows
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS, computation, ring_staging
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.kernels.prepared import Launch

__all__ = ["ALGORITHMS", "gemm_reduce_scatter"]


@fused_gemm(ALGORITHMS, reduces=True, symmetric_result=False)
def gemm_reduce_scatter(call: Call) -> Computation:
    """This PE's rows of the sum over all PEs of A · B.

    ``a`` is [M, K / n_pes], this PE's columns of A, ``b`` [K / n_pes, N], this PE's rows of B, and ``out``
    [M / n_pes, N]: PE p gets rows p · M / n_pes and on. M is a multiple of the number of PEs.

    - ``bulk_synchronous``: the GEMM, then the reduce-scatter.
    - ``ring``: tiles circulate around the PEs while the next ones are computed; each PE adds its partial sum. For
      Hopper GPUs. It computes each PE's rows in tiles of 128, the last of which need not be full.
    - ``fused``, for small M (up to 128 rows in all, no fp8): one kernel that streams B and sends each tile's rows to
      their PEs from registers.
    """
    rows = check_rows(call.comm, call.function, "a", call.a.shape[0])
    c = call.result((rows, call.b.shape[1]), symmetric=False)
    gemm = call.operands(c, reduces=True)
    comm, sm_margin = gemm.comm, gemm.sm_margin

    def reduce(product: torch.Tensor, out: torch.Tensor) -> None:
        reduce_scatter(out, product, sm_margin=sm_margin, group=comm)

    return computation(gemm, reduce, _ring, to_all=False)


def _ring(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_reduce_scatter as hopper

    staging = ring_staging(gemm, shards=gemm.comm.n_pes)
    key = gemm.key("ring, reduce-scatter", rows=staging.shape[0])
    plan = cached(gemm.comm, key, lambda: hopper.make_plan(gemm.comm, gemm.a, staging, gemm.sm_margin, gemm.of_blocks))
    return hopper.run(plan, gemm, staging)
