"""Operations on experts for models in PyTorch: each returns new tensors, has gradients and is traced by torch.compile.

    received = functional.dispatch(x, ids, weights, num_experts=128, max_tokens=256)
    y = functional.grouped_gemm(received.x, w, received.offsets, received.counts)
    out = functional.combine(y, received, weights)

Each calls an operator of ``torch.ops.triton_dist``. The backward of dispatch is combine, and the other way round: both
are *collective*, on the current stream, so on every PE the same tensors require gradients. Rows that no token fills are
zeros, in what dispatch and the GEMM return here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.layout import contiguous
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.moe.arguments import Routing, check_sizes, most_rows
from triton_dist.kernels.moe.combine import combine as combine_rows
from triton_dist.kernels.moe.dispatch import run as run_dispatch
from triton_dist.kernels.moe.functional_arguments import check_dispatched, check_weights, refuse_gradients_of
from triton_dist.kernels.moe.functional_by_expert import group_by_expert, sum_over_experts
from triton_dist.kernels.moe.functional_tensor_parallel import (
    all_gather_grouped_gemm,
    gather_routing,
    grouped_gemm_reduce_scatter,
)
from triton_dist.kernels.moe.functional_tokens import combine_tokens, dispatch_tokens
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm as multiply
from triton_dist.kernels.moe.grouped_gemm import grouped_weight_grad
from triton_dist.kernels.moe.results import Dispatched, check_ids, remember_ids, result_of
from triton_dist.kernels.options import check_bool
from triton_dist.kernels.protocols.members import Members

__all__ = [
    "all_gather_grouped_gemm",
    "combine",
    "combine_tokens",
    "dispatch",
    "dispatch_tokens",
    "gather_routing",
    "group_by_expert",
    "grouped_gemm",
    "grouped_gemm_reduce_scatter",
    "sum_over_experts",
]

_ops: Any = torch.ops.triton_dist

SIZES = "int num_experts, int max_tokens, int align, int capacity, int num_sms, int group_size, str group_name"
"""Of operators. ``num_sms`` is ``_HALVES`` of what the halves of a dispatch received."""
_HALVES = -1


# ---- dispatch


def dispatch(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    align: int = 1,
    capacity: int | None = None,
    num_sms: int = 0,
    group: Any = None,
) -> Dispatched:
    """:func:`triton_dist.kernels.moe.dispatch`, with a gradient of ``x``, which is a :func:`combine`.

    With ``num_sms`` tokens go in rounds, as there, also in backward. ``topk_weights`` get their gradient from
    :func:`combine`; the result's ``weights`` have none. fp8 has none either. There are no ``buffer`` and
    ``expert_capacity``, whose rows would be overwritten or be missing where a gradient needs them, and no
    ``sm_margin``: ``num_sms`` is what leaves SMs to other kernels, in backward, too. Arguments, the result and errors
    are those of that function.
    """
    check_sizes("dispatch", num_experts, max_tokens, align, capacity, num_sms)
    check_dispatched("dispatch", x, topk_ids, topk_weights, scales)
    size, name = groups.resolve(group)
    if topk_weights is None:
        topk_weights = torch.ones(topk_ids.shape, dtype=torch.float32, device=topk_ids.device)
    local = num_experts // max(size, 1)
    if capacity is None:
        capacity = most_rows(size, max_tokens, topk_ids.shape[-1], local, align)
    sizes = (num_experts, max_tokens, align, capacity, num_sms, size, name)
    rows, of_rows, memory = _ops.moe_dispatch(x, topk_ids, topk_weights.detach(), scales, *sizes)
    routing = routing_of(topk_ids, topk_weights.detach(), sizes)
    if not torch.compiler.is_compiling():
        remember_ids(memory, topk_ids)
    return Dispatched(rows, None if scales is None else of_rows, memory, routing)


def routing_of(ids: torch.Tensor, weights: torch.Tensor, sizes: Sequence[Any]) -> Routing:
    """What operators on experts take as tensors and ``SIZES``, while PyTorch traces, too."""
    num_experts, max_tokens, align, capacity, num_sms, size, name = sizes
    local = num_experts // max(size, 1)
    members, hosts = Members(0, 1, size), groups.hosts_of(size, name)
    how = {"num_sms": max(num_sms, 0), "halves": num_sms == _HALVES, "hosts": hosts}
    return Routing(ids, weights, members, local, max_tokens, align, capacity, group=(size, name), **how)


def sizes_of(routing: Routing, name: str) -> tuple[Any, ...]:
    """``SIZES`` of a routing in the group of this name."""
    size = routing.members.size
    experts = routing.local_experts * size
    num_sms = _HALVES if routing.halves else routing.num_sms
    return experts, routing.max_tokens, routing.align, routing.capacity, num_sms, size, name


@operator(
    "moe_dispatch",
    schema=f"(Tensor x, Tensor topk_ids, Tensor topk_weights, Tensor? scales, {SIZES}) -> (Tensor, Tensor, Tensor)",
)
def _dispatch(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, scales: torch.Tensor | None, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    x, topk_ids, topk_weights = x.contiguous(), topk_ids.contiguous(), topk_weights.contiguous()
    scales = None if scales is None else scales.contiguous()
    with calling("dispatch", groups.communicator("dispatch", *sizes[-2:]), between_hosts=True) as comm:
        num_experts, max_tokens, align, capacity, num_sms, *_ = sizes
        how = num_experts, max_tokens, align, capacity, None, 0, 0, max(num_sms, 0)
        result = run_dispatch(comm, x, topk_ids, topk_weights, scales, *how, new=torch.zeros)
    return result.x, x.new_empty(0) if result.scales is None else result.scales, result.memory


@_dispatch.register_fake
def _dispatch_fake(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor, scales: torch.Tensor | None, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    groups.check("dispatch", *sizes[-2:])
    if x.dim() != 2 or topk_ids.dim() != 2 or (scales is not None and scales.dim() != 2):
        raise ValueError("dispatch: x, topk_ids and scales must have two dimensions")
    n_scales = 0 if scales is None else scales.shape[1]
    routing = routing_of(topk_ids, topk_weights, sizes)
    result = result_of(routing, x.dtype, x.shape[1], n_scales, torch.empty)
    return result.x, x.new_empty(0) if result.scales is None else result.scales, result.memory


def _dispatch_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ids, weights, _, *sizes = inputs
    refuse_gradients_of("dispatch", x, ctx.needs_input_grad[0], ctx.needs_input_grad[3])
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(ids, weights, output[2])
    ctx.sizes = sizes


def _dispatch_backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
    return _ops.moe_combine(grad, *ctx.saved_tensors, False, *ctx.sizes), *[None] * 10


_dispatch.register_autograd(_dispatch_backward, setup_context=_dispatch_setup)


# ---- combine


def combine(
    y: torch.Tensor,
    dispatched: Dispatched,
    topk_weights: torch.Tensor | None = None,
    *,
    weighted: bool = True,
    group: Any = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.combine`, with gradients of ``y``, which are dispatched, and of the weights.

    Args:
        y: [R, hidden], contiguous: bfloat16, float16 or float32.
        dispatched: what :func:`dispatch` has returned on this PE.
        topk_weights: [T, top_k] float32, those that were dispatched, if they want a gradient.
        weighted: multiply each row by its weight.
        group: that of the dispatch, which is the default.

    Returns:
        [T, hidden] of ``y``'s dtype; sums are float32.

    Raises:
        TypeError, ValueError, RuntimeError: as of that function, which also has ``buffer``, ``sm_margin`` and
        ``algorithm``.
    """
    if not isinstance(dispatched, Dispatched):
        raise TypeError(f"combine: dispatched must be what dispatch returns, got {type(dispatched).__name__}")
    check_dense("combine", y=y)
    check_bool("combine", "weighted", weighted)
    if not torch.compiler.is_compiling():
        check_ids("combine", dispatched.memory, dispatched.routing.ids)
    routing = dispatched.routing
    weights = routing.weights if topk_weights is None else topk_weights
    if topk_weights is not None:
        n, top_k = routing.weights.shape
        check_weights("combine", topk_weights, (n, top_k), "dispatched", lambda: routing.weights)
    made_in = routing.group or groups.resolve(routing.comm)
    sizes = sizes_of(routing, groups.resolve_again("combine", group, made_in)[1])
    result: torch.Tensor = _ops.moe_combine(y, routing.ids, weights, dispatched.memory, weighted, *sizes)
    return result


