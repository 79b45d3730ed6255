"""Collectives and GEMMs for models in PyTorch: each returns a new tensor, has gradients and is traced by torch.compile.

    from triton_dist.kernels import functional

    hidden = functional.all_gather_gemm(x, w_up.t())  # x: this PE's rows; hidden: this PE's columns of all rows
    y = functional.gemm_reduce_scatter(act(hidden), w_down.t())  # y: this PE's rows of the sum

Each function calls the operator ``torch.ops.triton_dist`` of its name, which takes the group as PyTorch's functional
collectives do: by its size and its name. All functions are *collective*, on the current stream, and so are their
backward passes: on every PE the same tensors require gradients.

``group`` is None for all PEs of the world, a ``ProcessGroup`` or its name, a ``DeviceMesh`` of one dimension, a
``triton_dist.Team`` or a :class:`~triton_dist.kernels.Communicator`: see docs/kernels.md.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from triton_dist.kernels.functional import attention as _attention
from triton_dist.kernels.functional import collectives as _collectives
from triton_dist.kernels.functional import gemm as _gemm
from triton_dist.kernels.functional import norm as _norm
from triton_dist.kernels.functional import norm_gemm as _norm_gemm
from triton_dist.kernels.functional.group import own_share, resolve
from triton_dist.kernels.functional.layout import dim_of
from triton_dist.kernels.functional.operator import Operator
from triton_dist.kernels.functional.repeats import repeated
from triton_dist.kernels.norm.arguments import Normed

__all__ = [
    "all_gather",
    "all_gather_gemm",
    "all_reduce",
    "all_reduce_norm",
    "all_to_all",
    "flash_decode",
    "flash_decode_projection",
    "gemm_all_reduce",
    "gemm_all_scatter",
    "gemm_reduce_scatter",
    "norm_all_gather",
    "norm_gemm",
    "reduce_scatter",
    "reduce_scatter_norm",
    "replicated_gemm",
]

_ops: Any = torch.ops.triton_dist
_OPERATORS = {
    found.opname: found
    for module in (_attention, _collectives, _gemm, _norm, _norm_gemm)
    for found in vars(module).values()
    if isinstance(found, Operator)
}


def _call(operator: str, *arguments: Any) -> Any:
    """``torch.ops.triton_dist.<operator>(*arguments)``; where nothing is compiled in the shortest way."""
    if torch.compiler.is_compiling():
        return getattr(_ops, operator)(*arguments)
    try:
        return _OPERATORS[operator](*arguments)
    except RuntimeError as error:
        if (wrong := _WRONG_TYPE.search(str(error))) is None:
            raise
        expected, argument, found = wrong.groups()
        raise TypeError(f"{operator}: {argument} is of type {expected}, not {found}") from None


_WRONG_TYPE = re.compile(r"Expected a value of type '(.*?)' for argument '(\w+)' but instead found type '(.*?)'")
"""What PyTorch says of an argument that is not of the operator's schema."""


def _scales(operand: torch.Tensor, *scales: torch.Tensor | float | None) -> list[torch.Tensor | None]:
    """Scales as operators take them, which are tensors."""
    return [
        torch.tensor(float(scale), dtype=torch.float32, device=operand.device)
        if isinstance(scale, (int, float))
        else scale
        for scale in scales
    ]


@repeated
def all_gather(
    input: torch.Tensor,
    gather_dim: int = 0,
    group: Any = None,
    *,
    algorithm: str = "auto",
    rows: int | None = None,
) -> torch.Tensor:
    """Every PE's ``input``, concatenated along ``gather_dim`` in PE order. Its backward is :func:`reduce_scatter`.

    Args:
        input: any dtype and shape, the same on every PE, but for the last PEs with ``rows``. (Gradients: of floats of
            16, 32 or 64 bits.)
        gather_dim: may be negative.
        algorithm: as of :func:`triton_dist.kernels.all_gather`; ``copy_engine`` not for shards that differ.
        rows: as of :func:`all_gather_gemm`.

    Raises:
        TypeError, ValueError: an argument is not as described. RuntimeError: there is no world.
    """
    dim = dim_of("all_gather", "gather_dim", gather_dim, input)
    result: torch.Tensor = _call("all_gather", input, dim, *resolve(group), algorithm, rows)
    return result


