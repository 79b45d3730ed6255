"""Fused GEMMs of fp8 with one scale, scales of rows and scales of blocks, against cuBLAS with NCCL.

    torchrun --nproc-per-node 2 benchmarks/scales.py [--rows 256 2048 8192] [--layer 7168x18432] [--save FILE]

A layer of so many hidden and intermediate elements, which the PEs share: all_gather_gemm of its first matrix,
gemm_reduce_scatter and gemm_all_reduce of its second. By cuBLAS is `torch._scaled_mm`, with the same scales; operands
and their scales are gathered by NCCL. The bound is cuBLAS alone with one scale. Blocks are 1 × 128 elements of rows of
A and 128 × 128 of B, as DeepSeek-V3's. In the CPU world a tiny layer is computed and checked, and nothing is timed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "4G" if os.environ.get("TRITON_DIST_WORLD") != "cpu" else "64M")

import torch
import torch.distributed as dist
from fp8_operands import FP8, dequantised, of_a_for_torch, of_b_for_torch
from harness import Bench, Contender, session

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.gemm.fp8 import SCALE_BLOCK

RESULT = torch.bfloat16
KINDS = "one scale", "scales of rows", "scales of blocks"
FUNCTIONS = "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"


class Operands(NamedTuple):
    """This PE's A [m, k] and B [k, n], with contiguous columns, their scales, and their product in float32."""

    a: torch.Tensor
    b: torch.Tensor
    scale_a: torch.Tensor
    scale_b: torch.Tensor
    exact: torch.Tensor


def operands(device: torch.device, kind: str, m: int, n: int, k: int, seed_a: int, seed_b: int) -> Operands:
    """Random numbers; scales are such that sums have the size that they have without."""

    def draw(seed: int, rows: int, columns: int, *scales: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator(device).manual_seed(seed)
        values = torch.randn(rows, columns, generator=generator, device=device).to(FP8)
        if not scales:  # the same on all PEs
            return values, torch.full((), 0.75, device=device)
        return values, 0.5 + torch.rand(*scales, generator=generator, device=device)

    blocks = [-(-size // SCALE_BLOCK) for size in (k, n)]
    of_a, of_b = {
        "one scale": ((), ()),
        "scales of rows": ((m, 1), (1, n)),
        "scales of blocks": ((m, blocks[0]), (blocks[0], blocks[1])),
    }[kind]
    a, scale_a = draw(seed_a, m, k, *of_a)
    rows, scale_b = draw(seed_b, n, k, *of_b)
    b = rows.t()
    exact = dequantised(a, torch.atleast_2d(scale_a)) @ dequantised(b, torch.atleast_2d(scale_b))
    return Operands(a, b, scale_a, scale_b, exact)


def by_cublas(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """With scales as torch takes them."""
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=RESULT)


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of all PEs; a scale of the whole is the same on all."""
    if not tensor.dim():
        return tensor
    found = tensor.new_empty(dist.get_world_size() * tensor.shape[0], *tensor.shape[1:])
    dist.all_gather_into_tensor(found.view(torch.uint8), tensor.view(torch.uint8))
    return found


def compared(found: torch.Tensor, exact: torch.Tensor, k: int, roundings: int) -> str | None:
    """What is wrong. Hopper's tensor cores keep 14 bits of a sum of fp8 products."""
    allowed = 0.03 * roundings * (exact.abs() + 4 * k**0.5)
    excess = ((found.float() - exact).abs() / allowed).max().item()
    return None if excess <= 1 else f"an error is {excess:.2f} times what rounding allows"


class Case(NamedTuple):
    title: str
    contenders: dict[str, Contender]
    check: Callable[[torch.Tensor, int], str | None]
    alone: Callable[[], Any]
    """cuBLAS with one scale."""


def case_of(world: Any, function: str, kind: str, m: int, hidden: int, intermediate: int) -> Case:
    pe, n_pes, device = world.pe, world.n_pes, world.device
    part = intermediate // n_pes
    if function == "all_gather_gemm":
        n, k, rows = part, hidden, m // n_pes
        of_all = [operands(device, kind, rows, n, k, 1 + p, 100 + pe) for p in range(n_pes)]
        mine, exact = of_all[pe], torch.cat([each.exact for each in of_all])

        def by_nccl(_: int) -> torch.Tensor:
            return by_cublas(gathered(mine.a), mine.b, of_a_for_torch(gathered(mine.scale_a)), of_weights)

        whole_a = torch.cat([each.a for each in of_all])
    else:
        n, k, rows = hidden, part, m
        of_all = [operands(device, kind, rows, n, k, 1 + p, 100 + p) for p in range(n_pes)]
        mine, exact = of_all[pe], sum((each.exact for each in of_all), torch.zeros((), device=device))
        if function == "gemm_reduce_scatter":
            exact = exact.chunk(n_pes)[pe]
        scattered, whole_a = torch.empty_like(exact, dtype=RESULT), mine.a

        def by_nccl(_: int) -> torch.Tensor:
            product = by_cublas(mine.a, mine.b, of_rows, of_weights)
            if function == "gemm_all_reduce":
                dist.all_reduce(product)
                return product
            dist.reduce_scatter_tensor(scattered, product)
            return scattered

    of_rows, of_weights = of_a_for_torch(mine.scale_a), of_b_for_torch(mine.scale_b)
    call = getattr(kernels, function)
    out = triton_dist.empty if function == "gemm_all_reduce" else partial(torch.empty, device=device)
    result = out(*exact.shape, dtype=RESULT)
    scales = {"scale_a": mine.scale_a, "scale_b": mine.scale_b}
    one = torch.ones((), device=device)
    return Case(
        f"{function}, {kind}, M={m} K={k} N={n}",
        {"ours": lambda _: call(mine.a, mine.b, result, **scales), "NCCL + cuBLAS": by_nccl},
        lambda found, _: compared(found, exact, k, n_pes),
        lambda: torch._scaled_mm(whole_a, mine.b, scale_a=one, scale_b=one, out_dtype=RESULT),
    )


def measure(bench: Bench, rows: list[int], hidden: int, intermediate: int) -> None:
    for m in rows:
        for function in FUNCTIONS:
            for kind in KINDS:
                case = case_of(bench.world, function, kind, m, hidden, intermediate)
                bound = bench.time_alone(case.alone)
                calls = max(2, min(16, int(2e-3 / bound)))
                bench.compare(case.title, case.contenders, check=case.check, calls=calls, bound=bound)
                torch.cuda.empty_cache()


def check_tiny() -> None:
    with triton_dist.init() as world:
        for function in FUNCTIONS:
            for kind in KINDS:
                case = case_of(world, function, kind, 8 * world.n_pes, 128, 128 * world.n_pes)
                if problem := case.check(case.contenders["ours"](0), 0):
                    raise AssertionError(f"{case.title}: {problem}")
        if world.pe == 0:
            print("scales: checked, not measured. The CPU world interprets kernels.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 2048, 8192], help="of all PEs")
    parser.add_argument("--layer", metavar="HIDDENxINTERMEDIATE", default="7168x18432")
    parser.add_argument("--save", help="write JSON to this file, after each comparison")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        check_tiny()
        return
    hidden, intermediate = map(int, args.layer.split("x"))
    with session("scales", total=len(args.rows) * len(FUNCTIONS) * len(KINDS), save=args.save) as bench:
        measure(bench, args.rows, hidden, intermediate)


if __name__ == "__main__":
    main()
