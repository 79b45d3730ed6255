"""Mixture of experts: tokens to the PEs of their experts and back, and the experts' GEMMs.

``dispatch`` sends tokens, the experts compute on rows that are grouped by expert, ``combine`` returns them. Nothing
waits for the host.
"""

from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm
from triton_dist.kernels.moe.combine import Combining, combine, combine_receive, combine_send
from triton_dist.kernels.moe.dispatch import Sent, dispatch, dispatch_receive, dispatch_send
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, gather_routing
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter
from triton_dist.kernels.moe.layer import moe_layer
from triton_dist.kernels.moe.results import Dispatched
from triton_dist.kernels.moe.routing import group_limited_top_k, softmax_top_k
from triton_dist.kernels.moe.whole_experts import dispatch_grouped_gemm, grouped_gemm_combine

__all__ = [
    "Combining",
    "Dispatched",
    "GatheredRouting",
    "Sent",
    "all_gather_grouped_gemm",
    "combine",
    "combine_receive",
    "combine_send",
    "dispatch",
    "dispatch_grouped_gemm",
    "dispatch_receive",
    "dispatch_send",
    "functional",
    "gather_routing",
    "group_limited_top_k",
    "grouped_gemm",
    "grouped_gemm_combine",
    "grouped_gemm_reduce_scatter",
    "moe_layer",
    "softmax_top_k",
]