@repeated
def reduce_scatter(
    input: torch.Tensor, reduce_op: str = "sum", scatter_dim: int = 0, group: Any = None, *, algorithm: str = "auto"
) -> torch.Tensor:
    """This PE's part, along ``scatter_dim``, of the sum of all PEs' ``input``. Its backward is :func:`all_gather`.

    Args:
        input: of a dtype that :func:`triton_dist.kernels.all_reduce` takes. If PEs cannot share its dimension
            ``scatter_dim`` equally, PE p gets the p-th shard of ``torch.chunk``, and the last PEs get less, or nothing.
        reduce_op: ``"sum"``, ``"avg"``, ``"max"`` or ``"min"``; the last two have no gradient.
        algorithm: as of :func:`triton_dist.kernels.reduce_scatter`.

    Raises: as :func:`all_gather`.
    """
    dim = dim_of("reduce_scatter", "scatter_dim", scatter_dim, input)
    size, name = resolve(group)
    own = own_share(input.shape[dim], size, name) if input.dim() else None
    result: torch.Tensor = _call("reduce_scatter", input, reduce_op, dim, size, name, algorithm, own)
    return result


@repeated
def all_reduce(
    input: torch.Tensor,
    reduce_op: str = "sum",
    group: Any = None,
    *,
    reduce_grad: bool = True,
    algorithm: str = "auto",
) -> torch.Tensor:
    """The sum of all PEs' ``input``; all PEs get the same bits. Its backward is an all-reduce, too.

    Args:
        input: of a dtype that :func:`triton_dist.kernels.all_reduce` takes.
        reduce_op: ``"sum"``, ``"avg"``, ``"max"`` or ``"min"``; the last two have no gradient.
        reduce_grad: whether the backward sums the gradients of all PEs. False if what follows is computed by all PEs
            alike, so that each has the whole gradient already.
        algorithm: as of :func:`triton_dist.kernels.all_reduce`.

    Raises: as :func:`all_gather`.
    """
    result: torch.Tensor = _call("all_reduce", input, reduce_op, *resolve(group), reduce_grad, algorithm)
    return result


@repeated
def all_to_all(input: torch.Tensor, group: Any = None, *, algorithm: str = "auto") -> torch.Tensor:
    """Part ``my_pe()``, along dimension 0, of every PE's ``input``, in PE order. It is its own backward.

    Args:
        input: any dtype; its dimension 0 is a multiple of the number of PEs.
        algorithm: as of :func:`triton_dist.kernels.all_to_all`.

    Raises: as :func:`all_gather`.
    """
    result: torch.Tensor = _call("all_to_all", input, *resolve(group), algorithm)
    return result


def all_gather_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    gather_dim: int = 0,
    group: Any = None,
    *,
    return_gathered: bool = False,
    algorithm: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
    sm_margin: int = 0,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
    rows: int | None = None,
) -> Any:
    """A · ``b``, where A is every PE's ``a``, concatenated along ``gather_dim``.

    Backward: the gradient of ``a`` is a :func:`gemm_reduce_scatter`; that of ``b`` is a local GEMM with A, which the
    copy engine gathers again meanwhile, unless ``return_gathered`` has kept it.

    Args:
        a: [..., K], of two dimensions or more; the same shape on every PE, but for the last PEs with ``rows``.
        b: [K, N].
        gather_dim: any dimension of ``a`` but the last; may be negative.
        return_gathered: return A, too, and keep it for the backward.
        algorithm, scale_a, scale_b, out_dtype, sm_margin: as of :func:`triton_dist.kernels.all_gather_gemm`. fp8
            operands have no gradients.
        activation: as of :func:`triton_dist.kernels.all_gather_gemm`; without gradients.
        bias: [N], added to all rows of the sums.
        rows: the size of the result's dimension ``gather_dim``, if PEs cannot share it equally: PE p has the p-th shard
            of ``torch.chunk``, and the last PEs have fewer rows, or none. By default ``n_pes`` times that of ``a``.

    Returns:
        [..., N], or that and A. If ``gather_dim`` is not 0, the results are not contiguous: it comes first in memory.

    Raises: as :func:`all_gather`.
    """
    return _call(
        "all_gather_gemm_gathered" if return_gathered else "all_gather_gemm",
        a,
        b,
        dim_of("all_gather_gemm", "gather_dim", gather_dim, a),
        *resolve(group),
        algorithm,
        *_scales(a, scale_a, scale_b),
        out_dtype,
        sm_margin,
        activation,
        bias,
        rows,
    )


