"""``dispatch_tokens`` and ``combine_tokens`` for models in PyTorch, with gradients, and traced by torch.compile.

Each calls an operator of ``torch.ops.triton_dist``. The backward of one is the other, and *collective*: on every PE the
same tensors require gradients. Rows that no token fills are zeros here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from triton_dist.kernels.arguments import check_dense
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.moe.arguments import Routing, check_sizes
from triton_dist.kernels.moe.functional_arguments import check_dispatched, refuse_gradients_of
from triton_dist.kernels.moe.results import Dispatched, check_ids, parts_of, remember_ids
from triton_dist.kernels.moe.token_batches import tables_of
from triton_dist.kernels.moe.tokens import DispatchedTokens, plan_of, run, run_combine, to_ranks
from triton_dist.kernels.protocols.members import Members

__all__ = ["combine_tokens", "dispatch_tokens"]

_ops: Any = torch.ops.triton_dist

_SIZES = "int num_experts, int max_tokens, int capacity, int num_sms, bool by_tma, int group_size, str group_name"
"""Of operators. ``by_tma``: what moves the rows of the dispatch, on which the layout of its memory depends."""


def dispatch_tokens(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    capacity: int | None = None,
    num_sms: int = 0,
    group: Any = None,
) -> DispatchedTokens:
    """:func:`triton_dist.kernels.moe.dispatch_tokens`, with gradients of ``x`` and of ``topk_weights``, which are a
    :func:`combine_tokens` each. fp8 has none. Arguments, the result and errors are those of that function."""
    check_sizes("dispatch_tokens", num_experts, max_tokens, 1, capacity, num_sms)
    check_dispatched("dispatch_tokens", x, topk_ids, topk_weights, scales)
    size, name = groups.resolve(group)
    if topk_weights is None:
        topk_weights = torch.ones(topk_ids.shape, dtype=torch.float32, device=topk_ids.device)
    capacity = size * max_tokens if capacity is None else capacity
    sizes = (
        num_experts,
        max_tokens,
        capacity,
        num_sms,
        _by_tma(x, topk_ids, max_tokens, num_sms, size, name),
        size,
        name,
    )
    rows, of_rows, ids, weights, memory = _ops.moe_dispatch_tokens(x, topk_ids, topk_weights, scales, *sizes)
    found = _dispatched(topk_ids, memory, sizes)
    if found.of_ranks is not None and not torch.compiler.is_compiling():
        remember_ids(memory, topk_ids)
    return found._replace(x=rows, scales=None if scales is None else of_rows, topk_ids=ids, topk_weights=weights)


def combine_tokens(y: torch.Tensor, dispatched: DispatchedTokens, *, group: Any = None) -> torch.Tensor:
    """:func:`triton_dist.kernels.moe.combine_tokens`, with a gradient of ``y`` [R, hidden], which is dispatched.
    Arguments, the result [T, hidden] and errors are those of that function."""
    if not isinstance(dispatched, DispatchedTokens):
        raise TypeError(
            f"combine_tokens: dispatched must be what dispatch_tokens returns, got {type(dispatched).__name__}"
        )
    check_dense("combine_tokens", y=y)
    routing, by_tma = dispatched.routing, dispatched.of_ranks is None
    if not (by_tma or torch.compiler.is_compiling()):
        check_ids("combine_tokens", dispatched.memory, routing.ids)
    size, name = groups.resolve_again("combine_tokens", group, routing.group or groups.resolve(routing.comm))
    experts = routing.local_experts * size
    sizes = experts, routing.max_tokens, routing.capacity, routing.num_sms, by_tma, size, name
    result: torch.Tensor = _ops.moe_combine_tokens(y, routing.ids, dispatched.memory, *sizes)
    return result


def _by_tma(x: torch.Tensor, ids: torch.Tensor, max_tokens: int, num_sms: int, size: int, name: str) -> bool:
    hosts = groups.hosts_of(size, name)
    return plan_of(size, hosts, x, ids.shape[-1], max_tokens, num_sms) is not None


def _routing_of(ids: torch.Tensor, sizes: Sequence[Any], comm: Communicator | None = None) -> Routing:
    num_experts, max_tokens, capacity, num_sms, _, size, name = sizes
    members = Members(0, 1, size) if comm is None else comm.members
    local, hosts = num_experts // max(size, 1), groups.hosts_of(size, name)
    weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
    return Routing(
        ids, weights, members, local, max_tokens, 1, capacity, comm=comm, num_sms=num_sms, hosts=hosts,
        group=(size, name),
    )  # fmt: skip


def _dispatched(
    ids: torch.Tensor, memory: torch.Tensor, sizes: Sequence[Any], comm: Communicator | None = None
) -> DispatchedTokens:
    """What a dispatch has returned, but for its rows and what came with them."""
    routing = _routing_of(ids, sizes, comm)
    of_ranks = None if sizes[4] else Dispatched(memory, None, memory, to_ranks(routing))
    return DispatchedTokens(memory, None, None, None, memory, routing, of_ranks)


@operator(
    "moe_dispatch_tokens",
    schema=f"(Tensor x, Tensor topk_ids, Tensor? topk_weights, Tensor? scales, {_SIZES})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _dispatch(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor | None, scales: torch.Tensor | None, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    """Without weights ids do not go with the tokens, either."""
    num_experts, max_tokens, capacity, num_sms, by_tma, *group = sizes
    weights, of_rows = (None if tensor is None else tensor.contiguous() for tensor in (topk_weights, scales))
    how = num_experts, max_tokens, capacity, 0, num_sms, "auto", topk_weights is not None
    with calling("dispatch_tokens", groups.communicator("dispatch_tokens", *group), between_hosts=True) as comm:
        found = run(
            comm, "dispatch_tokens", x.contiguous(), topk_ids.contiguous(), weights, of_rows, *how, new=torch.zeros
        )  # fmt: skip
    assert (found.of_ranks is None) == by_tma
    others = (x.new_empty(0) if tensor is None else tensor for tensor in found[1:4])
    return found.x, *others, found.memory


@_dispatch.register_fake
def _dispatch_fake(
    x: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor | None, scales: torch.Tensor | None, *sizes: Any
) -> tuple[torch.Tensor, ...]:
    groups.check("dispatch_tokens", *sizes[-2:])
    if x.dim() != 2 or topk_ids.dim() != 2 or (scales is not None and scales.dim() != 2):
        raise ValueError("dispatch_tokens: x, topk_ids and scales must have two dimensions")
    capacity, by_tma, routing = sizes[2], sizes[4], _routing_of(topk_ids, sizes)
    words = tables_of(routing).words if by_tma else parts_of(to_ranks(routing))[-1]
    given = scales, None if topk_weights is None else topk_ids, topk_weights
    others = (x.new_empty(0) if tensor is None else tensor.new_empty(capacity, tensor.shape[1]) for tensor in given)
    return x.new_empty(capacity, x.shape[1]), *others, topk_ids.new_empty(words, dtype=torch.int32)


def _dispatch_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ids, _, _, *sizes = inputs
    refuse_gradients_of("dispatch_tokens", x, ctx.needs_input_grad[0], ctx.needs_input_grad[3])
    ctx.mark_non_differentiable(output[1], output[2], output[4])
    ctx.save_for_backward(ids, output[2], output[4])
    ctx.sizes = sizes


def _dispatch_backward(ctx: Any, of_rows: torch.Tensor, _: Any, __: Any, of_weights: torch.Tensor, *___: Any) -> Any:
    ids, received, memory = ctx.saved_tensors
    of_x = of_topk_weights = None
    if ctx.needs_input_grad[0]:
        of_x = _ops.moe_combine_tokens(of_rows, ids, memory, *ctx.sizes)
    if ctx.needs_input_grad[2]:
        mine = torch.where(received >= 0, of_weights, 0.0)  # each choice is of one PE
        wide = torch.nn.functional.pad(mine, (0, -mine.shape[1] % 4))  # a row has at least 16 bytes
        of_topk_weights = _ops.moe_combine_tokens(wide, ids, memory, *ctx.sizes)[:, : ids.shape[1]]
    return of_x, None, of_topk_weights, *[None] * 8


_dispatch.register_autograd(_dispatch_backward, setup_context=_dispatch_setup)


@operator("moe_combine_tokens", schema=f"(Tensor y, Tensor topk_ids, Tensor memory, {_SIZES}) -> Tensor")
def _combine(y: torch.Tensor, topk_ids: torch.Tensor, memory: torch.Tensor, *sizes: Any) -> torch.Tensor:
    if y.dim() != 2 or y.shape[0] != sizes[2]:
        raise ValueError(
            f"combine_tokens: y must have a row for each of the {sizes[2]} dispatched, got {tuple(y.shape)}"
        )
    with calling("combine_tokens", groups.communicator("combine_tokens", *sizes[-2:]), between_hosts=True) as comm:
        found = _dispatched(topk_ids.contiguous(), memory.contiguous(), sizes, comm)
        return run_combine("combine_tokens", y.contiguous(), found)


@_combine.register_fake
def _combine_fake(y: torch.Tensor, topk_ids: torch.Tensor, memory: torch.Tensor, *sizes: Any) -> torch.Tensor:
    groups.check("combine_tokens", *sizes[-2:])
    return y.new_empty(topk_ids.shape[0], y.shape[1])


def _combine_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    y, ids, _, *sizes = inputs
    ctx.save_for_backward(ids)
    ctx.sizes, ctx.dtype = sizes, y.dtype


def _combine_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (ids,) = ctx.saved_tensors
    num_experts, max_tokens, capacity, num_sms, _, *group = ctx.sizes
    grad = grad.to(ctx.dtype)
    by_tma = _by_tma(grad, ids, max_tokens, num_sms, *group)
    # The same routing gives each row the same place, whatever moves it.
    rows = _ops.moe_dispatch_tokens(grad, ids, None, None, num_experts, max_tokens, capacity, num_sms, by_tma, *group)
    return rows[0], *[None] * 9


_combine.register_autograd(_combine_backward, setup_context=_combine_setup)