@operator(
    "moe_combine",
    schema=f"(Tensor y, Tensor topk_ids, Tensor topk_weights, Tensor memory, bool weighted, {SIZES}) -> Tensor",
)
def _combine(
    y: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    memory: torch.Tensor,
    weighted: bool,
    *sizes: Any,
) -> torch.Tensor:
    y = y.contiguous()
    if y.dim() != 2 or y.shape[0] != sizes[3]:
        raise ValueError(f"combine: y must have a row for each of the {sizes[3]} dispatched, got {tuple(y.shape)}")
    comm = groups.communicator("combine", *sizes[-2:])
    routing = routing_of(topk_ids.contiguous(), topk_weights, sizes)._replace(members=comm.members, comm=comm)
    return combine_rows(y, Dispatched(y, None, memory.contiguous(), routing), weighted=weighted)


@_combine.register_fake
def _combine_fake(y: torch.Tensor, topk_ids: torch.Tensor, *rest: Any) -> torch.Tensor:
    groups.check("combine", *rest[-2:])
    return y.new_empty(topk_ids.shape[0], y.shape[1])


def _combine_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    y, *routed, weighted = inputs[:5]
    ctx.save_for_backward(y if ctx.needs_input_grad[2] else None, *routed)
    ctx.weighted, ctx.sizes, ctx.dtype = weighted, inputs[5:], y.dtype


