"""GEMMs with communication as operators of PyTorch: they return new tensors, are differentiable and can be traced.

all_gather_gemm and gemm_reduce_scatter are each other's backward, with the same overlap (``gemm_gradients.py``). Their
activations take as much memory as this PE's rows and columns; the forward of all_gather_gemm may return and keep all of
A instead (``all_gather_gemm_gathered``).

Operands ``a`` may have more than two dimensions; all but the last are rows. Gradients are those of the sum of all PEs'
losses. With ``reduce_grad=False`` the gradient of a replicated result is taken to be the same on all PEs, as of a
replicated DTensor, and is not summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from triton_dist.kernels.functional import flops, group
from triton_dist.kernels.functional.autocast import multiplied
from triton_dist.kernels.functional.gemm_gradients import weight_grad
from triton_dist.kernels.functional.layout import (
    along,
    by_rows_or_columns,
    check_dim,
    check_operand_shapes,
    check_own_share,
    check_rows_of_all,
    check_share,
    empty_along,
    flat_rows,
    workspace,
)
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.functional.replicated import sum_gradients
from triton_dist.kernels.gemm.all_gather_gemm import all_gather_gemm, copy_gathered, gathering
from triton_dist.kernels.gemm.arguments import check_activation
from triton_dist.kernels.gemm.epilogue import fold_of
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gemm.gemm_all_reduce import gemm_all_reduce, stores_here
from triton_dist.kernels.gemm.gemm_all_scatter import gemm_all_scatter
from triton_dist.kernels.gemm.gemm_reduce_scatter import gemm_reduce_scatter
from triton_dist.kernels.shards import each_of

__all__: list[str] = []

_ops: Any = torch.ops.triton_dist

_GROUP = "int group_size, str group_name"
_OPTIONS = (
    "str algorithm='auto', Tensor? scale_a=None, Tensor? scale_b=None, ScalarType? out_dtype=None, int sm_margin=0,"
    " str? activation=None, Tensor? bias=None"
)
_RESIDUAL = ", Tensor? residual=None"
_ROWS = ", SymInt? rows=None"
"""Of the dimension that PEs share, if they cannot share it equally: of all PEs, where operands are shards; this PE's,
where the result is one. So a graph that holds the shape of one PE's result is never taken for another's."""
_TAIL, _TAIL_OF_SUM = f"{_GROUP}, {_OPTIONS}", f"{_GROUP}, bool reduce_grad=True, {_OPTIONS}{_RESIDUAL}"


# ---- what all have in common


def _check(function: str, a: torch.Tensor, b: torch.Tensor, where: tuple[int, str]) -> None:
    """Of what the kernels check once more, as much as a result's shape and dtype depend on: tracing sees only this."""
    group.check(function, *where)
    check_operand_shapes(function, a, b)
    if a.dtype != b.dtype and not (a.dtype in FP8 and b.dtype in FP8):
        raise ValueError(f"{function}: a is of {a.dtype}, and b of {b.dtype}")


_NAMES = ("algorithm", "scale_a", "scale_b", "out_dtype", "sm_margin", "activation", "bias", "residual")


def _options(*options: Any) -> dict[str, Any]:
    """The last arguments of all operators, as the kernels take them. (Dispatching drops those that are defaults.)"""
    return dict(zip(_NAMES, options, strict=False))


def _and_rows(options: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], int | None]:
    """The first ``count`` options, and the rows, which follow them."""
    return options[:count], options[count] if len(options) > count else None


def _shard(each: int, like: torch.Tensor, dim: int) -> int:
    """The rows of a matrix that ``each`` of dimension ``dim`` are."""
    return each * prod(size for i, size in enumerate(like.shape[:-1]) if i != dim)


def _shards(a: torch.Tensor, dim: int, rows: int | None, group_size: int) -> dict[str, Any]:
    """What kernels are told of ``a``, a shard of so many rows along ``dim``."""
    if rows is None:
        return {}
    return {"rows": _shard(rows, a, dim), "shard": _shard(each_of(rows, group_size), a, dim)}


def _options_of_rows(options: Sequence[Any], dim: int = 0) -> dict[str, Any]:
    """The same for rows of a tensor, ``dim`` running slowest: ``scale_a`` may have the dimensions of ``a``."""
    named = _options(*options)
    if (scale := named.get("scale_a")) is not None and scale.dim() > 2:
        named["scale_a"] = flat_rows(scale, dim).contiguous()
    return named


