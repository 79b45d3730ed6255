"""Fused norms as operators of PyTorch, for inference: they return new tensors and are traced by torch.compile.

They have no gradients: a backward pass through one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.functional import group
from triton_dist.kernels.functional.layout import check_own_share, check_share
from triton_dist.kernels.functional.operator import Operator
from triton_dist.kernels.norm.all_reduce_norm import all_reduce_norm
from triton_dist.kernels.norm.arguments import FP8, Normed, check_quantize
from triton_dist.kernels.norm.norm_all_gather import norm_all_gather
from triton_dist.kernels.norm.reduce_scatter_norm import reduce_scatter_norm

__all__: list[str] = []

_SCHEMA = (
    "(Tensor x, Tensor? weight, Tensor? residual, Tensor? bias, str norm, Tensor? norm_bias, float eps, str quantize,"
    " int group_size, str group_name, str algorithm='auto'{}) -> (Tensor, Tensor, Tensor)"
)
"""``quantize`` is empty for None; then the last result, the scales, has no elements."""
_ROWS = ", SymInt? rows=None"
"""Where PEs cannot share rows equally: this PE's of the result, or all PEs' where operands are shards (``gemm.py``)."""

_Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _register(
    function: Callable[..., Normed],
    made_of: Callable[[int, int, int | None], tuple[int, int]],
    options: Callable[[Any, int, int | None], dict[str, Any]] | None = None,
) -> Operator:
    """Register the operator of ``function``, which is returned.

    Args:
        made_of: makes of the rows of ``x``, the number of PEs and ``rows`` how many rows the output has, and the new
            residual.
        options: checks these rows, of a communicator, and makes what ``function`` is told of them; None: the operator
            takes no ``rows``.
    """
    name = function.__name__

    def operator(
        x: torch.Tensor,
        weight: torch.Tensor | None,
        residual: torch.Tensor | None,
        bias: torch.Tensor | None,
        norm: str,
        norm_bias: torch.Tensor | None,
        eps: float,
        quantize: str,
        group_size: int,
        group_name: str,
        algorithm: str = "auto",
        rows: int | None = None,
    ) -> _Three:
        comm = group.communicator(name, group_size, group_name)
        parts = [part if part is None else part.contiguous() for part in (x, weight, residual, bias, norm_bias)]
        told = {} if options is None else options(comm, x.shape[0], rows)
        done = function(
            *parts[:3], bias=parts[3], norm=norm, norm_bias=parts[4], eps=eps, quantize=quantize or None,
            algorithm=algorithm, group=comm, **told,
        )  # fmt: skip
        scales = x.new_empty(0, dtype=torch.float32) if done.scales is None else done.scales
        return done.output, done.residual, scales

    def fake(
        x: torch.Tensor,
        weight: torch.Tensor | None,
        residual: torch.Tensor | None,
        bias: torch.Tensor | None,
        norm: str,
        norm_bias: torch.Tensor | None,
        eps: float,
        quantize: str,
        group_size: int,
        group_name: str,
        algorithm: str = "auto",
        rows: int | None = None,
    ) -> _Three:
        group.check(name, group_size, group_name)
        if x.dim() != 2:
            raise ValueError(f"{name}: x must be a matrix, got shape {tuple(x.shape)}")
        m, h = x.shape
        check_quantize(name, quantize or None, h)
        out, kept = made_of(m, group_size, rows)
        shape = {"": (0,), "token": (out,), "block": (out, h // 128)}[quantize]
        return (
            x.new_empty(out, h, dtype=FP8 if quantize else x.dtype),
            x.new_empty(kept, h),
            x.new_empty(shape, dtype=torch.float32),
        )

    made = Operator(operator, name, _SCHEMA.format("" if options is None else _ROWS))
    made.register_fake(fake)
    made.refuse_gradients()
    return made


def _shard(m: int, n: int, rows: int | None) -> tuple[int, int]:
    if rows is None:
        check_share("reduce_scatter_norm", "the number of rows", m, n)
        rows = m // n
    return rows, rows


def _check_shard(comm: Communicator, m: int, rows: int | None) -> dict[str, Any]:
    if rows is not None:
        check_own_share(comm, "reduce_scatter_norm", "the number of rows", m, rows)
    else:
        check_share("reduce_scatter_norm", "the number of rows", m, comm.n_pes)
    return {}


_all_reduce_norm = _register(all_reduce_norm, lambda m, n, rows: (m, m))
_reduce_scatter_norm = _register(reduce_scatter_norm, _shard, _check_shard)
_norm_all_gather = _register(
    norm_all_gather, lambda m, n, rows: (n * m if rows is None else rows, m), lambda comm, m, rows: {"rows": rows}
)