def _combine_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    y, ids, topk_weights, memory = ctx.saved_tensors
    received = Dispatched(grad, None, memory, routing_of(ids, topk_weights, ctx.sizes))
    # The same routing gives each row the same place.
    rows = _ops.moe_dispatch(grad.to(ctx.dtype), ids, topk_weights, None, *ctx.sizes)[0]
    grad_y = grad_weights = None
    if ctx.needs_input_grad[0]:
        grad_y = rows
        if ctx.weighted:
            grad_y = (rows.float() * weights_of_rows(received, topk_weights, ctx.sizes)[:, None]).to(ctx.dtype)
    if ctx.needs_input_grad[2] and ctx.weighted:
        summed = _ops.moe_combine(by_choice(rows, y, received), ids, topk_weights, memory, False, *ctx.sizes)
        grad_weights = summed[:, : ids.shape[1]]
    return grad_y, None, grad_weights, *[None] * 9


def weights_of_rows(received: Dispatched, topk_weights: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """[R] float32, the weight of each row. Where second derivatives are recorded it has the tokens' weights as its
    source, which are dispatched for that, the same on all PEs."""
    if not (torch.is_grad_enabled() and topk_weights.requires_grad):
        return received.weights
    padded = torch.nn.functional.pad(topk_weights, (0, -topk_weights.shape[1] % 4))  # a row has at least 16 bytes
    rows = _ops.moe_dispatch(padded, received.routing.ids, topk_weights.detach(), None, *sizes)[0]
    found: torch.Tensor = rows.gather(1, received.choices[:, None].long()).squeeze(1)
    return found


def by_choice(rows: torch.Tensor, y: torch.Tensor, received: Dispatched) -> torch.Tensor:
    """What each row's weight multiplies, in a row of one number for each choice, all but the row's own zero: combined,
    they are the gradient of the weights. A row has at least 16 bytes.

    Args:
        rows: the gradient of the result, dispatched. y: what was combined.
    """
    of_row = (rows.float() * y.float()).sum(dim=-1, keepdim=True)
    width = -(-received.routing.top_k // 4) * 4
    return of_row.new_zeros(len(of_row), width).scatter_(1, received.choices[:, None].long(), of_row)


_combine.register_autograd(_combine_backward, setup_context=_combine_setup)


# ---- grouped GEMM


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    *,
    a_scales: torch.Tensor | None = None,
    b_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.grouped_gemm`, with gradients of ``a`` [R, K] and ``b`` [L, K, N]. fp8 has none.

    Arguments, the result [R, N] and errors are those of that function, which also has ``out``, ``swiglu`` and
    ``expected_rows``. Rows of no expert are 0.
    """
    check_dense("grouped_gemm", a=a, b=b, offsets=offsets, counts=counts)
    result: torch.Tensor = _ops.moe_grouped_gemm(a, b, offsets, counts, a_scales, b_scales, out_dtype)
    return result


@operator(
    "moe_grouped_gemm",
    schema="(Tensor a, Tensor b, Tensor offsets, Tensor counts, Tensor? a_scales=None, Tensor? b_scales=None,"
    " ScalarType? out_dtype=None) -> Tensor",
)
def _grouped_gemm(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor, *options: Any
) -> torch.Tensor:
    given = _gemm_options(*options)
    if a.dim() == 2 and a.stride(1) != 1:
        a = contiguous(a)
    out = torch.zeros_like(_grouped_gemm_fake(a, b, offsets, counts, *options))
    return multiply(a, b, offsets, counts, out=out, **given)


def _gemm_options(a_scales: Any = None, b_scales: Any = None, out_dtype: Any = None) -> dict[str, Any]:
    """The last arguments. (Dispatching drops those that are defaults.)"""
    return {"a_scales": a_scales, "b_scales": b_scales, "out_dtype": out_dtype}


@_grouped_gemm.register_fake
def _grouped_gemm_fake(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor, *options: Any
) -> torch.Tensor:
    if a.dim() != 2 or b.dim() != 3:
        raise ValueError(f"grouped_gemm: a must be [R, K] and b [L, K, N], got {tuple(a.shape)} and {tuple(b.shape)}")
    dtype = _gemm_options(*options)["out_dtype"] or (torch.bfloat16 if a.dtype in FP8 else a.dtype)
    return a.new_empty(a.shape[0], b.shape[2], dtype=dtype)


def _grouped_gemm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, offsets, counts, *_ = inputs
    if a.dtype in FP8:
        raise ValueError(f"grouped_gemm: operands of {a.dtype} have no gradient here: pass detached tensors")
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b, offsets, counts)


def _grouped_gemm_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b, offsets, counts = ctx.saved_tensors
    grad_a = _ops.moe_grouped_gemm(grad, b.transpose(1, 2), offsets, counts) if ctx.needs_input_grad[0] else None
    grad_b = _ops.moe_grouped_weight_grad(a, grad, offsets, counts) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b, *[None] * 5


_grouped_gemm.register_autograd(_grouped_gemm_backward, setup_context=_grouped_gemm_setup)


@operator(
    "moe_grouped_weight_grad",
    schema="(Tensor a, Tensor grad, Tensor offsets, Tensor counts) -> Tensor",
)
def _grouped_weight_grad(
    a: torch.Tensor, grad: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    return grouped_weight_grad(a.contiguous(), grad.contiguous(), offsets, counts)


@_grouped_weight_grad.register_fake
def _grouped_weight_grad_fake(
    a: torch.Tensor, grad: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    return a.new_empty(counts.shape[0], a.shape[1], grad.shape[1])


def _grouped_weight_grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _grouped_weight_grad_backward(ctx: Any, of_b: torch.Tensor) -> tuple[Any, ...]:
    a, grad, offsets, counts = ctx.saved_tensors
    return *gradients_of_operands(a, grad, offsets, counts, of_b, ctx.needs_input_grad[:2]), None, None


def gradients_of_operands(
    a: torch.Tensor,
    grad: torch.Tensor,
    offsets: torch.Tensor,
    counts: torch.Tensor,
    of_b: torch.Tensor,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of ``a`` and ``grad``, of which aᵀ · grad is made, those that are ``wanted``."""
    of_b = of_b.contiguous()  # elements of an expanded one share memory
    of_a = _ops.moe_grouped_gemm(grad, of_b.transpose(1, 2), offsets, counts) if wanted[0] else None
    return of_a, _ops.moe_grouped_gemm(a, of_b, offsets, counts) if wanted[1] else None


_grouped_weight_grad.register_autograd(_grouped_weight_grad_backward, setup_context=_grouped_weight_grad_setup)
