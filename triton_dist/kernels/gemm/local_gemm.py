"""A local GEMM, without communication: by cuBLAS or, where measured times say that it is faster, by our kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import triton_dist
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.choice import choose_gemm
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.fp8 import BlockScales, Scale, ones
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket, shape_of
from triton_dist.torch_api import multiply_float8

__all__ = ["local_gemm", "local_ways"]


def local_gemm(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    """c = a · b on this PE, times ``scale`` and after ``epilogue``.

    Without a GPU, and with operands that cuBLAS and our kernel do not take, that is the portable kernel. cuBLAS leaves
    no SM to others, and of epilogues it takes a bias of C's dtype.
    """
    ways = local_ways(comm, a, b, c, scale, epilogue, sm_margin)
    ways[choose_gemm(comm, "local_gemm", a, b, c, ways)]()


def local_ways(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: Scale,
    epilogue: Epilogue,
    sm_margin: int,
) -> dict[str, Callable[[], object]]:
    """What can compute c = a · b: ``cublas`` and ``ours``, or else ``portable``."""
    from triton_dist.kernels.gemm.hopper.launch import fits

    ways: dict[str, Callable[[], object]] = {}
    if triton_dist.kind() != "cpu" and not sm_margin:
        if scale is None and epilogue.is_empty:
            ways["cublas"] = partial(torch.mm, a, b, out=c)
        elif scale is None and epilogue.is_bias_of(c.dtype):
            ways["cublas"] = partial(torch.addmm, epilogue.bias, a, b, out=c)
        elif isinstance(scale, torch.Tensor) and epilogue.is_empty and _scaled_mm_takes(a, b, c):
            ways["cublas"] = partial(_scaled_mm, comm, a, b, c, scale)
    if not isinstance(scale, BlockScales) and fits(comm, a, b, c):
        ways["ours"] = partial(_hopper, comm, a, b, c, scale, epilogue, sm_margin)
    if not ways:
        ways["portable"] = partial(
            portable.local, a, b, c, grid=portable.programs(sm_margin), scale=scale, epilogue=epilogue
        )
    return ways


def _scaled_mm_takes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """What it says in an error otherwise: b by columns, multiples of 16, and not both of e5m2."""
    aligned = all(size % 16 == 0 for size in (*b.shape, a.stride(0), b.stride(1), c.stride(0) * c.element_size()))
    aligned = aligned and all(matrix.data_ptr() % 16 == 0 for matrix in (a, b, c))
    return aligned and b.stride(0) == 1 and torch.float8_e4m3fn in (a.dtype, b.dtype)


def _scaled_mm(comm: Communicator, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor) -> None:
    multiply_float8(a, b, scale, ones(comm), c)


def _hopper(
    comm: Communicator,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    scale: torch.Tensor | None,
    epilogue: Epilogue,
    sm_margin: int,
) -> None:
    from triton_dist.kernels.gemm.hopper import local_gemm as hopper

    fold = epilogue.fold
    key = ("local", fold, sm_margin, *shape_of(a, b))
    plan = cached(comm, key, lambda: hopper.make_plan(comm, a, in_bucket(c), sm_margin, fold))
    hopper.run(plan, a, b, c, scale, epilogue)
