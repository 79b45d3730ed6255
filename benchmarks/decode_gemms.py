"""GEMMs of a decode step, on one GPU: how near the rate at which memory delivers their weights.

    torchrun --nproc-per-node 1 benchmarks/decode_gemms.py [--candidates] [--only TEXT] [--rows N ...] [--save FILE]

The GEMMs of a layer of Qwen3-8B and Qwen3-32B, of one of two PEs: ``norm_gemm`` with the norm in front and, where it is
of gate and up, SwiGLU behind it; and the projections, whose sum over PEs is left out here, so that this is what a
program does before it sends. Weights come from memory: each call has its own, and together they are more than the L2
cache holds. The bound is the time of reading the weight once at the rate that a kernel reads memory here. The peers are
cuBLAS alone, and what PyTorch compiles of norm, GEMM and activation.

--candidates also times cuts that the choice does not take.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from harness import CACHE_BYTES, Bench, Contender, compiled, session
from moe_slices import differs

from triton_dist.kernels.device import gpu, sms
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.norm_gemm import MAX_ROWS_OF_NORM, cut_for, launch
from triton_dist.kernels.gemm.small_m_tile import Cut

EPS = 1e-6


class Shape(NamedTuple):
    name: str
    k: int
    n: int
    normed: bool
    gated: bool = False


SHAPES = (
    Shape("8B, q, k and v", 4096, 3072, True),
    Shape("8B, projection", 2048, 4096, False),
    Shape("8B, gate and up", 4096, 12288, True, True),
    Shape("8B, down", 6144, 4096, False),
    Shape("32B, q, k and v", 5120, 5120, True),
    Shape("32B, projection", 4096, 5120, False),
    Shape("32B, gate and up", 5120, 25600, True, True),
    Shape("32B, down", 12800, 5120, False),
)
ROWS = (1, 32, 64, 128)

CUTS = (
    *(Cut(32, block_k, 4, turned) for block_k in (128, 256) for turned in (False, True)),
    *(Cut(64, block_k, 4, True) for block_k in (64, 128, 256)),
    Cut(64, 128, 4, False),
    *(Cut(128, block_k, 4, True) for block_k in (64, 128)),
    Cut(128, 128, 8, True),
)


class Case:
    """One GEMM with weights for several calls."""

    def __init__(self, shape: Shape, rows: int, weights: list[torch.Tensor]) -> None:
        self.shape, self.weights = shape, weights
        device = weights[0].device
        generator = torch.Generator(device).manual_seed(5)
        draw = partial(torch.randn, generator=generator, device=device, dtype=torch.bfloat16)
        self.a, self.norm = draw(rows, shape.k), 1 + draw(shape.k) / 4
        self.out = [self.a.new_empty(rows, shape.n // (1 + shape.gated)) for _ in weights]
        self.epilogue = EMPTY._replace(activation=tl.constexpr("swiglu")) if shape.gated else EMPTY

    def ours(self, i: int, cut: Cut | None = None) -> torch.Tensor:
        norm = self.norm if self.shape.normed else None
        launch(self.a, self.weights[i].t(), self.out[i], norm, self.epilogue, EPS, cut)
        return self.out[i]

    def by_cublas(self, i: int) -> torch.Tensor:
        return torch.nn.functional.linear(self.a, self.weights[i])

    def by_torch(self, weight: torch.Tensor) -> torch.Tensor:
        a = self.a
        if self.shape.normed:
            a = torch.nn.functional.rms_norm(a, self.norm.shape, self.norm, EPS)
        y = torch.nn.functional.linear(a, weight)
        if self.shape.gated:
            gate, up = y.unflatten(-1, (-1, 2)).unbind(-1)
            y = torch.nn.functional.silu(gate) * up
        return y


def contenders_of(case: Case, candidates: bool) -> dict[str, Contender]:
    rows, shape = case.a.shape[0], case.shape
    contenders: dict[str, Contender] = {}
    chosen = cut_for(max(16, int(triton.next_power_of_2(rows))), shape.n, 2, sms())
    if not shape.normed or rows <= MAX_ROWS_OF_NORM:
        contenders["ours"] = case.ours
        for cut in CUTS if candidates else ():
            if cut != chosen and triton.cdiv(shape.n, cut.block_n) <= 3 * sms():
                contenders[named(cut)] = partial(case.ours, cut=cut)
    compile_ = compiled(case.by_torch)
    contenders["torch.compile"] = lambda i: compile_(case.weights[i])
    return contenders


def named(cut: Cut) -> str:
    return f"ours, {cut.block_n} columns x {cut.block_k}, {cut.warps} warps{', turned' if cut.turned else ''}"


def measure(bench: Bench, shape: Shape, rows: list[int], memory: float, candidates: bool) -> None:
    sets = 1 + CACHE_BYTES // (2 * shape.n * shape.k)
    generator = torch.Generator(bench.world.device).manual_seed(3)
    draw = partial(torch.randn, generator=generator, device=bench.world.device, dtype=torch.bfloat16)
    weights = [draw(shape.n, shape.k) / shape.k**0.5 for _ in range(sets)]
    bound = 2 * shape.n * shape.k / memory
    for m in rows:
        case = Case(shape, m, weights)
        expected = [case.by_torch(weight) for weight in weights]
        title = f"{shape.name}, {m} x {shape.k} x {shape.n}"
        bench.compare(
            title, contenders_of(case, candidates), check=lambda y, i, expected=expected: differs(y, expected[i]),
            sets=sets, bound=bound,
        )  # fmt: skip
        if shape.normed:
            by_cublas = [case.by_cublas(i) for i in range(sets)]
            bench.compare(
                f"{title}, the GEMM alone", {"cuBLAS": case.by_cublas},
                check=lambda y, i, expected=by_cublas: differs(y, expected[i]), sets=sets, bound=bound,
            )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", action="store_true", help="time other cuts, too")
    parser.add_argument("--only", default="", help="of shapes whose name has this text")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    shapes = [shape for shape in SHAPES if args.only in shape.name]
    with session(
        "decode GEMMs", total=sum(1 + shape.normed for shape in shapes) * len(args.rows), save=args.save, least=1
    ) as bench:
        bench.say(f"{gpu().name}, {sms()} SMs")
        memory = bench.memory_rate()
        for shape in shapes:
            measure(bench, shape, args.rows, memory, args.candidates)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
