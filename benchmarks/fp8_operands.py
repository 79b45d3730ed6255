"""Operands of fp8 with scales of rows or blocks, and dense GEMMs with them by torch and by our own kernel."""

from __future__ import annotations

import torch
from harness import Contender

from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.fp8 import SCALE_BLOCK, BlockScales, RowScales
from triton_dist.kernels.gemm.local_gemm import local_ways
from triton_dist.kernels.gemm.operands import Operands

__all__ = [
    "FP8",
    "dense_contenders",
    "dequantised",
    "of_a_for_torch",
    "of_b_for_torch",
    "quantised",
    "quantised_matrix",
    "quantised_rows",
]

FP8 = torch.float8_e4m3fn
Scaled = tuple[torch.Tensor, torch.Tensor]


def quantised_rows(x: torch.Tensor, form: str) -> Scaled:
    """Rows [R, K] of float32 as fp8, and their scales as a grouped GEMM takes them: [R, 1] or [R, K / 128]."""
    return quantised(x, 1, x.shape[1] if form == "rows" else SCALE_BLOCK)


def quantised_matrix(x: torch.Tensor, form: str) -> Scaled:
    """The transpose [N, K] of an expert's matrix as fp8, and its scales: [N, 1] or [N / 128, K / 128]."""
    return quantised(x, 1, x.shape[1]) if form == "rows" else quantised(x, SCALE_BLOCK, SCALE_BLOCK)


def quantised(x: torch.Tensor, height: int, width: int) -> Scaled:
    """``x`` as fp8, and a scale for each block, which makes its largest element the largest of fp8."""
    rows, columns = x.shape
    blocks = x.view(rows // height, height, columns // width, width)
    scales = blocks.abs().amax((1, 3)) / torch.finfo(FP8).max
    return (blocks / scales[:, None, :, None]).view(rows, columns).to(FP8), scales


def dequantised(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Each element times its block's scale, float32."""
    for dim in range(2):
        scales = scales.repeat_interleave(x.shape[dim] // scales.shape[dim], dim)
    return scales * x.float()


def dense_contenders(a: Scaled, b: Scaled, form: str, out: torch.Tensor) -> dict[str, Contender]:
    """[R, K] times one matrix, which is given as its transpose [N, K], with the scales of both."""
    matrix = b[0].t()
    if form == "rows":
        own: RowScales | BlockScales = RowScales(a[1], b[1].t().contiguous())
    else:
        own = BlockScales(a[1], b[1].t().contiguous())
    of_torch = of_a_for_torch(own.a), of_b_for_torch(own.b)

    def by_torch(_: int) -> torch.Tensor:
        return torch._scaled_mm(
            a[0], matrix, scale_a=of_torch[0], scale_b=of_torch[1], out_dtype=out.dtype, use_fast_accum=form == "rows"
        )

    def ours(_: int) -> torch.Tensor:
        ways = local_ways(Operands(communicator_of(), a[0], matrix, out, own))
        if "ours" not in ways:
            raise RuntimeError("the dense Hopper kernel does not take these operands")
        ways["ours"]()
        return out

    return {"torch._scaled_mm, one matrix": by_torch, "ours, one matrix": ours}


def of_a_for_torch(scale: torch.Tensor) -> torch.Tensor:
    """A's scales as `torch._scaled_mm` takes them on Hopper GPUs: those of blocks, [M, K / 128], by columns."""
    return scale.t().contiguous().t() if scale.dim() == 2 and scale.shape[1] > 1 else scale


def of_b_for_torch(scale: torch.Tensor) -> torch.Tensor:
    """B's: those of blocks, [K / 128, N / 128], by columns, which are a multiple of 4 apart."""
    if scale.dim() < 2 or scale.shape[0] == 1:
        return scale
    rows, columns = scale.shape
    padded = scale.new_zeros(columns, -(-rows // 4) * 4)
    padded[:, :rows] = scale.t()
    return padded[:, :rows].t()
