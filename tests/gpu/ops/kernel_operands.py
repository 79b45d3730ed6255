"""Calls whose operands change from one to the next, in the same memory: what is read of a peer too early is that of the
call in front, and wrong. Where operands stay the same, as in checks of many calls, it would be right by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

import triton_dist
from ops.harness import GPU, check
from ops.kernel_epilogues import matrix
from ops.kernel_gemms import usable
from triton_dist import World, kernels
from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.kernels.gemm.small_m import fits_bands, fits_small_m

Call = Callable[[], torch.Tensor]
OF_HOPPER = {"copy_engine", "push", "warp_specialized", "ring", "direct"}


def verify_in_turn(
    call: Call, operand: torch.Tensor, given: list[torch.Tensor], expected: list[torch.Tensor], what: str
) -> None:
    """Calls without a pause, in front of each of which ``operand`` is overwritten with the next of ``given``; on GPUs
    also in a graph that is replayed."""

    def steps(calls: int) -> list[torch.Tensor]:
        found = []
        for i in range(calls):
            operand.copy_(given[i % len(given)])
            found.append(call().clone())
        return found

    def verify(found: list[torch.Tensor], how: str) -> None:
        for i, one in enumerate(found):
            wrong = (one.float() != expected[i % len(given)]).sum().item()
            assert not wrong, f"{what}, {how}, call {i}: {wrong} of {one.numel()} elements are wrong"

    verify(steps(9 if GPU else 3), "called")
    if GPU:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = steps(3 * len(given))
        for _ in range(4):
            for one in found:
                one.fill_(77)
            graph.replay()
        torch.cuda.synchronize()
        verify(found, "in a graph")


def taken(m: int, n_pes: int, *algorithms: str) -> Iterator[str]:
    """Those of ``algorithms`` that take ``m`` rows."""
    for name in usable(*algorithms, "auto"):
        takes = name not in OF_HOPPER or is_hopper()
        if name == "push":
            takes = takes and m > 64
        elif name == "fused":
            takes = fits_small_m(m, n_pes) or fits_bands(m, n_pes)
        if takes:
            yield name


def sizes() -> Iterator[tuple[int, int, int]]:
    """Rows of a PE, columns and depth."""
    of_gpus = (512, 2560, 512), (128, 1160, 328), (33, 1296, 528), (4, 2048, 1024)
    yield from of_gpus if GPU else ((5, 48, 32), (40, 64, 64))


@check(own_gpu=True)
def gathered_operands_that_change(world: World) -> None:
    dtype = torch.bfloat16
    for rows, n, k in sizes():
        b = matrix(k, n, 50 + world.pe, dtype, world)
        parts = [[matrix(rows, k, 10 * i + pe, dtype, world) for pe in range(world.n_pes)] for i in (1, 2)]
        expected = [(torch.cat(of).float() @ b.float()).to(dtype).float() for of in parts]
        given, a = [of[world.pe] for of in parts], torch.empty(rows, k, dtype=dtype, device=world.device)
        for algorithm in taken(rows * world.n_pes, world.n_pes, *GATHER, "two_level"):
            call = partial(kernels.all_gather_gemm, a, b, algorithm=algorithm)
            verify_in_turn(call, a, given, expected, f"all_gather_gemm {algorithm}, {rows} rows")


@check(own_gpu=True)
def summed_operands_that_change(world: World) -> None:
    dtype = torch.bfloat16
    for rows, n, k in sizes():
        m, own = rows * world.n_pes, slice(rows * world.pe, rows * (world.pe + 1))
        bs = [matrix(k, n, 50 + pe, dtype, world) for pe in range(world.n_pes)]
        of = [[matrix(m, k, 10 * i + pe, dtype, world) for pe in range(world.n_pes)] for i in (1, 2)]
        expected = [torch.stack([x.float() @ b.float() for x, b in zip(each, bs, strict=True)]).sum(0) for each in of]
        assert max(one.abs().max() for one in expected) < 256, "sums are not exact"
        given, b = [each[world.pe] for each in of], bs[world.pe]
        a = torch.empty(m, k, dtype=dtype, device=world.device)
        out = triton_dist.empty(m, n, dtype=dtype)
        for algorithm in taken(m, world.n_pes, *REDUCE, "two_level"):
            what = f"{algorithm}, {m} rows"
            call = partial(kernels.gemm_reduce_scatter, a, b, algorithm=algorithm)
            verify_in_turn(call, a, given, [one[own] for one in expected], f"gemm_reduce_scatter {what}")
            call = partial(kernels.gemm_all_reduce, a, b, out=out, algorithm=algorithm)
            verify_in_turn(call, a, given, expected, f"gemm_all_reduce {what}")
        triton_dist.free(out)


@check(own_gpu=True)
def scattered_operands_that_change(world: World) -> None:
    dtype = torch.bfloat16
    for rows, n, k in sizes():
        bs = [matrix(k, n, 50 + pe, dtype, world) for pe in range(world.n_pes)]
        given = [matrix(rows, k, seed, dtype, world) for seed in (1, 2)]
        expected = [(one.float() @ torch.cat(bs, 1).float()).to(dtype).float() for one in given]
        a = torch.empty(rows, k, dtype=dtype, device=world.device)
        out = triton_dist.empty(rows, n * world.n_pes, dtype=dtype)
        for algorithm in taken(rows, world.n_pes, *SCATTER):
            call = partial(kernels.gemm_all_scatter, a, bs[world.pe], out, algorithm=algorithm)
            verify_in_turn(call, a, given, expected, f"gemm_all_scatter {algorithm}, {rows} rows")
        triton_dist.free(out)
