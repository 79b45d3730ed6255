"""A product with nothing beside it: by cuBLAS or by our kernel, whichever is faster for its shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import triton_dist
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.kept import kept, shape_of
from triton_dist.kernels.gemm.measure import fastest

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
        ways[fastest(("alone", *shape_of(a, b), b.stride(1) == 1), ways)]()


def _ours(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    from triton_dist.kernels.gemm.hopper.launch import all_tiles

    kept(("local", *shape_of(a, b)), partial(all_tiles, a, c, "local"))(a, b, c)
