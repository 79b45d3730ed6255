"""Bias + residual + norm (+ quantisation) of rows that this PE has: what follows an all-reduce that is not fused."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.norm.arguments import Norm, Normed, row_constants
from triton_dist.kernels.norm.rows import add, load_rows, load_vectors, normalize, store_normalized, store_rows
from triton_dist.kernels.prepared import Launch, launch

__all__ = ["local_norm"]


@triton.jit(do_not_specialize=["M"])
def local_norm_kernel(
    x, residual, bias, weight, shift, out, new_residual, scales, M, H, eps,
    LAYER: tl.constexpr, QUANTUM: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) + tl.arange(0, 1)
    there = rows < M
    total = load_rows(x, rows, there, H, BLOCK)
    old = load_rows(residual, rows, there, H, BLOCK)
    bias, weight, shift = load_vectors(bias, weight, shift, H, BLOCK)
    values = add(total, bias, old, DTYPE)
    store_rows(new_residual, values, rows, there, H)
    store_normalized(out, scales, normalize(values, weight, shift, H, eps, LAYER), rows, there, H, QUANTUM)


def local_norm(x: torch.Tensor, norm: Norm, to: Normed) -> Launch | None:
    """Store the norm of ``x`` + bias + residual, and the new residual, to ``to``; as many rows as ``x`` has."""
    constants: dict[str, Any] = row_constants(x, norm)
    warps = max(4, min(16, constants["BLOCK"] // 1024))
    return launch(
        local_norm_kernel, (x.shape[0],),
        (x, norm.residual, norm.bias, norm.weight, norm.shift, to.output, to.residual, to.scales), *x.shape, norm.eps,
        **constants, num_warps=warps,
    )  # fmt: skip
