"""Fused norms as operators of PyTorch, for inference: they return new tensors and are traced by torch.compile.

They have no gradients: a backward pass through one is an error.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from triton_dist.kernels.functional import group
from triton_dist.kernels.functional.operator import Operator
from triton_dist.kernels.norm.all_reduce_norm import all_reduce_norm
from triton_dist.kernels.norm.arguments import FP8, Normed
from triton_dist.kernels.norm.norm_all_gather import norm_all_gather
from triton_dist.kernels.norm.reduce_scatter_norm import reduce_scatter_norm

__all__: list[str] = []

_SCHEMA = (
    "(Tensor x, Tensor? weight, Tensor? residual, Tensor? bias, str norm, Tensor? norm_bias, float eps, str quantize,"
    " int group_size, str group_name, str algorithm='auto') -> (Tensor, Tensor, Tensor)"
)
"""``quantize`` is empty for None; then the last result, the scales, has no elements."""

_Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _register(
    function: Callable[..., Normed], rows: Callable[[int, int], int], kept: Callable[[int, int], int]
) -> Operator:
    """Register the operator of ``function``, which makes of so many rows, with so many PEs, so many normalised ones,
    and so many of the new residual."""
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
    ) -> _Three:
        comm = group.communicator(name, group_size, group_name)
        parts = [part if part is None else part.contiguous() for part in (x, weight, residual, bias, norm_bias)]
        done = function(
            *parts[:3], bias=parts[3], norm=norm, norm_bias=parts[4], eps=eps, quantize=quantize or None,
            algorithm=algorithm, group=comm,
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
    ) -> _Three:
        group.check(name, group_size, group_name)
        m, h = x.shape
        out = rows(m, group_size)
        shape = {"": (0,), "token": (out,), "block": (out, h // 128)}[quantize]
        return (
            x.new_empty(out, h, dtype=FP8 if quantize else x.dtype),
            x.new_empty(kept(m, group_size), h),
            x.new_empty(shape, dtype=torch.float32),
        )

    made = Operator(operator, name, _SCHEMA)
    made.register_fake(fake)
    made.refuse_gradients()
    return made


_all_reduce_norm = _register(all_reduce_norm, lambda m, n: m, lambda m, n: m)
_reduce_scatter_norm = _register(reduce_scatter_norm, lambda m, n: m // n, lambda m, n: m // n)
_norm_all_gather = _register(norm_all_gather, lambda m, n: m * n, lambda m, n: m)