def _dtype(a: torch.Tensor, *options: Any) -> torch.dtype:
    out_dtype: torch.dtype | None = _options(*options).get("out_dtype")
    return out_dtype or (torch.bfloat16 if a.dtype in FP8 else a.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], a: torch.Tensor, b: torch.Tensor) -> None:
    """Keep what gradients need, and no more."""
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b)
    ctx.dtypes = [getattr(tensor, "dtype", None) for tensor in inputs]


def _wants(ctx: Any, place: int) -> bool:
    """Whether input ``place``, which is missing if it is the default, requires a gradient."""
    return place < len(ctx.needs_input_grad) and bool(ctx.needs_input_grad[place])


def _bias_grad(ctx: Any, grad: torch.Tensor, place: int) -> torch.Tensor | None:
    """The gradient of the bias, which is input ``place``: the sum of the rows of ``grad``."""
    return grad.flatten(0, -2).sum(0, dtype=ctx.dtypes[place]) if _wants(ctx, place) else None


def _residual_grad(ctx: Any, grad: torch.Tensor, place: int) -> torch.Tensor | None:
    """The gradient of the residual, which is input ``place``."""
    return grad.to(ctx.dtypes[place]) if _wants(ctx, place) else None


def _flat_residual(function: str, out: torch.Tensor, options: dict[str, Any], dim: int = 0) -> dict[str, Any]:
    """The options with the residual, of the shape of ``out``, as the matrix that is added to the rows of ``out``."""
    residual = options.get("residual")
    if residual is None:
        return options
    if residual.shape != out.shape:
        raise ValueError(
            f"{function}: residual must be of the result's shape {tuple(out.shape)}, got {tuple(residual.shape)}"
        )
    return options | {"residual": flat_rows(residual, dim).contiguous()}


def _refuse_gradients(function: str, a: torch.Tensor, options: Sequence[Any] = ()) -> None:
    """Error for what has no gradient: fp8 operands, and an activation, whose argument is not kept."""
    if a.dtype in FP8:
        raise ValueError(f"{function}: operands of {a.dtype} have no gradient here: pass detached tensors")
    if activation := _options(*options).get("activation"):
        raise ValueError(
            f"{function}: activation {activation} has no gradient here, and a tensor requires one: apply it to the"
            " result, or call under torch.no_grad()"
        )


def _columns(function: str, b: torch.Tensor, options: Sequence[Any], *, reduces: bool = False) -> int:
    """Columns of a result. ``b`` must have elements, as for the kernels: a view without columns infers no rows."""
    if b.shape[0] == 0 or b.shape[1] == 0:
        raise ValueError(f"{function}: b has no elements: its shape is {tuple(b.shape)}")
    activation = _options(*options).get("activation")
    check_activation(function, activation, b.shape[1], reduces=reduces)
    return b.shape[1] // int(fold_of(activation))


# ---- all-gather and GEMM


@operator(
    "all_gather_gemm",
    schema=f"(Tensor a, Tensor b, int gather_dim, {_TAIL}{_ROWS}) -> Tensor",
)
def _all_gather_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    out: torch.Tensor = _all_gather_gemm_fake(a, b, gather_dim, group_size, group_name, *options)
    comm = group.checked("all_gather_gemm", group_name)
    options, rows = _and_rows(options, 7)
    with along(comm, "gather_dim", gather_dim):
        all_gather_gemm(
            flat_rows(a, gather_dim),
            by_rows_or_columns(b),
            out.movedim(gather_dim, 0).view(-1, out.shape[-1]),
            group=comm,
            **_shards(a, gather_dim, rows, group_size),
            **_options_of_rows(options, gather_dim),
        )
    return out


_all_gather_gemm.register_flops(flops.of_result)


@_all_gather_gemm.register_fake
def _all_gather_gemm_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    _check("all_gather_gemm", a, b, (group_size, group_name))
    check_dim("all_gather_gemm", "gather_dim", gather_dim, a.dim() - 1)
    options, rows = _and_rows(options, 7)
    check_rows_of_all("all_gather_gemm", rows)
    first = group_size * a.shape[gather_dim] if rows is None else rows
    columns = _columns("all_gather_gemm", b, options)
    return empty_along(a, gather_dim, first, columns, _dtype(a, *options))


