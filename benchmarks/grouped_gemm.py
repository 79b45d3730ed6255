"""Grouped GEMMs of one GPU: how near the rate of its memory with few rows an expert, and a dense GEMM's with many.

    torchrun --nproc-per-node 1 benchmarks/grouped_gemm.py [--candidates] [--only TEXT] [--rows N ...] [--save FILE]
    torchrun --nproc-per-node 1 benchmarks/grouped_gemm.py --scales blocks [--only DeepSeek] [--rows 64 128 1024]

Both GEMMs of the experts of Qwen3-30B-A3B and Qwen3-235B-A22B (64 of 128, as on 2 GPUs), of DeepSeek-V3 (32 of 256, as
on 8) and of Mixtral-8x7B (4 of 8). Experts have equally many rows; then as many on average, drawn as a router without
preferences would. The bound is the longer of two times: that of reading the matrices and rows and writing the results
once, at the rate that a kernel reads memory here, and that of the operations, at the rate of a large dense GEMM here.
The peers are torch's grouped GEMM, and cuBLAS with as many rows and a single matrix, as a dense layer of this size
would have.

With --scales operands are fp8, with scales of rows, or of blocks as DeepSeek-V3's. Beside what is chosen stands the
portable kernel; torch has grouped GEMMs for scales of rows only. The dense GEMMs of as many rows, with the same scales,
are torch's and our own. They are a comparison of their own, as they compute something else; their results are checked.

--candidates also times tiles that the choice does not take.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from fp8_operands import FP8, dense_contenders, dequantised, quantised_matrix, quantised_rows
from harness import Bench, Contender, Entry, session
from moe_slices import differs

from triton_dist.kernels import moe
from triton_dist.kernels.device import gpu
from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper import grouped_gemm as hopper
from triton_dist.kernels.gemm.portable import programs
from triton_dist.kernels.moe.grouped_gemm import Tile, multiply_tiles, portable_tile
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
    Shape("Qwen3-235B-A22B, gate and up", 64, 4096, 3072, True),
    Shape("Qwen3-235B-A22B, down", 64, 1536, 4096, False),
    Shape("Mixtral-8x7B, gate and up", 4, 4096, 28672, True),
    Shape("Mixtral-8x7B, down", 4, 14336, 4096, False),
)
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DRAWN = (8, 64, 128, 256, 512, 1024)
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


class Matrices(NamedTuple):
    """Of all experts: [L, K, N] with contiguous columns, as weights of linear layers are when they are transposed."""

    b: torch.Tensor
    scales: torch.Tensor | None
    """[L, N] or [L, N / 128, K / 128] float32, if they are of fp8."""
    form: str
    """What scales are of: none, rows or blocks."""

    def exact(self, expert: int) -> torch.Tensor:
        """The matrix of an expert, with its scales."""
        if self.scales is None:
            return self.b[expert]
        return dequantised(self.b[expert].t(), self.of_expert(expert)).t()

    def of_expert(self, expert: int) -> torch.Tensor:
        """The scales of an expert: [N, 1] or [N / 128, K / 128]."""
        assert self.scales is not None
        found = self.scales[expert]
        return found[:, None] if self.form == "rows" else found


class Case:
    """Rows and matrices of one GEMM."""

    def __init__(self, shape: Shape, counts: torch.Tensor, matrices: Matrices) -> None:
        self.shape, self.matrices, self.b, self.form = shape, matrices, matrices.b, matrices.form
        self.counts = counts.int()
        self.ends = self.counts.cumsum(0).int()
        self.offsets = torch.cat([self.ends.new_zeros(1), self.ends])
        device = self.b.device
        generator = torch.Generator(device).manual_seed(5)
        rows = int(self.ends[-1].item())
        dtype = torch.bfloat16 if matrices.scales is None else torch.float32
        self.a = torch.randn(rows, shape.inner, generator=generator, device=device, dtype=dtype)
        self.a_scales: torch.Tensor | None = None
        if matrices.scales is not None:
            self.a, self.a_scales = quantised_rows(self.a, self.form)
        self.out = torch.empty(rows, shape.columns, dtype=torch.bfloat16, device=device)

    @property
    def average(self) -> int:
        """Rows of an expert, as the choice of tiles counts them."""
        return -(-self.a.shape[0] // self.shape.experts)

    def exact_rows(self, begin: int = 0, end: int | None = None) -> torch.Tensor:
        """Rows of A, with their scales."""
        rows = self.a[begin:end]
        return rows if self.a_scales is None else dequantised(rows, self.a_scales[begin:end])

    def expected(self) -> torch.Tensor:
        made = torch.empty_like(self.out)
        offsets = self.offsets.tolist()
        for expert, (begin, end) in enumerate(pairwise(offsets)):
            if begin < end:
                made[begin:end] = self.exact_rows(begin, end) @ self.matrices.exact(expert)
        return made

    def nbytes(self) -> int:
        scales = [4 * each.numel() for each in (self.a_scales, self.matrices.scales) if each is not None]
        used = int((self.counts > 0).sum().item()) * self.b[0].numel()
        return self.b.itemsize * (used + self.a.numel()) + 2 * self.out.numel() + sum(scales)

    def flops(self) -> int:
        return 2 * self.a.numel() * self.shape.columns

    def operands(self) -> tuple[torch.Tensor, ...]:
        return self.a, self.b, self.offsets, self.counts

    def scales(self) -> dict[str, torch.Tensor | None]:
        return {"a_scales": self.a_scales, "b_scales": self.matrices.scales}

    def ours(self, _: int) -> torch.Tensor:
        return moe.grouped_gemm(*self.operands(), out=self.out, **self.scales())

    def with_config(self, config: Config, _: int) -> torch.Tensor:
        scales = self.a_scales, self.matrices.scales
        hopper.run_grouped(self.a, self.b, self.out, *scales, self.offsets, self.counts, config, programs())
        return self.out

    def with_tile(self, tile: Tile, _: int) -> torch.Tensor:
        return self.by_tiles(tile, self.out, False)

    def portable(self, swiglu: bool, _: int) -> torch.Tensor:
        """By the portable kernel, with the tile that it would have."""
        out = self.out.new_empty(self.out.shape[0], self.shape.columns // 2) if swiglu else self.out
        tile = portable_tile(self.a.dtype, self.out.dtype, self.form, self.average, gpu().shared_memory)
        return self.by_tiles(tile, out, swiglu)

    def by_tiles(self, tile: Tile, out: torch.Tensor, swiglu: bool) -> torch.Tensor:
        scales = self.a_scales, self.matrices.scales
        multiply_tiles(self.a, self.b, out, *scales, self.offsets, self.counts, self.form, tile, swiglu)
        return out

    def with_swiglu(self, _: int) -> torch.Tensor:
        return moe.grouped_gemm(*self.operands(), swiglu=True, **self.scales())

    def then_swiglu(self, _: int) -> torch.Tensor:
        return swiglu_of_rows(self.ours(0), self.offsets)

    def by_torch_with_swiglu(self, _: int) -> torch.Tensor:
        gate, up = self.by_torch(0).chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    def by_torch(self, _: int) -> torch.Tensor:
        """Torch's grouped GEMM. It refuses scales of blocks in its own words."""
        if self.a_scales is None:
            return torch._grouped_mm(self.a, self.b, offs=self.ends)
        of_a = self.a_scales.view(-1) if self.form == "rows" else self.a_scales
        return torch._scaled_grouped_mm(
            self.a, self.b, of_a, self.matrices.scales, offs=self.ends, out_dtype=self.out.dtype,
            use_fast_accum=self.form == "rows",
        )  # fmt: skip

    def dense(self, _: int) -> torch.Tensor:
        return torch.matmul(self.a, self.b[0], out=self.out)


