"""A product with nothing beside it: by cuBLAS or by our kernel, whichever is faster for its shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton

import triton_dist
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import choose
from triton_dist.kernels.gemm.kept import kept
from triton_dist.kernels.gemm.measure import fastest
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule

__all__ = ["alone"]


def alone(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """c = a · b on this PE. *Collective* when a shape is first used: all PEs agree on what is faster."""
    from triton_dist.kernels.gemm.hopper.launch import fits

    if triton_dist.kind() == "cpu":
        portable.local(a, b, c)
    elif not fits(a, b, c):
        torch.mm(a, b, out=c)
    else:
        ways: dict[str, Callable[[], object]] = {
            "cublas": partial(torch.mm, a, b, out=c),
            "ours": partial(_ours, a, b, c),
        }
        ways[fastest(("alone", *a.shape, b.shape[1], a.dtype, b.stride(1) == 1), ways)]()


def _ours(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    from triton_dist.kernels.gemm.hopper.launch import Launcher

    def make() -> Launcher:
        config = choose(c.shape[0], c.shape[1], portable.programs())
        rows, columns = (
            range(triton.cdiv(n, size)) for n, size in zip(c.shape, (config.block_m, config.block_n), strict=True)
        )
        tiles = [Tile(row, column, 0) for row, column in grouped(rows, columns)]
        schedule = make_schedule(tiles, triton.cdiv(a.shape[1], config.block_k), portable.programs())
        return Launcher(schedule, config, "local", False, len(columns))

    kept(("local", *a.shape, b.shape[1], a.dtype), make)(a, b, c)
