"""What GEMM + reduce-scatter and GEMM + all-reduce share: C = the sum over PEs of A · B, with K split over the PEs.

Partial sums are sent in C's dtype and added in float32, in the order of the PEs or of the ring.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.plan_cache import symmetric_matrix
from triton_dist.kernels.gemm.small_m import MAX_ROWS, fits_small_m
from triton_dist.kernels.prepared import Work

__all__ = [
    "ALGORITHMS",
    "auto_passes_over",
    "local_product",
    "needs_of_fused",
    "needs_of_ring",
    "ring_staging",
]

ALGORITHMS = ("bulk_synchronous", "fused", "ring")


def needs_of_ring(gemm: Operands) -> str:
    """What the algorithm ``ring`` needs that is not there; empty if it is available."""
    from triton_dist.kernels.gemm.hopper.launch import takes

    if takes(gemm):
        return ""
    return (
        "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns and no scales of"
        " blocks, a result of 16-bit floats, and rows that begin at multiples of 16 bytes"
    )


def ring_staging(gemm: Operands, *, shards: int) -> torch.Tensor:
    """Symmetric memory for the partial sums of a ring: the rows of C, each of as many ``shards`` padded to whole
    tiles."""
    rows = ring_rows(gemm.a.shape[0], shards)
    return symmetric_matrix(gemm.comm, "ring", rows, gemm.b.shape[1], gemm.c.dtype)


def auto_passes_over(gemm: Operands) -> tuple[str, ...]:
    """What ``auto`` does not consider: a ring, where ``fused`` streams B once and the ring loads it for each PE."""
    return () if needs_of_fused(gemm) else ("ring",)


def needs_of_fused(gemm: Operands) -> str:
    """What the algorithm ``fused`` needs that is not there; empty if it is available."""
    if gemm.a.dtype == gemm.c.dtype and fits_small_m(gemm.a.shape[0], gemm.comm.n_pes):
        return ""
    return (
        f"takes up to {MAX_ROWS} rows, counting as many for each PE as the next power of two, and operands of the"
        " result's dtype"
    )


def local_product(gemm: Operands) -> tuple[torch.Tensor, Work | None]:
    """a · b, this PE's partial sum of all of C, in symmetric memory that the next call overwrites; and what computes it
    again."""
    product = symmetric_matrix(gemm.comm, "product", gemm.a.shape[0], gemm.b.shape[1], gemm.c.dtype)
    return product, local_gemm(gemm._replace(c=product, epilogue=EMPTY))
