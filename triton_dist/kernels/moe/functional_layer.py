"""The halves of a layer of experts with gradients: dispatch and the GEMM behind it, the GEMM and combine behind it.

Each is one node of autograd, of whose backward the parts can be in another order than those of two nodes. The gradient
of the experts' matrices is a local GEMM, for which nothing waits: it is computed while rows are combined (see
``combine_during.py``):

- behind the first GEMM: the gradients of its rows, which return to the PEs of the tokens;
- behind the second GEMM: the numbers of which the gradients of tokens' weights are.

The kernels, and so the bits, are those of ``functional.py``'s operators, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.arguments import most_rows
from triton_dist.kernels.moe.combine_during import combine_during
from triton_dist.kernels.moe.functional import (
    SIZES,
    by_choice,
    gradients_of_operands,
    routing_of,
    sizes_of,
    weights_of_rows,
)
from triton_dist.kernels.moe.grouped_gemm import grouped_weight_grad
from triton_dist.kernels.moe.results import Dispatched

__all__ = ["dispatch_and_multiply", "multiply_and_combine"]

_ops: Any = torch.ops.triton_dist

_ROUTED = f"Tensor topk_ids, Tensor topk_weights, Tensor memory, {SIZES}"


def _received(rows: torch.Tensor, routed: Sequence[torch.Tensor], sizes: Sequence[Any]) -> Dispatched:
    """``routed`` are ids, weights and memory."""
    ids, weights, memory = routed
    return Dispatched(rows, None, memory, routing_of(ids, weights, sizes))


# ---- combine, and the gradient of a matrix


@operator(
    "moe_combine_and_weight_grad",
    schema=f"(Tensor y, Tensor a, Tensor grad, {_ROUTED}) -> (Tensor, Tensor)",
)
def _combine_and_weight_grad(
    y: torch.Tensor,
    a: torch.Tensor,
    grad: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    memory: torch.Tensor,
    *sizes: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``y`` combined, without weights, and the gradient of the matrices by which ``a`` was multiplied."""
    comm = groups.communicator("combine", *sizes[-2:])
    y, a, grad, ids, memory = (tensor.contiguous() for tensor in (y, a, grad, ids, memory))
    received = _received(y, (ids, weights, memory), sizes)
    received = received._replace(routing=received.routing._replace(members=comm.members, comm=comm))
    of_b = a.new_empty(received.routing.local_experts, a.shape[1], grad.shape[1])
    work = partial(grouped_weight_grad, a, grad, received.offsets, received.counts, out=of_b)
    return combine_during(y, received, work), of_b