def torch_name(form: str) -> str:
    """Of its function."""
    return "torch._grouped_mm" if form == "none" else "torch._scaled_grouped_mm"


def contenders_of(case: Case, candidates: bool) -> dict[str, Contender]:
    contenders: dict[str, Contender] = {"ours": case.ours, torch_name(case.form): case.by_torch}
    if case.form != "none":
        contenders["ours, portable"] = partial(case.portable, False)
    if candidates:
        average = case.a.shape[0] // case.shape.experts
        of_blocks = case.form == "blocks"
        for config in CONFIGS if hopper.fits_grouped(case.a, case.b, case.out, case.form) else ():
            if (config.block_m > 64 or average <= 512) and not (of_blocks and config.block_n > 128):
                name = f"ours, {config.block_m} x {config.block_n}, {config.stages} stages"
                contenders[name] = partial(case.with_config, replace(config, of_blocks=of_blocks))
        for tile in TILES:
            if average <= 2 * tile.block_m and not (of_blocks and tile.block_k != 128):  # a block has one scale
                name = "ours, portable, " + " ".join(map(str, tile))
                contenders[name] = partial(case.with_tile, tile)
    return contenders


def swiglu_contenders_of(case: Case) -> dict[str, Contender]:
    contenders: dict[str, Contender] = {
        "ours": case.with_swiglu,
        "ours, two kernels": case.then_swiglu,
        f"{torch_name(case.form)}, silu, product": case.by_torch_with_swiglu,
    }
    return contenders if case.form == "none" else contenders | {"ours, portable": partial(case.portable, True)}


