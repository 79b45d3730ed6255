"""The steps of a layer of experts for this PE's tokens, with gradients and without.

Dispatch, grouped GEMM, SwiGLU, grouped GEMM, combine, one after the other or in two kernels; or, if every PE has a
slice of every expert: routing, all-gather and grouped GEMM, SwiGLU, grouped GEMM and reduce-scatter.

Without gradients only rows that tokens fill are read and written, all others are left as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.functional.group import checked
from triton_dist.kernels.functional.layout import contiguous
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm
from triton_dist.kernels.moe.combine import combine
from triton_dist.kernels.moe.dispatch import dispatch
from triton_dist.kernels.moe.functional_layer import dispatch_and_multiply, multiply_and_combine
from triton_dist.kernels.moe.gathered_routing import gather_routing
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter
from triton_dist.kernels.moe.swiglu import swiglu_of_rows
from triton_dist.kernels.moe.tokens import combine_tokens, dispatch_tokens, moved_by_tma
from triton_dist.kernels.moe.tokens_by_expert import group_by_expert, sum_over_experts
from triton_dist.kernels.moe.whole_experts import dispatch_grouped_gemm, grouped_gemm_combine

__all__ = ["Steps", "choose", "differentiable_steps", "steps_of"]

_FUSED_FROM = 4096
_FUSED_EXPERTS = 256
"""Tokens of a PE from which on two kernels are faster than separate steps in rounds, and the most experts."""


class Steps(NamedTuple):
    """Sizes and options of :func:`~triton_dist.kernels.moe.moe_layer`."""

    num_experts: int
    max_tokens: int
    capacity: int | None
    num_sms: int
    parallel: str
    algorithm: str
    copies: int = 1
    """How many PEs have these choices, and each the experts of a part of them."""

    @property
    def sizes(self) -> dict[str, Any]:
        """Of a dispatch."""
        return dict(zip(("num_experts", "max_tokens", "capacity", "num_sms"), self, strict=False))


def choose(steps: Steps, *, by_tma: bool, hosts: int, most: int) -> str:
    """What ``auto`` takes, from measurements (docs/decisions/0085, 0136, 0138); the same on all PEs. Where the kernels
    of Hopper GPUs do not take the operands, ``fused_hopper`` is ``fused``.

    Args:
        by_tma: whether TMA moves tokens that cross once.
        hosts: of the group. Two kernels load and store at all peers.
        most: how many SMs there are. In two kernels some must be left to multiply.
    """
    if not steps.num_sms:
        return "separate"
    if by_tma:
        return "tokens"
    many = steps.max_tokens >= _FUSED_FROM and steps.num_experts <= _FUSED_EXPERTS
    return "fused_hopper" if many and hosts == 1 and steps.num_sms < most else "separate"


def steps_of(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    steps: Steps,
    group: Any,
) -> torch.Tensor:
    """Of tensors without gradients. Not for compiled functions."""
    if isinstance(group, str):
        group = checked("moe_layer", group)
    up, down, ids, weights = w13.transpose(1, 2), w2.transpose(1, 2), ids.contiguous(), weights.contiguous()
    gathered = {"num_experts": steps.num_experts, "max_tokens": steps.max_tokens, "group": group}
    if steps.parallel == "tensor":
        routing = gather_routing(ids, weights, **gathered)
        gate_up = all_gather_grouped_gemm(contiguous(x), up, routing, num_sms=steps.num_sms)
        hidden = swiglu_of_rows(gate_up, routing.offsets)
        return grouped_gemm_reduce_scatter(hidden, down, routing, num_sms=steps.num_sms)
    algorithm = _algorithm(steps, x, ids.shape[1], group)
    if algorithm.startswith("fused"):
        routing = gather_routing(ids, weights, **gathered)
        how: dict[str, Any] = {"num_sms": steps.num_sms}
        how["algorithm"] = "hopper" if algorithm == "fused_hopper" else "portable"
        hidden = dispatch_grouped_gemm(contiguous(x), up, routing, swiglu=True, capacity=steps.capacity, **how)
        return grouped_gemm_combine(hidden, down, routing, **how)

    def experts(x: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        # If all PEs have as many tokens. There may be room for n_pes times as many rows.
        rows = -(-ids.numel() // (len(counts) * steps.copies))
        hidden = grouped_gemm(x, up, offsets, counts, swiglu=True, expected_rows=rows)
        return grouped_gemm(hidden, down, offsets, counts, expected_rows=rows)

    if algorithm == "tokens":
        come = dispatch_tokens(x.contiguous(), ids, weights, num_sms=steps.num_sms, **gathered)
        grouped = group_by_expert(come, capacity=steps.capacity)
        y = experts(grouped.x, grouped.offsets, grouped.counts)
        return combine_tokens(sum_over_experts(y, grouped), come)
    received = dispatch(x.contiguous(), ids, weights, **steps.sizes, group=group)
    return combine(experts(received.x, received.offsets, received.counts), received)


def _algorithm(steps: Steps, x: torch.Tensor, top_k: int, group: Any) -> str:
    if steps.algorithm != "auto":
        return steps.algorithm
    comm = communicator_of(group)
    by_tma = moved_by_tma(comm, x, top_k, steps.max_tokens, steps.num_sms)
    return choose(steps, by_tma=by_tma, hosts=comm.grid.hosts, most=sms())


def differentiable_steps(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    steps: Steps,
    group: Any,
) -> torch.Tensor:
    """With gradients; torch.compile traces it."""
    up, down, weights = w13.transpose(1, 2), w2.transpose(1, 2), weights.float()
    if steps.parallel == "tensor":
        sizes: dict[str, Any] = {"num_experts": steps.num_experts, "max_tokens": steps.max_tokens}
        routing = functional.gather_routing(ids, weights, **sizes, group=group)
        how: dict[str, Any] = {"num_sms": steps.num_sms, "group": group}
        gate, value = functional.all_gather_grouped_gemm(x, up, routing, **how).chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * value
        return functional.grouped_gemm_reduce_scatter(hidden, down, routing, weights, **how)
    if steps.algorithm == "tokens":
        sizes = {"num_experts": steps.num_experts, "max_tokens": steps.max_tokens, "num_sms": steps.num_sms}
        come = functional.dispatch_tokens(x, ids, weights, **sizes, group=group)
        grouped = functional.group_by_expert(come, capacity=steps.capacity)
        of_experts = grouped.offsets, grouped.counts
        gate, value = functional.grouped_gemm(grouped.x, up, *of_experts).chunk(2, dim=-1)
        y = functional.grouped_gemm(torch.nn.functional.silu(gate) * value, down, *of_experts)
        return functional.combine_tokens(functional.sum_over_experts(y, grouped), come, group=group)
    both, received = dispatch_and_multiply(x, ids, weights, up, **steps.sizes, group=group)
    gate, value = both.chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * value
    return multiply_and_combine(hidden, down, received, weights, group=group)
