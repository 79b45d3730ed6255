"""Operations on experts of which every PE has a slice, for models in PyTorch: with gradients, traced by torch.compile.

    routing = functional.gather_routing(ids, weights, num_experts=128, max_tokens=256)
    y = functional.all_gather_grouped_gemm(x, w, routing)
    out = functional.grouped_gemm_reduce_scatter(act(y), v, routing, weights)

The two are each other's backward with respect to ``a``, with the same overlap
(``functional_tensor_parallel_gradients.py``). The gradient of the weights is reduce-scattered. All are *collective*, so
on every PE the same tensors require gradients. Rows that no token fills are zeros in what all_gather_grouped_gemm
returns here.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.layout import contiguous
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm as gather_and_multiply
from triton_dist.kernels.moe.functional_arguments import check_weights
from triton_dist.kernels.moe.functional_tensor_parallel_gradients import (
    SIZES,
    multiplied,
    of_matrices,
    routing_of,
    rows_of_all,
    scattered,
    weighted_rows,
    weights_of_rows,
)
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, check_routing, gather, memory_words
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter as multiply_and_scatter

__all__ = ["all_gather_grouped_gemm", "gather_routing", "grouped_gemm_reduce_scatter"]

_ops: Any = torch.ops.triton_dist

_OPTIONS = f"ScalarType? out_dtype, int num_sms, {SIZES}"


# ---- routing


def gather_routing(
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    group: Any = None,
) -> GatheredRouting:
    """:func:`triton_dist.kernels.moe.gather_routing`. The result has no gradient: weights get theirs from
    :func:`grouped_gemm_reduce_scatter`."""
    check_dense("gather_routing", topk_ids=topk_ids)
    size, name = groups.resolve(group)
    if topk_weights is None:
        topk_weights = torch.ones(topk_ids.shape, dtype=torch.float32, device=topk_ids.device)
    check_dense("gather_routing", topk_weights=topk_weights)
    memory = _ops.moe_gather_routing(topk_ids, topk_weights.detach(), num_experts, max_tokens, size, name)
    return routing_of(memory, topk_ids.shape, (num_experts, max_tokens, size, name))


@operator(
    "moe_gather_routing",
    schema=f"(Tensor topk_ids, Tensor topk_weights, {SIZES}) -> Tensor",
)
def _gather_routing(topk_ids: torch.Tensor, topk_weights: torch.Tensor, *sizes: Any) -> torch.Tensor:
    num_experts, max_tokens, *where = sizes
    with calling("gather_routing", groups.communicator("gather_routing", *where)) as comm:
        ids, weights = topk_ids.contiguous(), topk_weights.contiguous()
        return gather(comm, ids, weights, num_experts, max_tokens, torch.zeros).memory


@_gather_routing.register_fake
def _gather_routing_fake(topk_ids: torch.Tensor, topk_weights: torch.Tensor, *sizes: Any) -> torch.Tensor:
    groups.check("gather_routing", *sizes[-2:])
    if topk_ids.dim() != 2:
        raise ValueError("gather_routing: topk_ids must have two dimensions")
    num_experts, max_tokens, size, _ = sizes
    return topk_ids.new_empty(memory_words(size, max_tokens, topk_ids.shape[1], num_experts), dtype=torch.int32)


_gather_routing.refuse_gradients()


# ---- all-gather and grouped GEMM


def all_gather_grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    *,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    group: Any = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.all_gather_grouped_gemm`, with gradients of ``a`` and ``b``. fp8 has none."""
    check_routing("all_gather_grouped_gemm", routing)
    _check_dims("all_gather_grouped_gemm", a, b)
    if a.shape[0] != routing.n_tokens:
        raise ValueError(
            f"all_gather_grouped_gemm: a has {a.shape[0]} rows, and routing is of {routing.n_tokens} tokens"
        )
    sizes = _sizes_of("all_gather_grouped_gemm", routing, group)
    result: torch.Tensor = _ops.moe_all_gather_grouped_gemm(
        a, b, routing.memory, a_scales, b_scales, routing.top_k, out_dtype, num_sms, *sizes
    )
    return result