def _all_gather_gemm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, dim, size, name, *options = inputs
    _refuse_gradients("all_gather_gemm", a, options[:7])
    _save(ctx, inputs, a, b)
    ctx.where, ctx.rows = (dim, size, name), options[7]
    ctx.own = None if ctx.rows is None else a.shape[dim]


def _all_gather_gemm_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    grad_a = grad_b = None
    if all(ctx.needs_input_grad[:2]) and ctx.rows is None:
        grad_a, grad_b = _ops.all_gather_gemm_gradients(grad, a, b, *ctx.where)
        return grad_a, grad_b, *[None] * 9, _bias_grad(ctx, grad, 11), None
    if ctx.needs_input_grad[0]:
        grad_a = _ops.gemm_reduce_scatter(grad, b.t(), "sum", *ctx.where, rows=ctx.own)
    if ctx.needs_input_grad[1]:
        after = None if ctx.rows is None else grad
        grad_b = weight_grad(_ops.all_gather(a, *ctx.where, rows=ctx.rows, after=after), grad, b)
    return grad_a, grad_b, *[None] * 9, _bias_grad(ctx, grad, 11), None


_all_gather_gemm.register_autograd(_all_gather_gemm_backward, setup_context=_all_gather_gemm_setup)


@operator(
    "all_gather_gemm_gathered",
    schema=f"(Tensor a, Tensor b, int gather_dim, {_TAIL}{_ROWS}) -> (Tensor, Tensor)",
)
def _all_gather_gemm_gathered(
    a: torch.Tensor,
    b: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    where = gather_dim, group_size, group_name
    out, gathered = _all_gather_gemm_gathered_fake(a, b, *where, *options)
    comm = group.checked("all_gather_gemm_gathered", group_name)
    options, rows = _and_rows(options, 7)
    shards, flat = _shards(a, gather_dim, rows, group_size), flat_rows(a, gather_dim)
    named = _options_of_rows(options, gather_dim)
    with along(comm, "gather_dim", gather_dim):
        all_gather_gemm(
            flat,
            by_rows_or_columns(b),
            out.movedim(gather_dim, 0).view(-1, out.shape[-1]),
            group=comm,
            **shards,
            **named | {"algorithm": gathering(comm, named.get("algorithm", "auto"))},
        )
    each = shards.get("shard", flat.shape[0])
    copy_gathered(comm, gathered.movedim(gather_dim, 0).view(-1, a.shape[-1]), flat, each)
    return out, gathered


_all_gather_gemm_gathered.register_flops(flops.of_results)


@_all_gather_gemm_gathered.register_fake
def _all_gather_gemm_gathered_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    gather_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    where = gather_dim, group_size, group_name
    out: torch.Tensor = _all_gather_gemm_fake(a, b, *where, *options)
    return out, empty_along(a, gather_dim, out.shape[gather_dim])


def _gathered_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, dim, size, name, *options = inputs
    _refuse_gradients("all_gather_gemm_gathered", b, options[:7])
    _save(ctx, inputs, output[1], b)
    ctx.where = dim, size, name
    ctx.own = None if options[7] is None else a.shape[dim]


def _gathered_backward(ctx: Any, grad: torch.Tensor, grad_gathered: torch.Tensor) -> tuple[Any, ...]:
    gathered, b = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = _ops.gemm_reduce_scatter(grad, b.t(), "sum", *ctx.where, rows=ctx.own)
        grad_a = grad_a + _ops.reduce_scatter(grad_gathered, "sum", *ctx.where, rows=ctx.own)
    if ctx.needs_input_grad[1]:
        grad_b = weight_grad(gathered, grad, b)
    return grad_a, grad_b, *[None] * 9, _bias_grad(ctx, grad, 11), None


_all_gather_gemm_gathered.register_autograd(_gathered_backward, setup_context=_gathered_setup)


# ---- GEMM and reduce-scatter


@operator(
    "gemm_reduce_scatter",
    schema=f"(Tensor a, Tensor b, str reduce_op, int scatter_dim, {_TAIL}{_RESIDUAL}{_ROWS}) -> Tensor",
)
def _gemm_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    out: torch.Tensor = _gemm_reduce_scatter_fake(a, b, reduce_op, scatter_dim, group_size, group_name, *options)
    comm = group.checked("gemm_reduce_scatter", group_name)
    options, rows = _and_rows(options, 8)
    shards: dict[str, Any] = {}
    if rows is not None:
        what = f"dimension {scatter_dim} of a"
        each = check_own_share(comm, "gemm_reduce_scatter", what, a.shape[scatter_dim], rows)
        shards["shard"] = _shard(each, a, scatter_dim)
    with along(comm, "scatter_dim", scatter_dim):
        gemm_reduce_scatter(
            flat_rows(a, scatter_dim),
            by_rows_or_columns(b),
            out.movedim(scatter_dim, 0).view(-1, b.shape[1]),
            group=comm,
            **shards,
            **_flat_residual("gemm_reduce_scatter", out, _options_of_rows(options, scatter_dim), scatter_dim),
        )
    return out


_gemm_reduce_scatter.register_flops(flops.of_operand)


@_gemm_reduce_scatter.register_fake
def _gemm_reduce_scatter_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    _check("gemm_reduce_scatter", a, b, (group_size, group_name))
    if reduce_op != "sum":
        raise ValueError(f"gemm_reduce_scatter: reduce_op must be 'sum', got {reduce_op!r}")
    check_dim("gemm_reduce_scatter", "scatter_dim", scatter_dim, a.dim() - 1)
    options, rows = _and_rows(options, 8)
    if rows is None:
        check_share("gemm_reduce_scatter", f"dimension {scatter_dim} of a", a.shape[scatter_dim], group_size)
        rows = a.shape[scatter_dim] // group_size
    columns = _columns("gemm_reduce_scatter", b, options, reduces=True)
    return empty_along(a, scatter_dim, rows, columns, _dtype(a, *options))


def _gemm_reduce_scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, _, dim, size, name, *options = inputs
    _refuse_gradients("gemm_reduce_scatter", a, options)
    _save(ctx, inputs, a, b)
    ctx.where = dim, size, name
    ctx.rows = None if options[8] is None else a.shape[dim]


def _gemm_reduce_scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0] and ctx.needs_input_grad[1]:
        if ctx.rows is None:
            grad_a, grad_b = _ops.gemm_reduce_scatter_gradients(grad, a, b, *ctx.where)
        else:
            grad_a, gathered = _ops.all_gather_gemm_gathered(grad, b.t(), *ctx.where, rows=ctx.rows)
            grad_b = weight_grad(a, gathered, b)
    elif ctx.needs_input_grad[0]:
        grad_a = _ops.all_gather_gemm(grad, b.t(), *ctx.where, rows=ctx.rows)
    elif ctx.needs_input_grad[1]:
        grad_b = weight_grad(a, _ops.all_gather(grad, *ctx.where, rows=ctx.rows), b)
    return grad_a, grad_b, *[None] * 10, _bias_grad(ctx, grad, 12), _residual_grad(ctx, grad, 13), None


