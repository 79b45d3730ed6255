"""The gradients of both operands of all_gather_grouped_gemm and grouped_gemm_reduce_scatter, each other's backward.

The gradient of ``a`` is the other one, of the result's gradient and ``b`` transposed. That of ``b`` is a local GEMM
with gathered rows, which it reads where they have arrived, in memory that the next GEMM overwrites:

- of all_gather_grouped_gemm: tokens, which are gathered again while grouped_gemm_reduce_scatter runs
  (``gather_during.py``);
- of grouped_gemm_reduce_scatter: gradients of tokens, which all_gather_grouped_gemm has gathered.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.collectives.gather_during import is_worthwhile
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.moe.all_gather_grouped_gemm import gather_tokens_during, gathered_tokens
from triton_dist.kernels.moe.gathered_routing import GatheredRouting
from triton_dist.kernels.protocols.members import Members

__all__ = [
    "SIZES",
    "multiplied",
    "of_matrices",
    "routing_of",
    "rows_of_all",
    "scattered",
    "weighted_rows",
    "weights_of_rows",
]

_ops: Any = torch.ops.triton_dist

SIZES = "int num_experts, int max_tokens, int group_size, str group_name"


def routing_of(memory: torch.Tensor, ids: Any, sizes: tuple[Any, ...]) -> GatheredRouting:
    """Of a call for ids of shape ``ids``."""
    num_experts, max_tokens, size, name = sizes
    members = Members(0, 1, size)
    return GatheredRouting(memory, ids[0], ids[1], num_experts, max_tokens, members, group=(size, name))


def scattered(
    grad: torch.Tensor, b: torch.Tensor, ids: tuple[int, int], memory: torch.Tensor, num_sms: int, sizes: Any
) -> torch.Tensor:
    """The gradient of this PE's tokens, whose ids are of shape ``ids``, from that of all rows."""
    ones = torch.ones(ids, dtype=torch.float32, device=grad.device)
    result: torch.Tensor = _ops.moe_grouped_gemm_reduce_scatter(
        grad, b.transpose(1, 2), ones, memory, None, None, False, None, num_sms, *sizes
    )
    return result


def multiplied(
    grad: torch.Tensor, b: torch.Tensor, top_k: int, memory: torch.Tensor, num_sms: int, sizes: Any
) -> torch.Tensor:
    """The gradient of all rows before their weights, from that of this PE's tokens."""
    result: torch.Tensor = _ops.moe_all_gather_grouped_gemm(
        grad, b.transpose(1, 2), memory, None, None, top_k, None, num_sms, *sizes
    )
    return result


def of_matrices(
    rows: torch.Tensor,
    a: torch.Tensor,
    routing: GatheredRouting,
    weighted: bool,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The gradient of ``b``, from that of the tokens of all rows, whose ``weights`` are by default the routing's."""
    rows = weighted_rows(rows, routing, weights) if weighted else rows
    result: torch.Tensor = _ops.moe_grouped_weight_grad(a, rows, routing.offsets, routing.counts)
    return result


def _padded(x: torch.Tensor, routing: GatheredRouting) -> torch.Tensor:
    """This PE's tokens, as many as a PE may have."""
    return torch.nn.functional.pad(x, (0, 0, 0, routing.max_tokens - x.shape[0]))


def _rows_of(gathered: torch.Tensor, routing: GatheredRouting) -> torch.Tensor:
    """The rows of all PEs' tokens, [R, hidden]; those behind the last are any tokens'."""
    return gathered.index_select(0, routing.tokens.clamp(0, len(gathered) - 1))


def rows_of_all(x: torch.Tensor, routing: GatheredRouting, sizes: Any) -> torch.Tensor:
    return _rows_of(_ops.all_gather(_padded(x, routing), 0, *sizes[-2:]), routing)


def weighted_rows(rows: torch.Tensor, routing: GatheredRouting, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Rows times their weights; rows behind the last are zeros.

    Args:
        weights: those of rows, by default what the routing has.
    """
    weights = routing.weights if weights is None else weights
    used = torch.arange(len(rows), device=rows.device) < routing.offsets[-1]
    return torch.where(used[:, None], rows.float() * weights[:, None], 0.0).to(rows.dtype)


def weights_of_rows(topk_weights: torch.Tensor, routing: GatheredRouting, sizes: Any) -> torch.Tensor:
    """[R] float32, the weights of rows, with a gradient of all PEs' weights; of rows behind the last 0."""
    gathered = _ops.all_gather(_padded(topk_weights, routing), 0, *sizes[-2:])
    places = torch.where(routing.positions >= 0, routing.positions, routing.rows).flatten().long()
    found: torch.Tensor = gathered.new_zeros(routing.rows + 1).scatter(0, places, gathered.flatten())
    return found[:-1]


# ---- of all-gather and grouped GEMM


@operator(
    "moe_all_gather_grouped_gemm_gradients",
    schema=f"(Tensor grad, Tensor a, Tensor b, Tensor memory, int top_k, int num_sms, {SIZES}) -> (Tensor, Tensor)",
)
def _gathering_gradients(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, top_k: int, num_sms: int, *sizes: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    function, ids = "all_gather_grouped_gemm_gradients", (a.shape[0], top_k)
    comm = groups.communicator(function, *sizes[-2:])
    routing = routing_of(memory, ids, sizes)
    padded = _padded(a, routing).contiguous()
    made: list[torch.Tensor] = []

    def scatter() -> None:
        made.append(scattered(grad, b, ids, memory, num_sms, sizes))

    with calling(function, comm):
        if is_worthwhile(comm, padded.nbytes):
            rows = _rows_of(gather_tokens_during(comm, function, padded, scatter), routing)
        else:
            scatter()
            rows = rows_of_all(a, routing, sizes)
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


# ---- of grouped GEMM and reduce-scatter


@operator(
    "moe_grouped_gemm_reduce_scatter_gradients",
    schema="(Tensor grad, Tensor a, Tensor b, Tensor memory, int top_k, bool weighted, int num_sms,"
    f" {SIZES}) -> (Tensor, Tensor)",
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
    routing = routing_of(memory, (grad.shape[0], top_k), sizes)
    with calling(function, comm):
        rows = multiplied(grad, b, top_k, memory, num_sms, sizes)
        gathered = gathered_tokens(comm, routing.max_tokens, grad)
        return rows, of_matrices(_rows_of(gathered, routing), a, routing, weighted)


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
    of_a = weighted_rows(of_a, routing_of(memory, ids, tuple(ctx.sizes))) if ctx.weighted else of_a
    return of_grad, of_a, of_matrices, *[None] * 8


_scattering_gradients.register_autograd(_scattering_gradients_backward, setup_context=_scattering_gradients_setup)
