"""GEMM and all-reduce: the sum over PEs of A · B on every PE, with K split over the PEs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triton_dist.kernels.collectives.all_reduce import all_reduce
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.choice import choose_gemm
from triton_dist.kernels.gemm.gemm_reduce_scatter import gemm_reduce_scatter
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS, by_owners, by_ring, computation
from triton_dist.kernels.gemm.small_m import fits_bands, fits_small_m
from triton_dist.kernels.prepared import Launch, Step

__all__ = ["ALGORITHMS", "gemm_all_reduce", "stores_here"]


def stores_here(comm: Communicator, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, algorithm: str) -> bool:
    """Whether ``algorithm`` is, or ``auto`` chooses, ``fused``, with which each PE stores its own result only, of any
    memory."""
    if comm.grid.hosts > 1 or a.dtype != dtype or not a.shape[0]:
        return False
    if algorithm == "fused":
        return fits_bands(a.shape[0], comm.n_pes)
    if not fits_small_m(a.shape[0], comm.n_pes):  # there ``auto`` also considers those that send to peers' results
        return False
    if algorithm == "auto":
        c = a.new_empty(a.shape[0], b.shape[1], device="meta")
        algorithm = choose_gemm(comm, "gemm_all_reduce", a, b, c, ("bulk_synchronous", "fused"))
    return algorithm == "fused"


@fused_gemm((*ALGORITHMS, "two_level"), reduces=True, stores_here=stores_here)
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
    - ``fused``, for small M (up to 128 rows, with 2, 4 or 8 PEs up to 512, no fp8): as of :func:`gemm_reduce_scatter`;
      the sums then go to all PEs.
    """
    symmetric = not stores_here(call.comm, call.a, call.b, call.out_dtype or call.a.dtype, call.algorithm)
    c = call.result((call.a.shape[0], call.b.shape[1]), symmetric=symmetric)
    gemm = call.operands(c, reduces=True)
    comm, sm_margin = gemm.comm, gemm.sm_margin

    def reduce(product: torch.Tensor, out: torch.Tensor) -> None:
        all_reduce(product, out=out, sm_margin=sm_margin, group=comm)

    on_hopper = {"ring": _ring, "direct": _direct}
    return computation(gemm, reduce, on_hopper, gemm_reduce_scatter, to_all=True)


def _ring(gemm: Operands) -> Launch | Sequence[Step] | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_reduce as hopper

    return by_ring(gemm, hopper, "all-reduce", gemm.a.shape[0], shards=1)


def _direct(gemm: Operands) -> Launch | Sequence[Step] | None:
    from triton_dist.kernels.gemm.hopper import gemm_all_reduce_direct as hopper

    return by_owners(gemm, hopper, "all-reduce", gemm.a.shape[0], shards=1)
