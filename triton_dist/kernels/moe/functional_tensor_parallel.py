"""Operations on experts of which every PE has a slice, for models in PyTorch: with gradients, traced by torch.compile.

    routing = functional.gather_routing(ids, weights, num_experts=128, max_tokens=256)
    y = functional.all_gather_grouped_gemm(x, w, routing)
    out = functional.grouped_gemm_reduce_scatter(act(y), v, routing, weights)

The two are each other's backward with respect to ``a``, with the same overlap. The gradient of ``b`` is a local GEMM
with gathered rows, which it reads where they have arrived, in memory that the next GEMM overwrites:

- all_gather_grouped_gemm's backward gathers tokens again while grouped_gemm_reduce_scatter runs (``gather_during.py``);
- grouped_gemm_reduce_scatter's reads gradients that the all_gather_grouped_gemm of the other gradient has gathered.

The gradient of the weights is reduce-scattered. All are *collective*, so on every PE the same tensors require
gradients. Rows that no token fills are zeros in what all_gather_grouped_gemm returns here.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.collectives.gather_during import is_worthwhile
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm as gather_and_multiply
from triton_dist.kernels.moe.all_gather_grouped_gemm import gather_tokens_during, gathered_tokens
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, gather, memory_words
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter as multiply_and_scatter
from triton_dist.kernels.protocols.members import Members

__all__ = ["all_gather_grouped_gemm", "gather_routing", "grouped_gemm_reduce_scatter"]

_ops: Any = torch.ops.triton_dist

_SIZES = "int num_experts, int max_tokens, int group_size, str group_name"
_OPTIONS = f"ScalarType? out_dtype, int num_sms, {_SIZES}"


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
    size, name = groups.resolve(group)
    if topk_weights is None:
        topk_weights = torch.ones(topk_ids.shape, device=topk_ids.device)
    memory = _ops.moe_gather_routing(topk_ids, topk_weights.detach(), num_experts, max_tokens, size, name)
    return _routing(memory, topk_ids.shape, (num_experts, max_tokens, size, name))


def _routing(memory: torch.Tensor, ids: Any, sizes: tuple[Any, ...]) -> GatheredRouting:
    """Of a call for ids of shape ``ids``."""
    num_experts, max_tokens, size, _ = sizes
    return GatheredRouting(memory, ids[0], ids[1], num_experts, max_tokens, Members(0, 1, size))


@operator(
    "moe_gather_routing",
    schema=f"(Tensor topk_ids, Tensor topk_weights, {_SIZES}) -> Tensor",
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
    sizes = (routing.num_experts, routing.max_tokens, *groups.resolve(group))
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
    routing = _routing(memory, (a.shape[0], top_k), tuple(sizes))._replace(members=comm.members, comm=comm)
    return gather_and_multiply(
        a.contiguous(), b, routing, out=out, a_scales=a_scales, b_scales=b_scales, num_sms=num_sms
    )


@_gathering.register_fake
def _gathering_fake(
    a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, a_scales: Any, b_scales: Any, top_k: int, *rest: Any
) -> torch.Tensor:
    out_dtype, _, _, max_tokens, size, _ = rest
    groups.check("all_gather_grouped_gemm", *rest[-2:])
    _check_dims("all_gather_grouped_gemm", a, b)
    return a.new_empty(size * max_tokens * top_k, b.shape[2], dtype=_dtype(a, out_dtype))


def _check_dims(function: str, a: torch.Tensor, b: torch.Tensor) -> None:
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
        grad_a = _scattered(grad, b, ctx.shape, memory, ctx.num_sms, ctx.sizes)
    elif ctx.needs_input_grad[1]:
        routing = _routing(memory, ctx.shape, tuple(ctx.sizes))
        rows = _rows_of_all(a, routing, ctx.sizes)
        grad_b = _ops.moe_grouped_weight_grad(rows, grad, routing.offsets, routing.counts)
    return grad_a, grad_b, *[None] * 10


def _scattered(
    grad: torch.Tensor, b: torch.Tensor, ids: tuple[int, int], memory: torch.Tensor, num_sms: int, sizes: Any
) -> torch.Tensor:
    """The gradient of this PE's tokens, whose ids are of shape ``ids``, from that of all rows."""
    ones = torch.ones(ids, device=grad.device)
    result: torch.Tensor = _ops.moe_grouped_gemm_reduce_scatter(
        grad, b.transpose(1, 2), ones, memory, None, None, False, None, num_sms, *sizes
    )
    return result


def _padded(x: torch.Tensor, routing: GatheredRouting) -> torch.Tensor:
    """This PE's tokens, as many as a PE may have."""
    return torch.nn.functional.pad(x, (0, 0, 0, routing.max_tokens - x.shape[0]))


