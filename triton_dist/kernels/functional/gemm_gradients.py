"""The gradients of both operands of all_gather_gemm and gemm_reduce_scatter, which are each other's backward.

The gradient of ``a`` is the other GEMM, of the result's gradient and ``b`` transposed. That of ``b`` is a local GEMM of
``a`` and the result's gradient, of which one is gathered:

- all_gather_gemm: A, which the forward gathered, but did not keep. The copy engine gathers it again while the
  gemm_reduce_scatter runs (``gather_during.py``).
- gemm_reduce_scatter: the result's gradient, which the all_gather_gemm has gathered.

The local GEMM reads what was gathered where it has arrived, in memory that the next GEMM overwrites. The bits are those
of an all_gather and a GEMM of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from triton_dist.kernels.collectives.gather_during import is_worthwhile
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.functional import group
from triton_dist.kernels.functional.autocast import multiplied
from triton_dist.kernels.functional.flops import of_operand_twice
from triton_dist.kernels.functional.layout import by_rows_or_columns, empty_along, flat_rows
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.all_gather_gemm import all_gather_gemm, complete_gathered, gather_again, gathering
from triton_dist.kernels.gemm.gemm_reduce_scatter import gemm_reduce_scatter

__all__ = ["weight_grad"]

_ops: Any = torch.ops.triton_dist

_SCHEMA = "(Tensor grad, Tensor a, Tensor b, int dim, int group_size, str group_name) -> (Tensor, Tensor)"


def weight_grad(a: torch.Tensor, grad: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """aᵀ · grad, laid out as ``b`` is."""
    rows, grads = a.flatten(0, -2), grad.flatten(0, -2)
    return multiplied(grads.t(), rows).t() if b.stride(0) == 1 else multiplied(rows.t(), grads)


def _unflat(rows: torch.Tensor, like: torch.Tensor, dim: int, n_pes: int) -> torch.Tensor:
    """A matrix of the rows of all PEs, ``dim`` running slowest, in the shape of ``like``, one of ``n_pes`` equal parts
    of that dimension."""
    others = [size for i, size in enumerate(like.shape[:-1]) if i != dim]
    # Not -1, which no view can infer where one of the others is 0.
    return rows.view(n_pes * like.shape[dim], *others, rows.shape[-1]).movedim(0, dim)


def _fake(name: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """What makes new tensors for the gradients of ``a`` and ``b``, laid out as operator ``name`` returns them."""

    def fake(
        grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dim: int, group_size: int, group_name: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        group.check(name, group_size, group_name)
        k, n = b.shape
        of_b = b.new_empty(n, k).t() if b.stride(0) == 1 else b.new_empty(k, n)
        return empty_along(a, dim, a.shape[dim], k), of_b

    return fake


# ---- of all-gather and GEMM


@operator("all_gather_gemm_gradients", schema=_SCHEMA)
def _of_all_gather_gemm(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dim: int, group_size: int, group_name: str
) -> tuple[torch.Tensor, torch.Tensor]:
    where = dim, group_size, group_name
    comm = group.communicator("all_gather_gemm_gradients", group_size, group_name)
    rows = flat_rows(a, dim).contiguous()
    if not is_worthwhile(comm, rows.nbytes):
        grad_a = _ops.gemm_reduce_scatter(grad, b.t(), "sum", *where)
        return grad_a, weight_grad(_ops.all_gather(a, *where), grad, b)
    grad_a = empty_along(a, dim, a.shape[dim])
    into = grad_a.movedim(dim, 0).view(-1, a.shape[-1])
    product = partial(gemm_reduce_scatter, flat_rows(grad, dim), by_rows_or_columns(b.t()), into, group=comm)
    with calling("all_gather_gemm_gradients", comm):
        gathered = gather_again(comm, "all_gather_gemm_gradients", rows, product)
        return grad_a, weight_grad(_unflat(gathered, a, dim, group_size), grad, b)


_of_all_gather_gemm.register_fake(_fake("all_gather_gemm_gradients"))
_of_all_gather_gemm.register_flops(of_operand_twice)


# ---- of GEMM and reduce-scatter


@operator("gemm_reduce_scatter_gradients", schema=_SCHEMA)
def _of_gemm_reduce_scatter(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dim: int, group_size: int, group_name: str
) -> tuple[torch.Tensor, torch.Tensor]:
    comm = group.communicator("gemm_reduce_scatter_gradients", group_size, group_name)
    rows = flat_rows(grad, dim)
    grad_a = empty_along(a, dim, a.shape[dim])
    into = grad_a.movedim(dim, 0).view(-1, a.shape[-1])
    with calling("gemm_reduce_scatter_gradients", comm, between_hosts=True):
        how = gathering(comm, "auto")
        all_gather_gemm(rows, by_rows_or_columns(b.t()), into, algorithm=how, group=comm)
        return grad_a, weight_grad(a, _unflat(complete_gathered(comm, rows), grad, dim, group_size), b)


_of_gemm_reduce_scatter.register_fake(_fake("gemm_reduce_scatter_gradients"))
_of_gemm_reduce_scatter.register_flops(of_operand_twice)


# ---- second derivatives: both gradients are linear in each of grad, a and b


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, a, b, *ctx.where = inputs
    ctx.save_for_backward(grad, a, b)


def _backward_of_all_gather_gemm(ctx: Any, of_a: torch.Tensor, of_b: torch.Tensor) -> tuple[Any, ...]:
    grad, a, b = ctx.saved_tensors
    of_grad = None
    if ctx.needs_input_grad[0]:
        of_grad = _ops.all_gather_gemm(of_a, b, *ctx.where) + _ops.all_gather_gemm(a, of_b, *ctx.where)
    return of_grad, *_ops.all_gather_gemm_gradients(grad, of_a, of_b, *ctx.where), None, None, None


def _backward_of_gemm_reduce_scatter(ctx: Any, of_a: torch.Tensor, of_b: torch.Tensor) -> tuple[Any, ...]:
    grad, a, b = ctx.saved_tensors
    of_grad = None
    if ctx.needs_input_grad[0]:
        summed = (_ops.gemm_reduce_scatter(x, y, "sum", *ctx.where) for x, y in ((of_a, b), (a, of_b)))
        of_grad = next(summed) + next(summed)
    return of_grad, *_ops.gemm_reduce_scatter_gradients(grad, of_a, of_b, *ctx.where), None, None, None


_of_all_gather_gemm.register_autograd(_backward_of_all_gather_gemm, setup_context=_setup)
_of_gemm_reduce_scatter.register_autograd(_backward_of_gemm_reduce_scatter, setup_context=_setup)