@repeated
def gemm_reduce_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str = "sum",
    scatter_dim: int = 0,
    group: Any = None,
    *,
    algorithm: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
    sm_margin: int = 0,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """This PE's part, along ``scatter_dim``, of the sum over PEs of ``a`` · ``b``.

    Backward: the gradient of ``a`` is an :func:`all_gather_gemm`; that of ``b`` is a local GEMM with what it gathers.

    Args:
        a: [..., K], of two dimensions or more, of which ``scatter_dim`` is any but the last. If PEs cannot share it
            equally, PE p gets the p-th shard of ``torch.chunk``, and the last PEs get fewer rows, or none.
        b: [K, N].
        reduce_op: ``"sum"``.
        algorithm, scale_a, scale_b, out_dtype, sm_margin: as of :func:`triton_dist.kernels.gemm_reduce_scatter`.
        activation: as of :func:`triton_dist.kernels.gemm_reduce_scatter`; without gradients.
        bias: [N], the same on all PEs, added to the sum. Its gradient here is that of this PE's rows.
        residual: of the result's shape, added to this PE's part of the sum.

    Returns, raises: as :func:`all_gather_gemm`.
    """
    dim = dim_of("gemm_reduce_scatter", "scatter_dim", scatter_dim, a)
    size, name = resolve(group)
    result: torch.Tensor = _call(
        "gemm_reduce_scatter",
        a,
        b,
        reduce_op,
        dim,
        size,
        name,
        algorithm,
        *_scales(a, scale_a, scale_b),
        out_dtype,
        sm_margin,
        activation,
        bias,
        residual,
        own_share(a.shape[dim], size, name) if a.dim() else None,
    )
    return result


def gemm_all_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    reduce_op: str = "sum",
    group: Any = None,
    *,
    reduce_grad: bool = True,
    algorithm: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
    sm_margin: int = 0,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """The sum over PEs of ``a`` · ``b``, on every PE. Arguments as of :func:`gemm_reduce_scatter`; ``residual`` is the
    same on all PEs.

    Backward: local GEMMs, after an :func:`all_reduce` of the gradient unless ``reduce_grad`` is False. All PEs get the
    whole gradient of ``bias`` and ``residual``.
    """
    result: torch.Tensor = _call(
        "gemm_all_reduce",
        a,
        b,
        reduce_op,
        *resolve(group),
        reduce_grad,
        algorithm,
        *_scales(a, scale_a, scale_b),
        out_dtype,
        sm_margin,
        activation,
        bias,
        residual,
    )
    return result


def replicated_gemm(a: torch.Tensor, b: torch.Tensor, group: Any = None) -> torch.Tensor:
    """``a`` · ``b`` of this PE, where all PEs have the same ``a`` and columns of B of their own.

    Backward: the gradient of ``a`` is the sum over PEs, by :func:`gemm_all_reduce`; that of ``b`` is a local GEMM.
    """
    result: torch.Tensor = _call("replicated_gemm", a, b, *resolve(group))
    return result


