"""Grouped GEMMs of one GPU: how near the rate of its memory with few rows an expert, and a dense GEMM's with many.

    torchrun --nproc-per-node 1 benchmarks/grouped_gemm.py [--candidates] [--only TEXT] [--rows N ...] [--save FILE]

Both GEMMs of the experts of Qwen3-30B-A3B (64 of 128, as on 2 GPUs) and of DeepSeek-V3 (32 of 256, as on 8). Experts
have equally many rows; then as many on average, drawn as a router without preferences would. The bound is the longer of
two times: that of reading the matrices and rows and writing the results once, at the rate that a kernel reads memory
here, and that of the operations, at the rate of a large dense GEMM here. The peers are torch's grouped GEMM, and cuBLAS
with as many rows and a single matrix, which is what a dense layer of this size would take.

--candidates also times tiles that the choice does not take.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import NamedTuple

import torch
from harness import Bench, Side, session
from moe_slices import differs

from triton_dist.kernels import moe
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import grouped_gemm as hopper
from triton_dist.kernels.gemm.portable import programs
from triton_dist.kernels.moe.grouped_gemm import Tile, multiply_tiles
from triton_dist.kernels.moe.swiglu import swiglu_of_rows


class Shape(NamedTuple):
    name: str
    experts: int
    inner: int
    columns: int
    gated: bool
    """Whether half of the columns are gates."""


SHAPES = (
    Shape("Qwen3-30B-A3B, gate and up", 64, 2048, 1536, True),
    Shape("Qwen3-30B-A3B, down", 64, 768, 2048, False),
    Shape("DeepSeek-V3, gate and up", 32, 7168, 4096, True),
    Shape("DeepSeek-V3, down", 32, 2048, 7168, False),
)
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DRAWN = (8, 64, 128, 256, 512)
"""Rows of an expert on average, where they are drawn."""

CONFIGS = (
    Config(64, 256, 4, 1),
    Config(64, 128, 8, 1),
    Config(128, 256, 3, 2),
    Config(128, 128, 6, 2),
)
"""Of the Hopper kernel."""

TILES = (
    Tile(128, 128, 64, 8, 3, 1),
    Tile(64, 128, 64, 4, 4, 2),
    Tile(32, 128, 64, 4, 5, 2),
    Tile(16, 128, 128, 4, 3, 2),
)
"""Of the portable kernel."""


class Case:
    """Rows and matrices of one GEMM."""

    def __init__(self, shape: Shape, counts: torch.Tensor, b: torch.Tensor) -> None:
        self.shape, self.b = shape, b
        self.counts = counts.int()
        self.ends = self.counts.cumsum(0).int()
        self.offsets = torch.cat([self.ends.new_zeros(1), self.ends])
        generator = torch.Generator(b.device).manual_seed(5)
        rows = int(self.ends[-1].item())
        self.a = torch.randn(rows, shape.inner, generator=generator, device=b.device, dtype=b.dtype)
        self.out = self.a.new_empty(rows, shape.columns)

    def expected(self) -> torch.Tensor:
        parts = self.a.split(self.counts.tolist())
        return torch.cat([part @ matrix for part, matrix in zip(parts, self.b, strict=True)])

    def nbytes(self) -> int:
        used = int((self.counts > 0).sum().item()) * self.b[0].numel()
        return 2 * (used + self.a.numel() + self.out.numel())

    def flops(self) -> int:
        return 2 * self.a.numel() * self.shape.columns

    def ours(self, _: int) -> torch.Tensor:
        return moe.grouped_gemm(self.a, self.b, self.offsets, self.counts, out=self.out)

    def with_config(self, config: Config, _: int) -> torch.Tensor:
        hopper.run_grouped(self.a, self.b, self.out, None, None, self.offsets, self.counts, config, programs())
        return self.out

    def with_tile(self, tile: Tile, _: int) -> torch.Tensor:
        multiply_tiles(self.a, self.b, self.out, None, None, self.offsets, self.counts, "none", tile)
        return self.out

    def with_swiglu(self, _: int) -> torch.Tensor:
        return moe.grouped_gemm(self.a, self.b, self.offsets, self.counts, swiglu=True)

    def then_swiglu(self, _: int) -> torch.Tensor:
        return swiglu_of_rows(self.ours(0), self.offsets)

    def by_torch_with_swiglu(self, _: int) -> torch.Tensor:
        gate, up = self.by_torch(0).chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    def by_torch(self, _: int) -> torch.Tensor:
        return torch._grouped_mm(self.a, self.b, offs=self.ends)

    def dense(self, _: int) -> torch.Tensor:
        return torch.matmul(self.a, self.b[0], out=self.out)


def sides_of(case: Case, candidates: bool) -> dict[str, Side]:
    sides: dict[str, Side] = {"ours": case.ours, "torch._grouped_mm": case.by_torch}
    if candidates:
        average = case.a.shape[0] // case.shape.experts
        for config in CONFIGS if hopper.fits_grouped(case.a, case.b, case.out, "none") else ():
            if config.block_m > 64 or average <= 512:
                name = f"ours, {config.block_m} x {config.block_n}, {config.stages} stages"
                sides[name] = partial(case.with_config, config)
        for tile in TILES:
            if average <= 2 * tile.block_m:
                name = "ours, portable, " + " ".join(map(str, tile))
                sides[name] = partial(case.with_tile, tile)
    return sides


def matrices(shape: Shape, device: torch.device) -> torch.Tensor:
    """[L, K, N] with contiguous columns, as weights of linear layers are when they are transposed."""
    generator = torch.Generator(device).manual_seed(3)
    made = torch.empty(shape.experts, shape.columns, shape.inner, dtype=torch.bfloat16, device=device)
    for matrix in made:  # one by one, as float32 takes twice the memory
        matrix.copy_(torch.randn(matrix.shape, generator=generator, device=device) / shape.inner**0.5)
    return made.transpose(1, 2)


def dense_rate(bench: Bench) -> float:
    """Operations a second of a large GEMM by cuBLAS."""
    a = torch.randn(8192, 8192, device=bench.world.device, dtype=torch.bfloat16)
    b, c = torch.randn_like(a), torch.empty_like(a)
    rate = 2 * 8192**3 / bench.time_alone(lambda: torch.matmul(a, b.t(), out=c))
    bench.say(f"cuBLAS, 8192 x 8192 x 8192: {rate / 1e12:.0f} TFLOP/s")
    return rate


def measure(bench: Bench, shape: Shape, rows: list[int], memory: float, flops: float, candidates: bool) -> None:
    b = matrices(shape, bench.world.device)
    equal = [(n, torch.full((shape.experts,), n, device=b.device)) for n in rows]
    generator = torch.Generator().manual_seed(11)
    drawn = []
    for n in rows:
        if n in DRAWN:
            experts = torch.randint(shape.experts, (n * shape.experts,), generator=generator)
            drawn.append((n, torch.bincount(experts, minlength=shape.experts).to(b.device)))
    for kind, cases in (("an expert", equal), ("an expert on average", drawn)):
        for n, counts in cases:
            case = Case(shape, counts, b)
            expected = case.expected()
            bound = max(case.nbytes() / memory, case.flops() / flops)
            title = f"{shape.name}, {shape.experts} x {shape.inner} x {shape.columns}, {n} rows {kind}"
            entry = bench.compare(
                title, sides_of(case, candidates), check=lambda y, _, expected=expected: differs(y, expected),
                calls=4, bound=bound,
            )  # fmt: skip
            dense = bench.time_alone(lambda case=case: case.dense(0)) * 1e6
            best = entry.best(ours=True)
            of_dense = "" if best is None else f"; of its rate {dense / entry.timings[best].median:.2f} ({best})"
            bench.say(f"    cuBLAS, one matrix                   {dense:9.1f} µs{of_dense}")
            if shape.gated:
                gate, up = expected.float().chunk(2, dim=-1)
                expected = (torch.nn.functional.silu(gate) * up).bfloat16()
                sides: dict[str, Side] = {
                    "ours": case.with_swiglu,
                    "ours, two kernels": case.then_swiglu,
                    "torch._grouped_mm, silu, product": case.by_torch_with_swiglu,
                }
                bench.compare(
                    f"{title}, SwiGLU", sides, check=lambda y, _, expected=expected: differs(y, expected), calls=4
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", action="store_true", help="time other tiles, too")
    parser.add_argument("--only", default="", help="of shapes whose name has this text")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="of an expert")
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    shapes = [shape for shape in SHAPES if args.only in shape.name]
    total = sum(1 + shape.gated for shape in shapes) * sum(1 + (n in DRAWN) for n in args.rows)
    with session("grouped GEMM", total=total, save=args.save, least=1) as bench:
        memory, flops = bench.memory_rate(), dense_rate(bench)
        for shape in shapes:
            measure(bench, shape, args.rows, memory, flops, args.candidates)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
