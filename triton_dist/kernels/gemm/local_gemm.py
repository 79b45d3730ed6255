"""A local GEMM, without communication: by cuBLAS or, where measured times say that it is faster, by our kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

import triton_dist
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.choice import choose_gemm
from triton_dist.kernels.gemm.cublas import cublas_gemm
from triton_dist.kernels.gemm.fp8 import ones
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket
from triton_dist.kernels.prepared import Launch, Work
from triton_dist.torch_api import multiply_float8

__all__ = ["local_gemm", "local_ways"]


def local_gemm(gemm: Operands) -> Work | None:
    """c = a · b on this PE, times the scale and after the epilogue. Returns what does it again with the tensors
    of another call.

    Without a GPU, and with operands that cuBLAS and our kernel do not take, that is the portable kernel. cuBLAS leaves
    no SM to others, and of epilogues it takes a bias of C's dtype.
    """
    ways = local_ways(gemm)
    name = choose_gemm(gemm.comm, "local_gemm", gemm.a, gemm.b, gemm.c, ways, scales=gemm.scales)
    return ways[name]()


def local_ways(gemm: Operands) -> dict[str, Callable[[], Work | None]]:
    """What can compute c = a · b: ``cublas`` and ``ours``, or else ``portable``."""
    from triton_dist.kernels.gemm.hopper.launch import takes

    _, a, b, c, scale, epilogue, sm_margin, _ = gemm
    ways: dict[str, Callable[[], Work | None]] = {}
    if triton_dist.kind() != "cpu" and not sm_margin:
        if scale is None and epilogue.is_empty:
            ways["cublas"] = partial(_multiply, gemm)
        elif scale is None and epilogue.is_bias_of(c.dtype):
            ways["cublas"] = partial(_run, _addmm, gemm)
        elif isinstance(scale, torch.Tensor) and epilogue.is_empty and _scaled_mm_takes(a, b, c):
            ways["cublas"] = partial(_run, partial(_scaled_mm, ones(gemm.comm)), gemm)
    if takes(gemm):
        ways["ours"] = partial(_hopper, gemm)
    if not ways:
        ways["portable"] = partial(portable.local, gemm, portable.programs(sm_margin))
    return ways


def _scaled_mm_takes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> bool:
    """What it says in an error otherwise: b by columns, multiples of 16, and not both of e5m2."""
    aligned = all(size % 16 == 0 for size in (*b.shape, a.stride(0), b.stride(1), c.stride(0) * c.element_size()))
    aligned = aligned and all(matrix.data_ptr() % 16 == 0 for matrix in (a, b, c))
    return aligned and b.stride(0) == 1 and torch.float8_e4m3fn in (a.dtype, b.dtype)


def _run(work: Callable[..., object], gemm: Operands) -> Work:
    work(*gemm.tensors)
    return work


def _multiply(gemm: Operands) -> Work:
    return _run(cublas_gemm(gemm) or _mm, gemm)


def _mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *no: None) -> None:
    torch.mm(a, b, out=c)


def _addmm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: None, bias: torch.Tensor, *no: None) -> None:
    torch.addmm(bias, a, b, out=c)


def _scaled_mm(
    one: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None, *no: None
) -> None:
    multiply_float8(a, b, one if scale is None else scale, one, c)


def _hopper(gemm: Operands) -> Launch | None:
    from triton_dist.kernels.gemm.hopper import local_gemm as hopper

    comm, a, c = gemm.comm, gemm.a, gemm.c
    make = partial(hopper.make_plan, comm, a, in_bucket(c), gemm.sm_margin, gemm.fold, gemm.of_blocks)
    return hopper.run(cached(comm, gemm.key("local"), make), gemm)