def gemm_all_scatter(
    a: torch.Tensor,
    b: torch.Tensor,
    group: Any = None,
    *,
    algorithm: str = "auto",
    scale_a: torch.Tensor | float | None = None,
    scale_b: torch.Tensor | float | None = None,
    out_dtype: torch.dtype | None = None,
    sm_margin: int = 0,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """``a`` · B on every PE, from each PE's columns ``b`` of B. Arguments as of :func:`all_gather_gemm`, but ``a``
    has the same elements on every PE, which is not checked: each PE multiplies its ``b`` by its own.

    Backward: local GEMMs, after a :func:`reduce_scatter` of the gradient along its last dimension. The gradient of
    ``a`` is this PE's share, of its columns; the sum over PEs is that of an ``a`` that all PEs have.
    """
    scales = _scales(a, scale_a, scale_b)
    result: torch.Tensor = _call(
        "gemm_all_scatter", a, b, *resolve(group), algorithm, *scales, out_dtype, sm_margin, activation, bias
    )
    return result


@repeated
def norm_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    norm_weight: torch.Tensor | None = None,
    *,
    eps: float = 1e-6,
    activation: str | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.norm_gemm`, for ``torch.compile``; ``a`` is [..., K]. No gradient."""
    result: torch.Tensor = _call("norm_gemm", a, b, norm_weight, eps, activation, bias)
    return result


@repeated
def all_reduce_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    norm: str = "rms",
    norm_bias: torch.Tensor | None = None,
    eps: float = 1e-6,
    quantize: str | None = None,
    algorithm: str = "auto",
    group: Any = None,
) -> Normed:
    """:func:`triton_dist.kernels.all_reduce_norm`, for ``torch.compile``. No gradient."""
    return _normed(
        "all_reduce_norm", x, weight, residual, group, bias, norm, norm_bias, eps, quantize, algorithm
    )  # fmt: skip


@repeated
def reduce_scatter_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    norm: str = "rms",
    norm_bias: torch.Tensor | None = None,
    eps: float = 1e-6,
    quantize: str | None = None,
    algorithm: str = "auto",
    group: Any = None,
) -> Normed:
    """:func:`triton_dist.kernels.reduce_scatter_norm`, for ``torch.compile``. No gradient."""
    own = own_share(x.shape[0], *resolve(group)) if x.dim() else None
    return _normed(
        "reduce_scatter_norm", x, weight, residual, group, bias, norm, norm_bias, eps, quantize, algorithm, own
    )  # fmt: skip


@repeated
def norm_all_gather(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    norm: str = "rms",
    norm_bias: torch.Tensor | None = None,
    eps: float = 1e-6,
    quantize: str | None = None,
    algorithm: str = "auto",
    rows: int | None = None,
    group: Any = None,
) -> Normed:
    """:func:`triton_dist.kernels.norm_all_gather`, for ``torch.compile``. No gradient."""
    return _normed(
        "norm_all_gather", x, weight, residual, group, bias, norm, norm_bias, eps, quantize, algorithm, rows
    )  # fmt: skip


def _normed(
    operator: str,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    residual: torch.Tensor | None,
    group: Any,
    bias: torch.Tensor | None,
    norm: str,
    norm_bias: torch.Tensor | None,
    eps: float,
    quantize: str | None,
    algorithm: str,
    *rows: int | None,
) -> Normed:
    output, new_residual, scales = _call(
        operator, x, weight, residual, bias, norm, norm_bias, eps, quantize or "", *resolve(group), algorithm, *rows
    )
    return Normed(output, new_residual, scales if quantize else None)


@repeated
def flash_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    *,
    block_table: torch.Tensor | None = None,
    head_dim_v: int | None = None,
    scale: float | None = None,
    window: int | None = None,
    interleave: int | None = None,
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    scatter_heads: bool = False,
    group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`triton_dist.kernels.flash_decode`, for ``torch.compile``. No gradient."""
    head_dim_v, k_scale, v_scale = _of_cache(q, v_cache, head_dim_v, k_scale, v_scale)
    result: tuple[torch.Tensor, torch.Tensor] = _call(
        "flash_decode",
        q, k_cache, v_cache, lengths, block_table, head_dim_v, scale, window, interleave, k_scale, v_scale,
        scatter_heads, *resolve(group),
    )  # fmt: skip
    return result


def flash_decode_projection(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor | None,
    lengths: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    head_dim_v: int | None = None,
    scale: float | None = None,
    window: int | None = None,
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    group: Any = None,
) -> torch.Tensor:
    """:func:`triton_dist.kernels.flash_decode_projection`, for ``torch.compile``. No gradient."""
    head_dim_v, k_scale, v_scale = _of_cache(q, v_cache, head_dim_v, k_scale, v_scale)
    result: torch.Tensor = _call(
        "flash_decode_projection",
        q, k_cache, v_cache, lengths, weight, bias, residual, block_table, head_dim_v, scale, window, k_scale, v_scale,
        *resolve(group),
    )  # fmt: skip
    return result


def _of_cache(q: torch.Tensor, v_cache: Any, head_dim_v: Any, *scales: Any) -> tuple[Any, ...]:
    """``head_dim_v`` and the scales of a KV cache as operators take them."""
    if head_dim_v is None and v_cache is not None:
        head_dim_v = v_cache.shape[-1]
    tensors = (
        torch.tensor([float(s)], dtype=torch.float32, device=q.device) if isinstance(s, (int, float)) else s
        for s in scales
    )
    return head_dim_v, *tensors