@operator(
    "moe_all_gather_grouped_gemm",
    schema=f"(Tensor a, Tensor b, Tensor memory, Tensor? a_scales, Tensor? b_scales, int top_k, {_OPTIONS}) -> Tensor",
)
def _gathering(
    a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, a_scales: Any, b_scales: Any, top_k: int, *rest: Any
) -> torch.Tensor:
    _, num_sms, *sizes = rest
    out = torch.zeros_like(_gathering_fake(a, b, memory, a_scales, b_scales, top_k, *rest))
    comm = groups.communicator("all_gather_grouped_gemm", *sizes[-2:])
    routing = routing_of(memory, (a.shape[0], top_k), tuple(sizes))._replace(members=comm.members, comm=comm)
    return gather_and_multiply(
        contiguous(a), b, routing, out=out, a_scales=a_scales, b_scales=b_scales, num_sms=num_sms
    )


@_gathering.register_fake
def _gathering_fake(
    a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, a_scales: Any, b_scales: Any, top_k: int, *rest: Any
) -> torch.Tensor:
    out_dtype, _, _, max_tokens, size, _ = rest
    groups.check("all_gather_grouped_gemm", *rest[-2:])
    _check_dims("all_gather_grouped_gemm", a, b)
    return a.new_empty(size * max_tokens * top_k, b.shape[2], dtype=_dtype(a, out_dtype))


def _sizes_of(function: str, routing: GatheredRouting, group: Any) -> tuple[Any, ...]:
    made_in = routing.group or groups.resolve(routing.comm)
    return routing.num_experts, routing.max_tokens, *groups.resolve_again(function, group, made_in)


def _check_dims(function: str, a: torch.Tensor, b: torch.Tensor) -> None:
    check_dense(function, a=a, b=b)
    if a.dim() != 2 or b.dim() != 3:
        raise ValueError(f"{function}: a must have two dimensions and b three, got {tuple(a.shape)}, {tuple(b.shape)}")


def _dtype(a: torch.Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    return out_dtype or (torch.bfloat16 if a.dtype in FP8 else a.dtype)


def _refuse_fp8(function: str, a: torch.Tensor) -> None:
    if a.dtype in FP8:
        raise ValueError(f"{function}: operands of {a.dtype} have no gradient here: pass detached tensors")


def _gathering_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, memory, _, _, ctx.top_k, _, ctx.num_sms, *ctx.sizes = inputs
    _refuse_fp8("all_gather_grouped_gemm", a)
    ctx.shape = a.shape[0], ctx.top_k
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b, memory)


def _gathering_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b, memory = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0] and ctx.needs_input_grad[1]:
        grad_a, grad_b = _ops.moe_all_gather_grouped_gemm_gradients(
            grad, a, b, memory, ctx.top_k, ctx.num_sms, *ctx.sizes
        )
    elif ctx.needs_input_grad[0]:
        grad_a = scattered(grad, b, ctx.shape, memory, ctx.num_sms, ctx.sizes)
    elif ctx.needs_input_grad[1]:
        routing = routing_of(memory, ctx.shape, tuple(ctx.sizes))
        rows = rows_of_all(a, routing, ctx.sizes)
        grad_b = _ops.moe_grouped_weight_grad(rows, grad, routing.offsets, routing.counts)
    return grad_a, grad_b, *[None] * 10


_gathering.register_autograd(_gathering_backward, setup_context=_gathering_setup)


# ---- grouped GEMM and reduce-scatter


