"""The local GEMM with a norm in front as an operator of PyTorch, for inference: it is traced, and has no gradient."""

from __future__ import annotations

import torch

from triton_dist.kernels.functional.flops import of_operand
from triton_dist.kernels.functional.layout import by_rows, by_rows_or_columns, check_operand_shapes
from triton_dist.kernels.functional.operator import operator
from triton_dist.kernels.gemm.arguments import check_activation
from triton_dist.kernels.gemm.epilogue import fold_of
from triton_dist.kernels.gemm.norm_gemm import norm_gemm

__all__: list[str] = []


@operator(
    "norm_gemm",
    schema="(Tensor a, Tensor b, Tensor? norm_weight, float eps, str? activation, Tensor? bias) -> Tensor",
)
def _norm_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    norm_weight: torch.Tensor | None,
    eps: float,
    activation: str | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    check_operand_shapes("norm_gemm", a, b)
    rows = by_rows(a.flatten(0, -2))
    done = norm_gemm(rows, by_rows_or_columns(b), norm_weight, eps=eps, activation=activation, bias=bias)
    return done.view(*a.shape[:-1], done.shape[-1])  # not -1: there may be no rows


_norm_gemm.register_flops(of_operand)


@_norm_gemm.register_fake
def _norm_gemm_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    norm_weight: torch.Tensor | None,
    eps: float,
    activation: str | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    check_operand_shapes("norm_gemm", a, b)
    check_activation("norm_gemm", activation, b.shape[1], reduces=False)
    return a.new_empty(*a.shape[:-1], b.shape[1] // int(fold_of(activation)))


_norm_gemm.refuse_gradients()
