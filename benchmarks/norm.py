"""All-reduce + residual + RMSNorm (+ fp8): fused and unfused, against NCCL with a local norm, and FlashInfer.

    torchrun --nproc-per-node 4 benchmarks/norm.py [--columns 8192] [--rows 1 8 64 …] [--save FILE]

Beside it, timed apart, are our all-reduce alone, which says what the norm costs, and the two halves of a sequence
parallel layer: reduce-scatter + norm, and norm + all-gather (norm_shards.py). The bound is the time in which a copy
engine sends the bytes that a PE must send. In the CPU world the contenders are checked at tiny sizes, and nothing is
timed.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from harness import Bench, compiled, session
from norm_flashinfer import fused_by_flashinfer
from norm_shards import SHARDED

import triton_dist
from triton_dist import World, kernels

ROWS = (1, 8, 32, 64, 128, 512, 2048, 8192)
EPS = 1e-6
ALGORITHMS = ("one_shot", "two_shot", "unfused")
FORMS = {"plain": None, "fp8 a token": "token", "fp8 a block": "block"}

Step = Callable[[int], torch.Tensor]


class Rows:
    """Sets of partial sums and residuals, which every PE can make again."""

    def __init__(self, world: World, m: int, h: int, quantize: str | None) -> None:
        self.world, self.m, self.h, self.quantize = world, m, h, quantize
        self.sets = max(2, min(16, (128 << 20) // (m * h * 4))) if world.kind == "gpu" else 1
        self.weight = self.random(h, seed=7)
        self.x = [self.random(m, h, seed=100 * i + world.pe + 10) for i in range(self.sets)]
        self.residual = [self.random(m, h, seed=100 * i + 9) for i in range(self.sets)]

    def random(self, *shape: int, seed: int) -> torch.Tensor:
        device = self.world.device
        generator = torch.Generator(device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=device).bfloat16()

    def ours(self, algorithm: str, i: int) -> torch.Tensor:
        found = kernels.all_reduce_norm(
            self.x[i], self.weight, self.residual[i], eps=EPS, quantize=self.quantize, algorithm=algorithm
        )
        return found.output

    def check(self, result: torch.Tensor, i: int) -> str | None:
        """What is wrong with a normalised result, which was rounded to bfloat16 or fp8 in between."""
        total = sum(self.random(self.m, self.h, seed=100 * i + pe + 10).float() for pe in range(self.world.n_pes))
        total = total + self.residual[i].float()
        expected = normed(total, self.weight)
        found = result.float()
        if self.quantize:  # up to its scale, which the output lacks: compare directions
            # by length: a largest value is rounded, too, unless its scale makes it 448
            size = self.h if self.quantize == "token" else 128
            found, expected = (torch.nn.functional.normalize(v.reshape(-1, size)) for v in (found, expected))
        error = (found - expected).abs().max().item() / expected.abs().max().item()
        limit = 0.08 if self.quantize else 0.03
        return None if error <= limit else f"an error is {error:.3f} of the largest value"


def normed(total: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS) * weight.float()


def add_norm(
    total: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, quantize: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch.compile makes one kernel of."""
    new = (total.float() + residual.float()).bfloat16()
    y = normed(new.float(), weight)
    if quantize is None:
        return y.bfloat16(), new
    pieces = y.view(-1, y.shape[1] if quantize == "token" else 128)
    scale = (pieces.abs().amax(1, keepdim=True) / 448).clamp(min=1e-12)
    return (pieces / scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(y.shape), new


def peers(rows: Rows) -> tuple[dict[str, Step], Callable[[], None]]:
    """NCCL's all-reduce, and what follows as one local kernel; and what restores the tensors that they work on."""
    one_kernel = compiled(add_norm)
    names = ("torch.compile", "FlashInfer")
    places = {name: [(x.clone(), r.clone()) for x, r in zip(rows.x, rows.residual, strict=True)] for name in names}

    def fresh() -> None:
        for pairs in places.values():
            for (place, residual), x, r in zip(pairs, rows.x, rows.residual, strict=True):
                place.copy_(x)
                residual.copy_(r)

    def nccl(i: int) -> torch.Tensor:
        total, residual = places["torch.compile"][i]
        dist.all_reduce(total)
        result: torch.Tensor = one_kernel(total, residual, rows.weight, rows.quantize)[0]
        return result

    contenders: dict[str, Step] = {"NCCL + torch.compile": nccl}
    if rows.quantize is None:

        def flashinfer(i: int) -> torch.Tensor:
            library = importlib.import_module("flashinfer")  # where it is missing, its error is the reason
            total, residual = places["FlashInfer"][i]
            dist.all_reduce(total)
            library.fused_add_rmsnorm(total, residual, rows.weight, EPS)
            return total

        contenders["NCCL + FlashInfer's norm"] = flashinfer
    return contenders, fresh


def contenders_of(rows: Rows) -> dict[str, Step]:
    contenders: dict[str, Step] = {"ours": partial(rows.ours, "auto")}
    return contenders | {f"ours {algorithm}": partial(rows.ours, algorithm) for algorithm in ALGORITHMS}


def compare(bench: Bench, m: int, h: int, rate: float, form: str) -> None:
    rows = Rows(bench.world, m, h, FORMS[form])
    sent = 2 * m * h * 2 * (bench.world.n_pes - 1) / bench.world.n_pes
    theirs, fresh = peers(rows)
    title = f"all_reduce_norm {m} × {h}" + (f", {form}" if FORMS[form] else "")
    with fused_by_flashinfer(bench, rows, EPS) as fused:
        contenders = contenders_of(rows) | theirs | fused
        bench.compare(title, contenders, check=rows.check, sets=rows.sets, bound=sent / rate, fresh=fresh)


def compare_alone(bench: Bench, m: int, h: int, rate: float) -> None:
    """The all-reduce without a norm, into symmetric memory."""
    rows = Rows(bench.world, m, h, None)
    outs = [triton_dist.empty(m, h, dtype=torch.bfloat16) for _ in range(rows.sets)]
    places = [x.clone() for x in rows.x]

    def nccl(i: int) -> torch.Tensor:
        dist.all_reduce(places[i])
        return places[i]

    def fresh() -> None:
        for place, x in zip(places, rows.x, strict=True):
            place.copy_(x)

    def check(result: torch.Tensor, i: int) -> str | None:
        total = sum(rows.random(m, h, seed=100 * i + pe + 10).float() for pe in range(bench.world.n_pes))
        error = (result.float() - total).abs().max().item() / total.abs().max().item()
        return None if error <= 0.01 else f"an error is {error:.3f} of the largest value"

    contenders = {"ours": lambda i: kernels.all_reduce(rows.x[i], out=outs[i]), "NCCL": nccl}
    sent = 2 * m * h * 2 * (bench.world.n_pes - 1) / bench.world.n_pes
    bench.compare(f"all_reduce {m} × {h}", contenders, check=check, sets=rows.sets, bound=sent / rate, fresh=fresh)
    triton_dist.barrier_all()
    for out in outs:
        triton_dist.free(out)


def compare_sharded(bench: Bench, m: int, h: int, rate: float) -> None:
    for operation in SHARDED:
        rows = operation(bench.world, m, h, EPS)
        title, contenders = f"{rows.name} {rows.m} × {h}", rows.contenders() | rows.peers(add_norm)
        bench.compare(title, contenders, check=rows.check, sets=rows.sets, bound=rows.sent / rate)


def check_only() -> None:
    """In the CPU world: every contender of ours computes the right thing."""
    with triton_dist.init() as world:
        for form, quantize in FORMS.items():
            rows = Rows(world, 3, 256, quantize)
            for name, step in contenders_of(rows).items():
                if problem := rows.check(step(0), 0):
                    raise SystemExit(f"{name}{form}: {problem}")
        for operation in SHARDED:
            shards = operation(world, 3 * world.n_pes, 256, EPS)
            for name, step in shards.contenders().items():
                if problem := shards.check(step(0), 0):
                    raise SystemExit(f"{shards.name}, {name}: {problem}")
        if world.pe == 0:
            print("norm: checked, not measured. The CPU world interprets kernels.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--only", nargs="+", help='of "plain", "fp8 a token", "fp8 a block", "alone", "shards"')
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        check_only()
        return 0
    os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "4G")
    forms = {form: partial(compare, form=form) for form in FORMS}
    runs = {**forms, "alone": compare_alone, "shards": compare_sharded}
    if unknown := set(args.only or ()) - set(runs):
        parser.error(f"--only knows {', '.join(runs)}, not {', '.join(sorted(unknown))}")
    chosen = [run for name, run in runs.items() if name in (args.only or runs)]
    with session("fused norms", save=args.save) as bench:
        rate = bench.copy_engine_rate()
        for run in chosen:
            for m in args.rows:
                run(bench, m, args.columns, rate=rate)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