@_combine_and_weight_grad.register_fake
def _combine_and_weight_grad_fake(
    y: torch.Tensor,
    a: torch.Tensor,
    grad: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    memory: torch.Tensor,
    *sizes: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    groups.check("combine", *sizes[-2:])
    return y.new_empty(ids.shape[0], y.shape[1]), a.new_empty(sizes[0] // sizes[-2], a.shape[1], grad.shape[1])


def _combine_and_weight_grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, a, grad, *routed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(a, grad, *routed[:3])
    ctx.sizes = routed[3:]


def _combine_and_weight_grad_backward(ctx: Any, of_out: Any, of_b: Any) -> tuple[Any, ...]:
    a, grad, ids, weights, memory = ctx.saved_tensors
    received = _received(a, (ids, weights, memory), ctx.sizes)
    of_y = of_a = of_grad = None
    if of_out is not None and ctx.needs_input_grad[0]:
        of_y = _ops.moe_dispatch(of_out, ids, weights, None, *ctx.sizes)[0]
    if of_b is not None:
        groups_of_rows = received.offsets, received.counts
        of_a, of_grad = gradients_of_operands(a, grad, *groups_of_rows, of_b, ctx.needs_input_grad[1:3])
    return of_y, of_a, of_grad, *[None] * 10


_combine_and_weight_grad.register_autograd(
    _combine_and_weight_grad_backward, setup_context=_combine_and_weight_grad_setup
)


# ---- dispatch and GEMM


def dispatch_and_multiply(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    b: torch.Tensor,
    *,
    num_experts: int,
    max_tokens: int,
    capacity: int | None,
    num_sms: int,
    group: Any,
) -> tuple[torch.Tensor, Dispatched]:
    """``functional.dispatch``, and its rows times ``b`` by ``functional.grouped_gemm``, in front of them."""
    size, name = groups.resolve(group)
    if capacity is None:
        capacity = most_rows(size, max_tokens, topk_ids.shape[-1], num_experts // max(size, 1), 1)
    sizes = num_experts, max_tokens, 1, capacity, num_sms, size, name
    weights = topk_weights.detach()
    product, rows, memory = _ops.moe_dispatch_and_multiply(x, b, topk_ids, weights, *sizes)
    return product, _received(rows, (topk_ids, weights, memory), sizes)


@operator(
    "moe_dispatch_and_multiply",
    schema=f"(Tensor x, Tensor b, Tensor topk_ids, Tensor topk_weights, {SIZES}) -> (Tensor, Tensor, Tensor)",
)
def _dispatch_and_multiply(
    x: torch.Tensor, b: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    """The products, the rows, and what says which rows they are."""
    return _dispatched_and_multiplied(x, b, ids, weights, *sizes)


@_dispatch_and_multiply.register_fake
def _dispatched_and_multiplied(
    x: torch.Tensor, b: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    rows, _, memory = _ops.moe_dispatch(x, ids, weights, None, *sizes)
    received = _received(rows, (ids, weights, memory), sizes)
    return _ops.moe_grouped_gemm(rows, b, received.offsets, received.counts), rows, memory


def _dispatch_and_multiply_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, b, ids, weights, *ctx.sizes = inputs
    _, rows, memory = output
    if x.dtype in FP8:
        raise ValueError(f"moe_layer: operands of {x.dtype} have no gradient here: pass detached tensors")
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(memory)
    ctx.save_for_backward(rows if ctx.needs_input_grad[1] else None, b, ids, weights, memory)


def _dispatch_and_multiply_backward(ctx: Any, grad: Any, of_rows: Any, _: Any) -> tuple[Any, ...]:
    """``of_rows`` comes from second derivatives only."""
    rows, b, *routed = ctx.saved_tensors
    received = _received(rows, routed, ctx.sizes)
    wants_x, wants_b = ctx.needs_input_grad[:2]
    of_x = of_b = None
    if grad is not None and wants_x:
        products = _ops.moe_grouped_gemm(grad, b.transpose(1, 2), received.offsets, received.counts)
        of_rows = products if of_rows is None else of_rows + products
    if grad is not None and wants_x and wants_b:
        of_x, of_b = _ops.moe_combine_and_weight_grad(of_rows, rows, grad, *routed, *ctx.sizes)
    else:
        if of_rows is not None and wants_x:
            of_x = _ops.moe_combine(of_rows, *routed, False, *ctx.sizes)
        if grad is not None and wants_b:
            of_b = _ops.moe_grouped_weight_grad(rows, grad, received.offsets, received.counts)
    return of_x, of_b, *[None] * 9


_dispatch_and_multiply.register_autograd(_dispatch_and_multiply_backward, setup_context=_dispatch_and_multiply_setup)


# ---- GEMM and combine


def multiply_and_combine(
    a: torch.Tensor, b: torch.Tensor, received: Dispatched, topk_weights: torch.Tensor, *, group: Any
) -> torch.Tensor:
    """``functional.grouped_gemm`` of ``a`` and ``b``, and ``functional.combine`` of the products."""
    sizes = sizes_of(received.routing, groups.resolve(group)[1])
    result: torch.Tensor = _ops.moe_multiply_and_combine(
        a, b, received.routing.ids, topk_weights, received.memory, *sizes
    )[0]
    return result


@operator("moe_multiply_and_combine", schema=f"(Tensor a, Tensor b, {_ROUTED}) -> (Tensor, Tensor)")
def _multiply_and_combine(a: torch.Tensor, b: torch.Tensor, *routed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of tokens, and the products."""
    return _multiplied_and_combined(a, b, *routed)


@_multiply_and_combine.register_fake
def _multiplied_and_combined(a: torch.Tensor, b: torch.Tensor, *routed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    received = _received(a, routed[:3], routed[3:])
    y = _ops.moe_grouped_gemm(a, b, received.offsets, received.counts)
    return _ops.moe_combine(y, *routed[:3], True, *routed[3:]), y


def _multiply_and_combine_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, *routed = inputs
    ctx.sizes, ctx.dtype = routed[3:], a.dtype
    ctx.set_materialize_grads(False)
    wants_weights = ctx.needs_input_grad[3]
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b, output[1] if wants_weights else None, *routed[:3])


def _multiply_and_combine_backward(ctx: Any, grad: Any, of_y: Any) -> tuple[Any, ...]:
    """``of_y`` comes from second derivatives only."""
    a, b, y, *routed = ctx.saved_tensors
    received = _received(a, routed, ctx.sizes)
    offsets, counts = received.offsets, received.counts
    wants_a, wants_b, _, wants_weights = ctx.needs_input_grad[:4]
    of_a = of_b = summed = choices = None
    if grad is not None:
        # The same routing gives each row the same place.
        rows = _ops.moe_dispatch(grad.to(ctx.dtype), *routed[:2], None, *ctx.sizes)[0]
        weighted = (rows.float() * weights_of_rows(received, routed[1], ctx.sizes)[:, None]).to(ctx.dtype)
        of_y = weighted if of_y is None else of_y + weighted
        choices = by_choice(rows, y, received) if wants_weights else None
    if choices is not None and wants_b:
        summed, of_b = _ops.moe_combine_and_weight_grad(choices, a, of_y, *routed, *ctx.sizes)
    elif choices is not None:
        summed = _ops.moe_combine(choices, *routed, False, *ctx.sizes)
    elif wants_b:
        of_b = _ops.moe_grouped_weight_grad(a, of_y, offsets, counts)
    if wants_a:
        of_a = _ops.moe_grouped_gemm(of_y, b.transpose(1, 2), offsets, counts)
    of_weights = None if summed is None else summed[:, : routed[0].shape[1]]
    return of_a, of_b, None, of_weights, *[None] * 8


_multiply_and_combine.register_autograd(_multiply_and_combine_backward, setup_context=_multiply_and_combine_setup)
