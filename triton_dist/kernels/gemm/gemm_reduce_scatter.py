"""GEMM and reduce-scatter: this PE's rows of the sum over PEs of A · B, with K split over the PEs."""

from __future__ import annotations

from functools import partial

import torch

from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.arguments import check_rows
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.fp8 import BlockScales, Scale
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS, local_product, needs_of_fused, needs_of_ring
from triton_dist.kernels.gemm.plan_cache import cached, shape_of, symmetric_matrix
from triton_dist.kernels.gemm.reduce_products import reduce_products
from triton_dist.kernels.gemm.small_m import small_m_gemm
from triton_dist.kernels.prepared import Launch

__all__ = ["ALGORITHMS", "gemm_reduce_scatter"]


@fused_gemm(ALGORITHMS, reduces=True, symmetric_result=False)
def gemm_reduce_scatter(call: Call) -> Computation:
    """This PE's rows of the sum over all PEs of A · B.

    ``a`` is [M, K / n_pes], this PE's columns of A, ``b`` [K / n_pes, N], this PE's rows of B, and ``out``
    [M / n_pes, N]: PE p gets rows p · M / n_pes and on. M is a multiple of the number of PEs.

    - ``bulk_synchronous``: the GEMM, then the reduce-scatter.
    - ``ring``: tiles circulate around the PEs while the next ones are computed; each PE adds its partial sum. For
      Hopper GPUs, and a multiple of 128 rows for each PE.
    - ``fused``, for small M (up to 128 rows in all, no fp8): one kernel that streams B and sends each tile's rows to
      their PEs from registers.
    """
    comm, a, b = call.comm, call.a, call.b
    rows = check_rows(comm, call.function, "a", a.shape[0])
    c = call.result((rows, b.shape[1]), symmetric=False)
    scale, epilogue = call.scale(), call.epilogue(c, reduces=True)
    whole = None if isinstance(scale, BlockScales) else scale
    return Computation(
        c,
        c,
        {
            "bulk_synchronous": partial(_bulk_synchronous, comm, a, b, c, scale, epilogue, call.sm_margin),
            "fused": needs_of_fused(comm, a, c)
            or partial(small_m_gemm, comm, a, b, c, to_all=False, epilogue=epilogue, sm_margin=call.sm_margin),
            "ring": needs_of_ring(comm, a, b, c, scale)
            or partial(_ring, comm, a, b, c, whole, epilogue, call.sm_margin),
        },
    )


def _bulk_synchronous(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    product = local_product(comm, a, b, c.dtype, scale, sm_margin)
    if epilogue.is_empty:
        reduce_scatter(c, product, sm_margin=sm_margin, group=comm)
    else:
        reduce_products(comm, product, c, epilogue, to_all=False, sm_margin=sm_margin)


def _ring(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: torch.Tensor | None,
    epilogue: Epilogue,
    sm_margin: int,
) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import gemm_reduce_scatter as hopper

    staging = symmetric_matrix(comm, "ring", a.shape[0], b.shape[1], c.dtype)
    key = ("ring, reduce-scatter", sm_margin, *shape_of(a, b))
    plan = cached(comm, key, lambda: hopper.make_plan(comm, a, staging, sm_margin))
    return hopper.run(plan, a, b, c, staging, scale, epilogue)
