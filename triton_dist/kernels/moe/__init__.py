"""Mixture of experts: tokens to the PEs of their experts and back, and the experts' GEMMs.

``dispatch`` sends tokens, the experts compute on rows that are grouped by expert, ``combine`` returns them. Nothing
waits for the host.
"""

from triton_dist.kernels.gradients import outside_of_graphs, recorded
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm as _all_gather_grouped_gemm
from triton_dist.kernels.moe.combine import combine as _combine
from triton_dist.kernels.moe.combine import combine_receive as _combine_receive
from triton_dist.kernels.moe.combine import combine_send as _combine_send
from triton_dist.kernels.moe.dispatch import dispatch as _dispatch
from triton_dist.kernels.moe.dispatch import dispatch_receive as _dispatch_receive
from triton_dist.kernels.moe.dispatch import dispatch_send as _dispatch_send
from triton_dist.kernels.moe.gathered_routing import GatheredRouting
from triton_dist.kernels.moe.gathered_routing import gather_routing as _gather_routing
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm as _grouped_gemm
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import (
    grouped_gemm_reduce_scatter as _grouped_gemm_reduce_scatter,
)
from triton_dist.kernels.moe.halves import Combining, Sent
from triton_dist.kernels.moe.layer import moe_layer as _moe_layer
from triton_dist.kernels.moe.results import Dispatched
from triton_dist.kernels.moe.routing import group_limited_top_k, softmax_top_k
from triton_dist.kernels.moe.tokens import DispatchedTokens
from triton_dist.kernels.moe.tokens import combine_tokens as _combine_tokens
from triton_dist.kernels.moe.tokens import dispatch_tokens as _dispatch_tokens
from triton_dist.kernels.moe.tokens_by_expert import GroupedTokens
from triton_dist.kernels.moe.tokens_by_expert import group_by_expert as _group_by_expert
from triton_dist.kernels.moe.tokens_by_expert import sum_over_experts as _sum_over_experts
from triton_dist.kernels.moe.whole_experts import dispatch_grouped_gemm as _dispatch_grouped_gemm
from triton_dist.kernels.moe.whole_experts import grouped_gemm_combine as _grouped_gemm_combine

__all__ = [
    "Combining",
    "Dispatched",
    "DispatchedTokens",
    "GatheredRouting",
    "GroupedTokens",
    "Sent",
    "all_gather_grouped_gemm",
    "combine",
    "combine_receive",
    "combine_send",
    "combine_tokens",
    "dispatch",
    "dispatch_grouped_gemm",
    "dispatch_receive",
    "dispatch_send",
    "dispatch_tokens",
    "functional",
    "gather_routing",
    "group_by_expert",
    "group_limited_top_k",
    "grouped_gemm",
    "grouped_gemm_combine",
    "grouped_gemm_reduce_scatter",
    "moe_layer",
    "softmax_top_k",
    "sum_over_experts",
]

_SAME = "call the function of the same name in triton_dist.kernels.moe.functional"
_OTHERS = "call dispatch and combine of triton_dist.kernels.moe.functional, or moe_layer"

all_gather_grouped_gemm = outside_of_graphs(_SAME)(_all_gather_grouped_gemm)
combine = outside_of_graphs(_SAME)(_combine)
combine_receive = outside_of_graphs(_OTHERS)(_combine_receive)
combine_send = outside_of_graphs(_OTHERS)(_combine_send)
combine_tokens = outside_of_graphs(_SAME)(_combine_tokens)
dispatch = outside_of_graphs(_SAME)(_dispatch)
dispatch_receive = outside_of_graphs(_OTHERS)(_dispatch_receive)
dispatch_send = outside_of_graphs(_OTHERS)(_dispatch_send)
dispatch_tokens = outside_of_graphs(_SAME)(_dispatch_tokens)
dispatch_grouped_gemm = outside_of_graphs(_OTHERS)(_dispatch_grouped_gemm)
gather_routing = outside_of_graphs(_SAME)(_gather_routing)
group_by_expert = outside_of_graphs(_SAME)(_group_by_expert)
grouped_gemm = outside_of_graphs(_SAME)(_grouped_gemm)
grouped_gemm_combine = outside_of_graphs(_OTHERS)(_grouped_gemm_combine)
grouped_gemm_reduce_scatter = outside_of_graphs(_SAME)(_grouped_gemm_reduce_scatter)
moe_layer = recorded(_moe_layer)
sum_over_experts = outside_of_graphs(_SAME)(_sum_over_experts)