def _rows_of(gathered: torch.Tensor, routing: GatheredRouting) -> torch.Tensor:
    """The rows of all PEs' tokens, [R, hidden]; those behind the last are any tokens'."""
    return gathered.index_select(0, routing.tokens.clamp(0, len(gathered) - 1))


def _rows_of_all(x: torch.Tensor, routing: GatheredRouting, sizes: Any) -> torch.Tensor:
    return _rows_of(_ops.all_gather(_padded(x, routing), 0, *sizes[-2:]), routing)


_gathering.register_autograd(_gathering_backward, setup_context=_gathering_setup)


@operator(
    "moe_all_gather_grouped_gemm_gradients",
    schema=f"(Tensor grad, Tensor a, Tensor b, Tensor memory, int top_k, int num_sms, {_SIZES}) -> (Tensor, Tensor)",
)
def _gathering_gradients(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, top_k: int, num_sms: int, *sizes: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    function, ids = "all_gather_grouped_gemm_gradients", (a.shape[0], top_k)
    comm = groups.communicator(function, *sizes[-2:])
    routing = _routing(memory, ids, sizes)
    padded = _padded(a, routing).contiguous()
    made: list[torch.Tensor] = []

    def scatter() -> None:
        made.append(_scattered(grad, b, ids, memory, num_sms, sizes))

    with calling(function, comm):
        if is_worthwhile(comm, padded.nbytes):
            rows = _rows_of(gather_tokens_during(comm, function, padded, scatter), routing)
        else:
            scatter()
            rows = _rows_of_all(a, routing, sizes)
        return made[0], _ops.moe_grouped_weight_grad(rows, grad, routing.offsets, routing.counts)


@_gathering_gradients.register_fake
def _gathering_gradients_fake(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, top_k: int, num_sms: int, *sizes: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    groups.check("all_gather_grouped_gemm_gradients", *sizes[-2:])
    return grad.new_empty(a.shape), a.new_empty(sizes[0], a.shape[1], grad.shape[1])


def _gathering_gradients_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, a, b, memory, ctx.top_k, ctx.num_sms, *ctx.sizes = inputs
    ctx.save_for_backward(grad, a, b, memory)


def _gathering_gradients_backward(ctx: Any, of_a: torch.Tensor, of_b: torch.Tensor) -> tuple[Any, ...]:
    """Both gradients are linear in each of grad, a and b."""
    grad, a, b, memory = ctx.saved_tensors
    of_grad, of_b = None, of_b.contiguous()  # elements of an expanded one share memory
    if ctx.needs_input_grad[0]:
        rest = memory, None, None, ctx.top_k, None, ctx.num_sms, *ctx.sizes
        of_grad = _ops.moe_all_gather_grouped_gemm(of_a, b, *rest) + _ops.moe_all_gather_grouped_gemm(a, of_b, *rest)
    both = _ops.moe_all_gather_grouped_gemm_gradients(grad, of_a, of_b, memory, ctx.top_k, ctx.num_sms, *ctx.sizes)
    return of_grad, *both, *[None] * 7


_gathering_gradients.register_autograd(_gathering_gradients_backward, setup_context=_gathering_gradients_setup)


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
    if topk_weights is None:
        topk_weights = torch.ones(routing.n_tokens, routing.top_k, device=a.device)
    sizes = (routing.num_experts, routing.max_tokens, *groups.resolve(group))
    result: torch.Tensor = _ops.moe_grouped_gemm_reduce_scatter(
        a, b, topk_weights, routing.memory, a_scales, b_scales, weighted, out_dtype, num_sms, *sizes
    )
    return result


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
    routing = _routing(memory, topk_weights.shape, tuple(sizes))._replace(members=comm.members, comm=comm)
    if a.dim() == 2 and a.stride(1) != 1:
        a = a.contiguous()
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
    ctx.save_for_backward(a if any(ctx.needs_input_grad[1:3]) else None, b, memory)


def _scattering_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b, memory = ctx.saved_tensors
    routing = _routing(memory, ctx.shape, tuple(ctx.sizes))
    grad = grad.to(ctx.dtype)
    of_weights = ctx.weighted and ctx.needs_input_grad[2]
    grad_a = grad_b = grad_weights = None
    if ctx.needs_input_grad[0] or of_weights:
        if ctx.needs_input_grad[1]:
            rows, grad_b = _ops.moe_grouped_gemm_reduce_scatter_gradients(
                grad, a, b, memory, ctx.shape[1], ctx.weighted, ctx.num_sms, *ctx.sizes
            )
        else:
            rows = _multiplied(grad, b, ctx.shape[1], memory, ctx.num_sms, ctx.sizes)
        if ctx.needs_input_grad[0]:
            grad_a = _weighted(rows, routing) if ctx.weighted else rows
        if of_weights:
            # This PE's part of what each row's weight multiplies, by choice; parts are summed over PEs.
            of_rows = (rows.float() * a.float()).sum(dim=-1)
            made = routing.positions >= 0
            by_choice = torch.where(made, of_rows[routing.positions.clamp(min=0)], 0.0)
            summed = _ops.reduce_scatter(by_choice.flatten(0, 1), "sum", 0, *ctx.sizes[-2:])
            grad_weights = summed[: ctx.shape[0]]
    elif ctx.needs_input_grad[1]:
        grad_b = _of_matrices(_rows_of_all(grad, routing, ctx.sizes), a, routing, ctx.weighted)
    return grad_a, grad_b, grad_weights, *[None] * 10


def _multiplied(
    grad: torch.Tensor, b: torch.Tensor, top_k: int, memory: torch.Tensor, num_sms: int, sizes: Any
) -> torch.Tensor:
    """The gradient of all rows before their weights, from that of this PE's tokens."""
    result: torch.Tensor = _ops.moe_all_gather_grouped_gemm(
        grad, b.transpose(1, 2), memory, None, None, top_k, None, num_sms, *sizes
    )
    return result


def _of_matrices(rows: torch.Tensor, a: torch.Tensor, routing: GatheredRouting, weighted: bool) -> torch.Tensor:
    """The gradient of ``b``, from that of the tokens of all rows."""
    rows = _weighted(rows, routing) if weighted else rows
    result: torch.Tensor = _ops.moe_grouped_weight_grad(a, rows, routing.offsets, routing.counts)
    return result


def _weighted(rows: torch.Tensor, routing: GatheredRouting) -> torch.Tensor:
    """Rows times their weights; rows behind the last are zeros."""
    used = torch.arange(len(rows), device=rows.device) < routing.offsets[-1]
    return torch.where(used[:, None], rows.float() * routing.weights[:, None], 0.0).to(rows.dtype)


_scattering.register_autograd(_scattering_backward, setup_context=_scattering_setup)


@operator(
    "moe_grouped_gemm_reduce_scatter_gradients",
    schema="(Tensor grad, Tensor a, Tensor b, Tensor memory, int top_k, bool weighted, int num_sms,"
    f" {_SIZES}) -> (Tensor, Tensor)",
)
def _scattering_gradients(
    grad: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    memory: torch.Tensor,
    top_k: int,
    weighted: bool,
    num_sms: int,
    *sizes: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of rows before their weights, and of ``b``."""
    function = "grouped_gemm_reduce_scatter_gradients"
    comm = groups.communicator(function, *sizes[-2:])
    routing = _routing(memory, (grad.shape[0], top_k), sizes)
    with calling(function, comm):
        rows = _multiplied(grad, b, top_k, memory, num_sms, sizes)
        gathered = gathered_tokens(comm, routing.max_tokens, grad)
        return rows, _of_matrices(_rows_of(gathered, routing), a, routing, weighted)


@_scattering_gradients.register_fake
def _scattering_gradients_fake(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    groups.check("grouped_gemm_reduce_scatter_gradients", *rest[-2:])
    return grad.new_empty(a.shape), a.new_empty(b.shape)


def _scattering_gradients_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, a, b, memory, ctx.top_k, ctx.weighted, ctx.num_sms, *ctx.sizes = inputs
    ctx.save_for_backward(grad, a, b, memory)


def _scattering_gradients_backward(ctx: Any, of_rows: torch.Tensor, of_b: torch.Tensor) -> tuple[Any, ...]:
    """Both gradients are linear in each of grad, a and b."""
    grad, a, b, memory = ctx.saved_tensors
    ids, of_grad, of_b = (grad.shape[0], ctx.top_k), None, of_b.contiguous()  # elements of an expanded one share memory
    if ctx.needs_input_grad[0]:
        rest = grad.new_ones(ids), memory, None, None
        how = None, ctx.num_sms, *ctx.sizes
        of_grad = _ops.moe_grouped_gemm_reduce_scatter(of_rows, b, *rest, False, *how)
        of_grad = of_grad + _ops.moe_grouped_gemm_reduce_scatter(a, of_b, *rest, ctx.weighted, *how)
    of_a, of_matrices = _ops.moe_grouped_gemm_reduce_scatter_gradients(
        grad, of_rows, of_b, memory, ctx.top_k, False, ctx.num_sms, *ctx.sizes
    )
    of_a = _weighted(of_a, _routing(memory, ids, tuple(ctx.sizes))) if ctx.weighted else of_a
    return of_grad, of_a, of_matrices, *[None] * 8


_scattering_gradients.register_autograd(_scattering_gradients_backward, setup_context=_scattering_gradients_setup)