def grouped_gemm_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    routing: GatheredRouting,
    topk_weights: torch.Tensor | None = None,
    *,
    weighted: bool = True,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    num_sms: int = 0,
    group: Any = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.grouped_gemm_reduce_scatter`, with gradients of ``a``, ``b`` and the weights.

    Args:
        topk_weights: [T, top_k], those that were gathered, if they want a gradient.
    """
    check_routing("grouped_gemm_reduce_scatter", routing)
    _check_dims("grouped_gemm_reduce_scatter", a, b)
    sizes = _sizes_of("grouped_gemm_reduce_scatter", routing, group)
    if topk_weights is None:
        topk_weights = torch.ones(routing.n_tokens, routing.top_k, dtype=torch.float32, device=a.device)
    else:
        given, shape = topk_weights, (routing.n_tokens, routing.top_k)
        check_weights(
            "grouped_gemm_reduce_scatter", given, shape, "gathered", lambda: _gathered(given, routing, sizes[-1])
        )
    result: torch.Tensor = _ops.moe_grouped_gemm_reduce_scatter(
        a, b, topk_weights, routing.memory, a_scales, b_scales, weighted, out_dtype, num_sms, *sizes
    )
    return result


def _gathered(weights: torch.Tensor, routing: GatheredRouting, group_name: str) -> torch.Tensor:
    """Those that were gathered of this PE's choices; ``weights`` of choices without a row, which are not."""
    rows = routing.positions[groups.rank_of(group_name), : routing.n_tokens].long()
    return torch.where(rows >= 0, routing.weights[rows.clamp(min=0)], weights)


@operator(
    "moe_grouped_gemm_reduce_scatter",
    schema="(Tensor a, Tensor b, Tensor topk_weights, Tensor memory, Tensor? a_scales, Tensor? b_scales,"
    f" bool weighted, {_OPTIONS}) -> Tensor",
)
def _scattering(
    a: torch.Tensor,
    b: torch.Tensor,
    topk_weights: torch.Tensor,
    memory: torch.Tensor,
    a_scales: Any,
    b_scales: Any,
    weighted: bool,
    *rest: Any,
) -> torch.Tensor:
    out_dtype, num_sms, *sizes = rest
    comm = groups.communicator("grouped_gemm_reduce_scatter", *sizes[-2:])
    routing = routing_of(memory, topk_weights.shape, tuple(sizes))._replace(members=comm.members, comm=comm)
    if a.dim() == 2 and a.stride(1) != 1:
        a = contiguous(a)
    options = {"a_scales": a_scales, "b_scales": b_scales, "out_dtype": out_dtype, "num_sms": num_sms}
    return multiply_and_scatter(a, b, routing, weighted=weighted, **options)


@_scattering.register_fake
def _scattering_fake(a: torch.Tensor, b: torch.Tensor, topk_weights: torch.Tensor, *rest: Any) -> torch.Tensor:
    groups.check("grouped_gemm_reduce_scatter", *rest[-2:])
    _check_dims("grouped_gemm_reduce_scatter", a, b)
    return a.new_empty(topk_weights.shape[0], b.shape[2], dtype=_dtype(a, rest[4]))


def _scattering_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, topk_weights, memory, _, _, ctx.weighted, _, ctx.num_sms, *ctx.sizes = inputs
    _refuse_fp8("grouped_gemm_reduce_scatter", a)
    ctx.shape, ctx.dtype = topk_weights.shape, a.dtype
    weights = topk_weights if ctx.needs_input_grad[2] and ctx.weighted else None
    ctx.save_for_backward(a if any(ctx.needs_input_grad[1:3]) else None, b, memory, weights)


def _scattering_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b, memory, topk_weights = ctx.saved_tensors
    routing = routing_of(memory, ctx.shape, tuple(ctx.sizes))
    grad = grad.to(ctx.dtype)
    of_weights = topk_weights is not None
    weights = None
    if torch.is_grad_enabled() and topk_weights is not None:  # second derivatives, also of the weights
        weights = weights_of_rows(topk_weights, routing, ctx.sizes)
    grad_a = grad_b = grad_weights = None
    if ctx.needs_input_grad[0] or of_weights:
        if weights is not None:
            rows = multiplied(grad, b, ctx.shape[1], memory, ctx.num_sms, ctx.sizes)
            if ctx.needs_input_grad[1]:
                grad_b = of_matrices(rows_of_all(grad, routing, ctx.sizes), a, routing, True, weights)
        elif ctx.needs_input_grad[1]:
            rows, grad_b = _ops.moe_grouped_gemm_reduce_scatter_gradients(
                grad, a, b, memory, ctx.shape[1], ctx.weighted, ctx.num_sms, *ctx.sizes
            )
        else:
            rows = multiplied(grad, b, ctx.shape[1], memory, ctx.num_sms, ctx.sizes)
        if ctx.needs_input_grad[0]:
            grad_a = weighted_rows(rows, routing, weights) if ctx.weighted else rows
        if of_weights:
            # This PE's part of what each row's weight multiplies, by choice; parts are summed over PEs.
            of_rows = (rows.float() * a.float()).sum(dim=-1)
            made = routing.positions >= 0
            by_choice = torch.where(made, of_rows[routing.positions.clamp(min=0)], 0.0)
            summed = _ops.reduce_scatter(by_choice.flatten(0, 1), "sum", 0, *ctx.sizes[-2:])
            grad_weights = summed[: ctx.shape[0]]
    elif ctx.needs_input_grad[1]:
        grad_b = of_matrices(rows_of_all(grad, routing, ctx.sizes), a, routing, ctx.weighted)
    return grad_a, grad_b, grad_weights, *[None] * 10


_scattering.register_autograd(_scattering_backward, setup_context=_scattering_setup)
