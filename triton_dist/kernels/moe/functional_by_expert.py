"""``group_by_expert`` and ``sum_over_experts`` for models in PyTorch, with gradients, and traced by torch.compile.

Each calls an operator of ``torch.ops.triton_dist``. The gradient of a token is the sum of its rows', and that of a row
its token's, times its weight. No other PE is involved, in backward neither. Rows that no token fills are zeros here.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.gathered_routing import memory_words, of_one_pe, with_memory
from triton_dist.kernels.moe.tokens import DispatchedTokens
from triton_dist.kernels.moe.tokens_by_expert import (
    GroupedTokens,
    check_received,
    check_rows_of,
    gradients_of_sums,
    rows_by_expert,
    sums,
)

__all__ = ["group_by_expert", "sum_over_experts"]

_ops: Any = torch.ops.triton_dist


def group_by_expert(received: DispatchedTokens, *, capacity: int | None = None) -> GroupedTokens:
    """:func:`triton_dist.kernels.moe.group_by_expert` of what :func:`dispatch_tokens` here has returned, with a
    gradient of its rows. There are no scales: fp8 has no gradient."""
    ids, weights, rows = check_received(received, capacity)
    if received.x.dtype in FP8 or received.scales is not None:
        raise ValueError("group_by_expert: fp8 and scales have no gradients: call that of triton_dist.kernels.moe")
    local = received.routing.local_experts
    x, memory = _ops.moe_group_by_expert(received.x, ids, local, rows)
    return GroupedTokens(x, None, weights, with_memory(memory, ids.shape, local))


def sum_over_experts(y: torch.Tensor, grouped: GroupedTokens) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.sum_over_experts`, with gradients of ``y`` and of ``grouped.weights``."""
    if not isinstance(y, torch.Tensor):
        raise TypeError(f"sum_over_experts: y must be a torch.Tensor, got {type(y).__name__}")
    check_rows_of(y, grouped)
    routing = grouped.routing
    result: torch.Tensor = _ops.moe_sum_over_experts(y, grouped.weights, routing.memory, routing.num_experts)
    return result


@operator(
    "moe_group_by_expert", schema="(Tensor x, Tensor topk_ids, int num_experts, int capacity) -> (Tensor, Tensor)"
)
def _group(x: torch.Tensor, topk_ids: torch.Tensor, num_experts: int, capacity: int) -> tuple[torch.Tensor, ...]:
    routing = of_one_pe(topk_ids.contiguous(), num_experts, torch.zeros)
    return rows_by_expert(x.contiguous(), None, routing, capacity, torch.zeros)[0], routing.memory


@_group.register_fake
def _group_fake(x: torch.Tensor, topk_ids: torch.Tensor, num_experts: int, capacity: int) -> tuple[torch.Tensor, ...]:
    n_tokens, top_k = topk_ids.shape
    words = memory_words(1, n_tokens, top_k, num_experts)
    return x.new_empty(capacity, x.shape[1]), topk_ids.new_empty(words, dtype=torch.int32)


def _group_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ids, num_experts, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])
    ctx.shape, ctx.num_experts = ids.shape, num_experts


def _group_backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    (memory,) = ctx.saved_tensors
    ones = torch.ones(ctx.shape, dtype=torch.float32, device=grad.device)
    return _ops.moe_sum_over_experts(grad, ones, memory, ctx.num_experts), None, None, None


_group.register_autograd(_group_backward, setup_context=_group_setup)


@operator("moe_sum_over_experts", schema="(Tensor y, Tensor topk_weights, Tensor memory, int num_experts) -> Tensor")
def _sum(y: torch.Tensor, topk_weights: torch.Tensor, memory: torch.Tensor, num_experts: int) -> torch.Tensor:
    routing = with_memory(memory.contiguous(), topk_weights.shape, num_experts)
    return sums(y.contiguous(), topk_weights.contiguous(), routing, torch.zeros)


@_sum.register_fake
def _sum_fake(y: torch.Tensor, topk_weights: torch.Tensor, memory: torch.Tensor, num_experts: int) -> torch.Tensor:
    return y.new_empty(topk_weights.shape[0], y.shape[1])


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    y, weights, memory, ctx.num_experts = inputs
    ctx.save_for_backward(y, weights, memory)


def _sum_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return *_ops.moe_sum_over_experts_backward(grad, *ctx.saved_tensors, ctx.num_experts), None, None


_sum.register_autograd(_sum_backward, setup_context=_sum_setup)


@operator(
    "moe_sum_over_experts_backward",
    schema="(Tensor grad, Tensor y, Tensor topk_weights, Tensor memory, int num_experts) -> (Tensor, Tensor)",
)
def _sum_gradients(
    grad: torch.Tensor, y: torch.Tensor, topk_weights: torch.Tensor, memory: torch.Tensor, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    routing = with_memory(memory.contiguous(), topk_weights.shape, num_experts)
    return gradients_of_sums(grad.contiguous(), y.contiguous(), topk_weights.contiguous(), routing)


@_sum_gradients.register_fake
def _sum_gradients_fake(
    grad: torch.Tensor, y: torch.Tensor, topk_weights: torch.Tensor, memory: torch.Tensor, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return y.new_empty(y.shape), topk_weights.new_empty(topk_weights.shape)


def _sum_gradients_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.num_experts = inputs
    ctx.save_for_backward(*tensors)


def _sum_gradients_backward(ctx: Any, of_y: torch.Tensor, of_weights: torch.Tensor) -> tuple[Any, ...]:
    """The results are bilinear: in ``grad`` and ``topk_weights``, and in ``grad`` and ``y``. So the gradient of
    ``grad`` is two sums. Those of ``y`` and ``topk_weights`` are the operator's results with ``of_y`` and
    ``of_weights`` in the places of the two."""
    grad, y, weights, memory = ctx.saved_tensors
    routing = memory, ctx.num_experts
    of_grad = None
    if ctx.needs_input_grad[0]:
        of_rows = _ops.moe_sum_over_experts(of_y, weights, *routing)
        of_grad = of_rows + _ops.moe_sum_over_experts(y, of_weights, *routing)
    return of_grad, *_ops.moe_sum_over_experts_backward(grad, of_y, of_weights, *routing), None, None


_sum_gradients.register_autograd(_sum_gradients_backward, setup_context=_sum_gradients_setup)