_gemm_reduce_scatter.register_autograd(_gemm_reduce_scatter_backward, setup_context=_gemm_reduce_scatter_setup)


# ---- GEMM and all-reduce


@operator(
    "gemm_all_reduce",
    schema=f"(Tensor a, Tensor b, str reduce_op, {_TAIL_OF_SUM}) -> Tensor",
)
def _gemm_all_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    group_size: int,
    group_name: str,
    reduce_grad: bool = True,
    *options: Any,
) -> torch.Tensor:
    out: torch.Tensor = _gemm_all_reduce_fake(a, b, reduce_op, group_size, group_name, reduce_grad, *options)
    comm = group.checked("gemm_all_reduce", group_name)
    rows, b, named = flat_rows(a), by_rows_or_columns(b), _options_of_rows(options)
    here = stores_here(comm, rows, b, out.dtype, named.get("algorithm", "auto"))
    result = out if here else workspace(comm, "gemm_all_reduce", out.shape, out.dtype)
    gemm_all_reduce(rows, b, result.view(-1, b.shape[1]), group=comm, **_flat_residual("gemm_all_reduce", out, named))
    return out if here else out.copy_(result)


_gemm_all_reduce.register_flops(flops.of_operand)


@_gemm_all_reduce.register_fake
def _gemm_all_reduce_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str,
    group_size: int,
    group_name: str,
    reduce_grad: bool = True,
    *options: Any,
) -> torch.Tensor:
    _check("gemm_all_reduce", a, b, (group_size, group_name))
    if reduce_op != "sum":
        raise ValueError(f"gemm_all_reduce: reduce_op must be 'sum', got {reduce_op!r}")
    columns = _columns("gemm_all_reduce", b, options, reduces=True)
    return a.new_empty([*a.shape[:-1], columns], dtype=_dtype(a, *options))


