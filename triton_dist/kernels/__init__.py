"""Kernels on symmetric tensors: all-gather, reduce-scatter, all-reduce, all-to-all, broadcast, and GEMMs
whose communication overlaps with computation.

They work on the current stream, without the host, and may be captured in CUDA graphs once they have run. Every PE of
the world calls them in the same order, on one stream at a time: they share a workspace.
"""

from triton_dist.kernels.collectives.all_gather import all_gather
from triton_dist.kernels.collectives.all_reduce import all_reduce
from triton_dist.kernels.collectives.all_to_all import all_to_all
from triton_dist.kernels.collectives.broadcast import broadcast
from triton_dist.kernels.collectives.reduce_scatter import reduce_scatter
from triton_dist.kernels.gemm.all_gather_gemm import all_gather_gemm
from triton_dist.kernels.gemm.gemm_all_reduce import gemm_all_reduce
from triton_dist.kernels.gemm.gemm_all_scatter import gemm_all_scatter
from triton_dist.kernels.gemm.gemm_reduce_scatter import gemm_reduce_scatter
from triton_dist.kernels.tracing.recorder import tracing

__all__ = [
    "all_gather",
    "all_gather_gemm",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gemm_all_reduce",
    "gemm_all_scatter",
    "gemm_reduce_scatter",
    "reduce_scatter",
    "tracing",
]