def matrices(shape: Shape, device: torch.device, form: str = "none") -> Matrices:
    """Normally distributed, so that elements of results have a variance of about one."""
    generator = torch.Generator(device).manual_seed(3)
    dtype = torch.bfloat16 if form == "none" else FP8
    made = torch.empty(shape.experts, shape.columns, shape.inner, dtype=dtype, device=device)
    scales = []
    for matrix in made:  # one by one, as float32 takes several times the memory
        exact = torch.randn(matrix.shape, generator=generator, device=device) / shape.inner**0.5
        if form == "none":
            matrix.copy_(exact)
        else:
            rounded, of_matrix = quantised_matrix(exact, form)
            matrix.copy_(rounded)
            scales.append(of_matrix.view(-1) if form == "rows" else of_matrix)
    return Matrices(made.transpose(1, 2), torch.stack(scales) if scales else None, form)


def dense_rate(bench: Bench, form: str) -> float:
    """Operations a second of a large GEMM by cuBLAS, of fp8 with one scale."""
    a = torch.randn(8192, 8192, device=bench.world.device, dtype=torch.bfloat16)
    b, c, one = torch.randn_like(a), torch.empty_like(a), torch.ones((), device=a.device)

    def scaled() -> None:
        torch._scaled_mm(x, y.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

    x, y = a.to(FP8), b.to(FP8)
    rate = 2 * 8192**3 / bench.time_alone(scaled if form != "none" else lambda: torch.matmul(a, b.t(), out=c))
    bench.say(f"cuBLAS, 8192 x 8192 x 8192: {rate / 1e12:.0f} TFLOP/s")
    return rate


def measure_dense(bench: Bench, case: Case, title: str, entry: Entry) -> None:
    """As many rows and one matrix; and how near our grouped GEMM, of ``entry``, is to its rate."""
    best, name, dense = entry.best(ours=True), "cuBLAS, one matrix", None
    if case.a_scales is None:
        dense = bench.time_alone(lambda: case.dense(0)) * 1e6
    else:
        expected = (case.exact_rows() @ case.matrices.exact(0)).to(case.out.dtype)
        b = case.b[0].t(), case.matrices.of_expert(0)
        contenders = dense_contenders((case.a, case.a_scales), b, case.form, case.out)
        found = bench.compare(f"{title}, one matrix", contenders, check=lambda y, _: differs(y, expected), calls=4)
        if found.timings:
            name = min(found.timings, key=lambda contender: found.timings[contender].median)
            dense, best = found.timings[name].median, "ours" if "ours" in entry.timings else None
    if dense is not None:
        of_dense = "" if best is None else f"; of its rate {dense / entry.timings[best].median:.2f} ({best})"
        bench.say(f"    {name:<36} {dense:9.1f} µs{of_dense}")


def measure(
    bench: Bench, shape: Shape, rows: list[int], memory: float, flops: float, candidates: bool, form: str
) -> None:
    b = matrices(shape, bench.world.device, form)
    device = bench.world.device
    equal = [(n, torch.full((shape.experts,), n, device=device)) for n in rows]
    generator = torch.Generator().manual_seed(11)
    drawn = []
    for n in rows:
        if n in DRAWN:
            experts = torch.randint(shape.experts, (n * shape.experts,), generator=generator)
            drawn.append((n, torch.bincount(experts, minlength=shape.experts).to(device)))
    what = "" if form == "none" else f", fp8, scales of {form}"
    for kind, cases in (("an expert", equal), ("an expert on average", drawn)):
        for n, counts in cases:
            case = Case(shape, counts, b)
            expected = case.expected()
            bound = max(case.nbytes() / memory, case.flops() / flops)
            title = f"{shape.name}, {shape.experts} x {shape.inner} x {shape.columns}{what}, {n} rows {kind}"
            entry = bench.compare(
                title, contenders_of(case, candidates), check=lambda y, _, expected=expected: differs(y, expected),
                calls=4, bound=bound,
            )  # fmt: skip
            measure_dense(bench, case, title, entry)
            if shape.gated:
                gate, up = expected.float().chunk(2, dim=-1)
                expected = (torch.nn.functional.silu(gate) * up).bfloat16()
                bench.compare(
                    f"{title}, SwiGLU", swiglu_contenders_of(case),
                    check=lambda y, _, expected=expected: differs(y, expected), calls=4,
                )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", action="store_true", help="time other tiles, too")
    parser.add_argument("--only", default="", help="of shapes whose name has this text")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="of an expert")
    parser.add_argument("--scales", choices=("rows", "blocks"), help="operands of fp8 with such scales; else bfloat16")
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    shapes = [shape for shape in SHAPES if args.only in shape.name]
    form = args.scales or "none"
    each = sum(1 + shape.gated + (form != "none") for shape in shapes)
    total = each * sum(1 + (n in DRAWN) for n in args.rows)
    with session("grouped GEMM", total=total, save=args.save, least=1) as bench:
        memory, flops = bench.memory_rate(), dense_rate(bench, form)
        for shape in shapes:
            measure(bench, shape, args.rows, memory, flops, args.candidates, form)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
