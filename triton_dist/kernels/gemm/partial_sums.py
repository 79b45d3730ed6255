"""What GEMM + reduce-scatter and GEMM + all-reduce share: C = the sum over PEs of A · B, with K split over the PEs.

Partial sums are sent in C's dtype and added in float32, in the order of the PEs or of the ring.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.config import LARGE
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.fp8 import BlockScales, Scale
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.plan_cache import symmetric_matrix
from triton_dist.kernels.gemm.small_m import MAX_ROWS, fits_small_m

__all__ = ["ALGORITHMS", "local_product", "needs_of_fused", "needs_of_ring"]

ALGORITHMS = ("bulk_synchronous", "fused", "ring")


def needs_of_ring(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: Scale) -> str:
    """What the algorithm ``ring`` needs that is not there; empty if it is available."""
    from triton_dist.kernels.gemm.hopper.launch import fits

    rows, rest = divmod(a.shape[0], comm.n_pes)
    if not isinstance(scale, BlockScales) and rest == 0 and rows % LARGE.block_m == 0 and fits(comm, a, b, c):
        return ""
    return (
        "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns and no scales of"
        " blocks, a result of 16-bit floats, rows that begin at multiples of 16 bytes, and a multiple of"
        f" {LARGE.block_m} rows for each PE"
    )


def needs_of_fused(comm: Communicator, a: torch.Tensor, c: torch.Tensor) -> str:
    """What the algorithm ``fused`` needs that is not there; empty if it is available."""
    if a.dtype == c.dtype and fits_small_m(a.shape[0], comm.n_pes):
        return ""
    return (
        f"takes up to {MAX_ROWS} rows, counting as many for each PE as the next power of two, and operands of the"
        " result's dtype"
    )


def local_product(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    dtype: torch.dtype,
    scale: Scale,
    sm_margin: int,
) -> torch.Tensor:
    """a · b, this PE's partial sum of all of C, in symmetric memory that the next call overwrites."""
    product = symmetric_matrix(comm, "product", a.shape[0], b.shape[1], dtype)
    local_gemm(comm, a, b, product, scale, EMPTY, sm_margin)
    return product