def _gemm_all_reduce_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, _, size, name, _, *options = inputs
    _refuse_gradients("gemm_all_reduce", a, options)
    _save(ctx, inputs, a, b)
    ctx.where, ctx.reduce_grad = (size, name), inputs[5]


def _gemm_all_reduce_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    if ctx.reduce_grad:
        grad = _ops.all_reduce(grad, "sum", *ctx.where)
    # Without, all PEs have it alike, and multiply it by operands of their own.
    factor = grad if ctx.reduce_grad else sum_gradients(grad, *ctx.where)
    grad_a = multiplied(factor, b.t()) if ctx.needs_input_grad[0] else None
    grad_b = weight_grad(a, factor, b) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b, *[None] * 10, _bias_grad(ctx, grad, 12), _residual_grad(ctx, grad, 13)


_gemm_all_reduce.register_autograd(_gemm_all_reduce_backward, setup_context=_gemm_all_reduce_setup)


# ---- GEMM of a replicated operand, the other way round: its backward is GEMM and all-reduce


@operator(
    "replicated_gemm",
    schema="(Tensor a, Tensor b, int group_size, str group_name) -> Tensor",
)
def _replicated_gemm(a: torch.Tensor, b: torch.Tensor, group_size: int, group_name: str) -> torch.Tensor:
    _check("replicated_gemm", a, b, (group_size, group_name))
    out = a.new_empty([*a.shape[:-1], b.shape[1]])  # no view, which autograd would not let callers change in place
    torch.mm(flat_rows(a), b, out=out.view(-1, b.shape[1]) if out.numel() else out.flatten(0, -2))
    return out


_replicated_gemm.register_flops(flops.of_operand)


@_replicated_gemm.register_fake
def _replicated_gemm_fake(a: torch.Tensor, b: torch.Tensor, group_size: int, group_name: str) -> torch.Tensor:
    _check("replicated_gemm", a, b, (group_size, group_name))
    return a.new_empty([*a.shape[:-1], b.shape[1]])


def _replicated_gemm_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, *where = inputs
    _refuse_gradients("replicated_gemm", a)
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b)
    ctx.where = where


def _replicated_gemm_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = _ops.gemm_all_reduce(grad, b.t(), "sum", *ctx.where, reduce_grad=False)
    if ctx.needs_input_grad[1]:
        grad_b = weight_grad(sum_gradients(a, *ctx.where), grad, b)
    return grad_a, grad_b, None, None


_replicated_gemm.register_autograd(_replicated_gemm_backward, setup_context=_replicated_gemm_setup)


# ---- GEMM and all-scatter


@operator(
    "gemm_all_scatter",
    schema=f"(Tensor a, Tensor b, {_TAIL}) -> Tensor",
)
def _gemm_all_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    out: torch.Tensor = _gemm_all_scatter_fake(a, b, group_size, group_name, *options)
    comm = group.checked("gemm_all_scatter", group_name)
    staged = workspace(comm, "gemm_all_scatter", out.shape, out.dtype)
    gemm_all_scatter(
        flat_rows(a),
        by_rows_or_columns(b),
        staged.view(-1, staged.shape[-1]),
        group=comm,
        **_options_of_rows(options),
    )
    return out.copy_(staged)


_gemm_all_scatter.register_flops(flops.of_operand)


@_gemm_all_scatter.register_fake
def _gemm_all_scatter_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    group_size: int,
    group_name: str,
    *options: Any,
) -> torch.Tensor:
    _check("gemm_all_scatter", a, b, (group_size, group_name))
    columns = _columns("gemm_all_scatter", b, options)
    return a.new_empty([*a.shape[:-1], group_size * columns], dtype=_dtype(a, *options))


def _gemm_all_scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, size, name, *options = inputs
    _refuse_gradients("gemm_all_scatter", a, options)
    _save(ctx, inputs, a, b)
    ctx.where = size, name


def _gemm_all_scatter_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    grad = _ops.reduce_scatter(grad, "sum", grad.dim() - 1, *ctx.where)
    grad_a = multiplied(grad, b.t()) if ctx.needs_input_grad[0] else None
    grad_b = weight_grad(a, grad, b) if ctx.needs_input_grad[1] else None
    return grad_a, grad_b, *[None] * 8, _bias_grad(ctx, grad, 10)


_gemm_all_scatter.register_autograd(_gemm_all_scatter_backward, setup_context=_gemm_all_scatter_setup)
