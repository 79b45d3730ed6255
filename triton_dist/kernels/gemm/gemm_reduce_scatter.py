"""GEMM and reduce-scatter: this PE's rows of the sum over PEs of A · B, with K split over the PEs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter, reduce_scatter_parts
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Call, Computation, fused_gemm
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS, by_owners, by_ring, computation
from triton_dist.kernels.prepared import Launch, Step
from triton_dist.kernels.shards import shard_of

__all__ = ["ALGORITHMS", "gemm_reduce_scatter"]


@fused_gemm((*ALGORITHMS, "two_level"), reduces=True, symmetric_result=False)
def gemm_reduce_scatter(call: Call) -> Computation:
    """This PE's rows of the sum over all PEs of A · B.

    ``a`` is [M, K / n_pes], this PE's columns of A, ``b`` [K / n_pes, N], this PE's rows of B, and ``out`` [m, N], this
    PE's m rows, of any M: PE p gets rows p · c to (p + 1) · c, where c is M / n_pes, rounded up, or those that there
    are: the last PEs may get fewer, or none. (So does ``torch.chunk`` cut, and a DTensor's ``Shard(0)``.)

    - ``bulk_synchronous``: the GEMM, then the reduce-scatter.
    - ``ring``: tiles circulate around the PEs while the next ones are computed; each PE adds its partial sum. For
      Hopper GPUs. It computes each PE's rows, c of them, in tiles of 128, the last of which need not be full.
    - ``direct``: the PEs send their sums of a tile to the PE whose rows it has at once, which adds them up, while the
      next tiles are computed. For Hopper GPUs; tiles as of ``ring``.
    - ``two_level``, over several hosts: the rows of one host after the other, this one's last, each as inside of one
      host; beside the next ones their sums cross the network. As many rows on every PE.
    - ``fused``, for small M (up to 128 rows in all, with 2, 4 or 8 PEs that have as many each up to 512, no fp8): one
      kernel that streams B and sends each tile's rows to their PEs from registers.
    """
    rows = shard_of(call.a.shape[0], call.each, call.comm.my_rank)
    c = call.result((len(rows), call.b.shape[1]), symmetric=False)
    gemm = call.operands(c, reduces=True)
    comm, sm_margin, n_pes = gemm.comm, gemm.sm_margin, gemm.comm.n_pes
    part = gemm.each * gemm.b.shape[1]

    def reduce(product: torch.Tensor, out: torch.Tensor) -> None:
        reduce_scatter(out, product, sm_margin=sm_margin, group=comm)

    def reduce_shards(product: torch.Tensor, out: torch.Tensor) -> None:
        reduce_scatter_parts(out, product, part, sm_margin=sm_margin, group=comm)

    are_equal = gemm.each * n_pes == gemm.a.shape[0]

    on_hopper = {"ring": _ring, "direct": _direct}
    return computation(gemm, reduce if are_equal else reduce_shards, on_hopper, gemm_reduce_scatter, to_all=False)


def _ring(gemm: Operands) -> Launch | Sequence[Step] | None:
    from triton_dist.kernels.gemm.hopper import gemm_reduce_scatter as hopper

    n_pes = gemm.comm.n_pes
    return by_ring(gemm, hopper, "reduce-scatter", gemm.each * n_pes, shards=n_pes)


def _direct(gemm: Operands) -> Launch | Sequence[Step] | None:
    from triton_dist.kernels.gemm.hopper import gemm_reduce_scatter_direct as hopper

    n_pes = gemm.comm.n_pes
    return by_owners(gemm, hopper, "reduce-scatter", gemm.each * n_pes, shards=n_pes)
