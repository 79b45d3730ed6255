"""Collectives as operators of PyTorch: they return new tensors, are differentiable, and are traced by torch.compile.

Gradients are those of the sum of all PEs' losses, as of PyTorch's functional collectives: the backward of all_gather is
reduce_scatter and the other way round, all_reduce's is all_reduce, all_to_all's is all_to_all.

Results lie in ordinary memory. Where peers store to a result, that is symmetric workspace, which is copied; small ones
go through slots (the LL protocol) and need no copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from triton_dist.kernels.arguments import check_op, in_words
from triton_dist.kernels.collectives import all_gather as gathering
from triton_dist.kernels.collectives import all_reduce as reducing
from triton_dist.kernels.collectives import all_to_all as exchanging
from triton_dist.kernels.collectives import reduce_scatter as scattering
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.functional import group
from triton_dist.kernels.functional.layout import (
    along,
    check_dim,
    check_own_share,
    check_rows_of_all,
    check_share,
    empty_along,
    rows_first,
    workspace,
)
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.functional.replicated import sum_gradients
from triton_dist.kernels.protocols.ll import fits

__all__: list[str] = []

_ops: Any = torch.ops.triton_dist


_BY_SLOTS = ("auto", "low_latency", "one_shot", "two_shot")


def _into(
    comm: Communicator,
    name: str,
    algorithm: str,
    part_bytes: int,
    out: torch.Tensor,
    run: Callable[[torch.Tensor], object],
) -> None:
    """Have ``run`` store to ``out``, or to workspace first if peers store to it: its parts are too large for slots."""
    # Half of what fits: elements of less than 4 bytes may take a word each.
    by_slots = algorithm in _BY_SLOTS and fits(2 * -(-part_bytes // 4) + 16, comm.n_pes)
    if by_slots or algorithm == "two_level" or comm.grid.hosts > 1:
        run(out)
    else:
        staged = workspace(comm, name, out.shape, out.dtype)
        run(staged)
        out.copy_(staged)


def _need_gradient(name: str, reduce_op: str) -> None:
    if reduce_op not in ("sum", "avg"):
        raise RuntimeError(f"{name}: {reduce_op} has no gradient; call it with a tensor that requires none (detach())")


# ---- all-gather


@operator(
    "all_gather",
    schema="(Tensor input, int gather_dim, int group_size, str group_name, str algorithm='auto', SymInt? rows=None,"
    " Tensor? after=None) -> Tensor",
)
def _all_gather(
    input: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    algorithm: str = "auto",
    rows: int | None = None,
    after: torch.Tensor | None = None,
) -> torch.Tensor:
    """With ``rows``, the size of the result's dimension ``gather_dim``, PEs have shards of it that may differ.

    A compiled graph makes the call behind what computes ``after``. Which operations of a backward it moves to the
    forward depends on the sizes that this PE has, and all PEs must call in one order.
    """
    out: torch.Tensor = _all_gather_fake(input, gather_dim, group_size, group_name, algorithm, rows)
    comm = group.checked("all_gather", group_name)
    source = rows_first(input, gather_dim)
    into = out.movedim(gather_dim, 0)
    if rows is not None:
        what = f"dimension {gather_dim} of the result"
        each = check_own_share(comm, "all_gather", what, rows, input.shape[gather_dim])
    if rows is not None and rows % group_size:
        if out.numel():
            staged = workspace(comm, "all_gather", into.shape, into.dtype)
            part = each * (out.numel() // rows)
            with along(comm, "gather_dim", gather_dim):
                gathering.all_gather_parts(staged, source, part, algorithm=algorithm, group=comm)
            into.copy_(staged)
        return out

    def run(to: torch.Tensor) -> None:
        with along(comm, "gather_dim", gather_dim):
            gathering.all_gather(to, source, algorithm=algorithm, group=comm)

    _into(comm, "all_gather", algorithm, source.numel() * source.element_size(), into, run)
    return out


@_all_gather.register_fake
def _all_gather_fake(
    input: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    algorithm: str = "auto",
    rows: int | None = None,
    after: torch.Tensor | None = None,
) -> torch.Tensor:
    group.check("all_gather", group_size, group_name)
    check_dim("all_gather", "gather_dim", gather_dim, input.dim())
    check_rows_of_all("all_gather", rows)
    return empty_along(input, gather_dim, group_size * input.shape[gather_dim] if rows is None else rows)


def _all_gather_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return _ops.reduce_scatter(grad, "sum", *ctx.where, rows=ctx.own), None, None, None, None, None, None


def _keep_where(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.where = inputs[1:4]
    ctx.own = None if inputs[5] is None else inputs[0].shape[inputs[1]]


_all_gather.register_autograd(_all_gather_backward, setup_context=_keep_where)


# ---- reduce-scatter


@operator(
    "reduce_scatter",
    schema="(Tensor input, str reduce_op, int scatter_dim, int group_size, str group_name, str algorithm='auto',"
    " SymInt? rows=None) -> Tensor",
)
def _reduce_scatter(
    input: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_size: int,
    group_name: str,
    algorithm: str = "auto",
    rows: int | None = None,
) -> torch.Tensor:
    """With ``rows``, the size of this PE's dimension ``scatter_dim``, PEs get shards that may differ."""
    out: torch.Tensor = _reduce_scatter_fake(input, reduce_op, scatter_dim, group_size, group_name, algorithm, rows)
    comm = group.checked("reduce_scatter", group_name)
    size = input.shape[scatter_dim]
    if rows is not None:
        each = check_own_share(comm, "reduce_scatter", f"dimension {scatter_dim} of input", size, rows)
    if rows is not None and size % group_size:
        if input.numel():
            part, source = each * (input.numel() // size), rows_first(input, scatter_dim)
            with along(comm, "scatter_dim", scatter_dim):
                scattering.reduce_scatter_parts(
                    out.movedim(scatter_dim, 0), source, part, reduce_op, algorithm=algorithm, group=comm
                )
        return out
    with along(comm, "scatter_dim", scatter_dim):
        scattering.reduce_scatter(
            out.movedim(scatter_dim, 0), rows_first(input, scatter_dim), reduce_op, algorithm=algorithm, group=comm
        )
    return out


@_reduce_scatter.register_fake
def _reduce_scatter_fake(
    input: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_size: int,
    group_name: str,
    algorithm: str = "auto",
    rows: int | None = None,
) -> torch.Tensor:
    group.check("reduce_scatter", group_size, group_name)
    check_op("reduce_scatter", reduce_op, input.dtype)
    check_dim("reduce_scatter", "scatter_dim", scatter_dim, input.dim())
    if rows is None:
        check_share("reduce_scatter", f"dimension {scatter_dim} of input", input.shape[scatter_dim], group_size)
        rows = input.shape[scatter_dim] // group_size
    return empty_along(input, scatter_dim, rows)


def _reduce_scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.reduce_op, ctx.where = inputs[1], inputs[2:5]
    ctx.all = None if inputs[6] is None else inputs[0].shape[inputs[2]]


def _reduce_scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    _need_gradient("reduce_scatter", ctx.reduce_op)
    if ctx.reduce_op == "avg":
        grad = grad / ctx.where[1]
    return _ops.all_gather(grad, *ctx.where, rows=ctx.all), None, None, None, None, None, None


_reduce_scatter.register_autograd(_reduce_scatter_backward, setup_context=_reduce_scatter_setup)


# ---- all-reduce


@operator(
    "all_reduce",
    schema="(Tensor input, str reduce_op, int group_size, str group_name, bool reduce_grad=True,"
    " str algorithm='auto') -> Tensor",
)
def _all_reduce(
    input: torch.Tensor,
    reduce_op: str,
    group_size: int,
    group_name: str,
    reduce_grad: bool = True,
    algorithm: str = "auto",
) -> torch.Tensor:
    out: torch.Tensor = _all_reduce_fake(input, reduce_op, group_size, group_name, reduce_grad, algorithm)
    comm = group.checked("all_reduce", group_name)
    source = in_words(input.contiguous())

    def run(to: torch.Tensor) -> None:
        reducing.all_reduce(source, reduce_op, out=to, algorithm=algorithm, group=comm)

    _into(comm, "all_reduce", algorithm, source.numel() * source.element_size(), out, run)
    return out


@_all_reduce.register_fake
def _all_reduce_fake(
    input: torch.Tensor,
    reduce_op: str,
    group_size: int,
    group_name: str,
    reduce_grad: bool = True,
    algorithm: str = "auto",
) -> torch.Tensor:
    group.check("all_reduce", group_size, group_name)
    check_op("all_reduce", reduce_op, input.dtype)
    return input.new_empty(input.shape)


def _all_reduce_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.reduce_op, ctx.where, ctx.reduce_grad = inputs[1], inputs[2:4], inputs[4]


def _all_reduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    _need_gradient("all_reduce", ctx.reduce_op)
    if ctx.reduce_grad:
        grad = _ops.all_reduce(grad, ctx.reduce_op, *ctx.where)
    else:  # all PEs have it alike
        grad = sum_gradients(grad, *ctx.where)
        if ctx.reduce_op == "avg":
            grad = grad / ctx.where[0]
    return grad, None, None, None, None, None


_all_reduce.register_autograd(_all_reduce_backward, setup_context=_all_reduce_setup)


# ---- all-to-all


@operator(
    "all_to_all",
    schema="(Tensor input, int group_size, str group_name, str algorithm='auto') -> Tensor",
)
def _all_to_all(input: torch.Tensor, group_size: int, group_name: str, algorithm: str = "auto") -> torch.Tensor:
    out: torch.Tensor = _all_to_all_fake(input, group_size, group_name, algorithm)
    comm = group.checked("all_to_all", group_name)
    source = in_words(input.contiguous())

    def run(to: torch.Tensor) -> None:
        exchanging.all_to_all(to, source, algorithm=algorithm, group=comm)

    _into(comm, "all_to_all", algorithm, source.numel() * source.element_size() // group_size, out, run)
    return out


@_all_to_all.register_fake
def _all_to_all_fake(input: torch.Tensor, group_size: int, group_name: str, algorithm: str = "auto") -> torch.Tensor:
    group.check("all_to_all", group_size, group_name)
    check_dim("all_to_all", "the dimension that is split", 0, input.dim())
    check_share("all_to_all", "dimension 0 of input", input.shape[0], group_size)
    return input.new_empty(input.shape)


def _all_to_all_setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.where = inputs[1:3]


def _all_to_all_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return _ops.all_to_all(grad, *ctx.where), None, None, None


_all_to_all.register_autograd(_all_to_all_backward, setup_context=_all_to_all_setup)
