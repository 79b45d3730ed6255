"""Flash decode of a KV cache that is split along the sequence: one kernel, or a kernel, an all-gather and a combine.

    torchrun --nproc-per-node 4 benchmarks/decode.py [--save FILE]

"unfused" is our kernel on this PE's keys alone, then an all-gather of the partial results, NCCL's or ours, then the
combine as one kernel of torch.compile. The local kernel alone, and FlashInfer's where that is installed, say what the
exchange costs; they compute something else, and so are timed apart. The bound is the time in which this PE's keys and
values are read at the rate at which a large copy, reads and writes counted, or a kernel that only reads moves bytes,
whichever is higher. In the CPU world our contenders are checked at tiny sizes; nothing is timed.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from harness import Bench, compiled, session

import triton_dist
from triton_dist import World, kernels

Step = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class Size:
    """Requests, positions of each on all PEs, heads, and elements of a head."""

    requests: int
    context: int
    query_heads: int
    kv_heads: int
    dim: int

    def __str__(self) -> str:
        return f"{self.requests} × {self.context}, {self.query_heads}/{self.kv_heads} heads of {self.dim}"


SIZES = (
    *(Size(1, context, 64, 8, 128) for context in (8 << 10, 64 << 10, 1 << 20)),
    *(Size(requests, 16 << 10, 64, 8, 128) for requests in (8, 32, 64)),
    Size(256, 2 << 10, 32, 8, 128),
)


class Decode:
    """Queries and this PE's keys and values."""

    def __init__(self, world: World, size: Size) -> None:
        self.world, self.size = world, size
        self.part = -(-size.context // world.n_pes)
        shape = (size.requests, self.part, size.kv_heads, size.dim)
        self.nbytes = 2 * 2 * size.requests * self.part * size.kv_heads * size.dim
        self.sets = max(1, min(8, (512 << 20) // self.nbytes)) if world.kind == "gpu" else 1
        self.k = [self.random(*shape, seed=10 * i + 1000 * world.pe + 1) for i in range(self.sets)]
        self.v = [self.random(*shape, seed=10 * i + 1000 * world.pe + 2) for i in range(self.sets)]
        self.q = [self.random(size.requests, size.query_heads, size.dim, seed=10 * i) for i in range(self.sets)]
        self.lengths = torch.full((size.requests,), size.context, dtype=torch.int32, device=world.device)
        length = max(0, min(self.part, size.context - self.part * world.pe))
        self.local_lengths = torch.full_like(self.lengths, length)
        self.alone = kernels.Communicator(world.team_world.split_2d(1)[0])
        self.combine: Any = compiled(combined) if world.kind == "gpu" else combined

    def random(self, *shape: int, seed: int) -> torch.Tensor:
        device = self.world.device
        generator = torch.Generator(device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.bfloat16)

    def fused(self, i: int) -> torch.Tensor:
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.lengths)[0]

    def scattered(self, i: int) -> torch.Tensor:
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.lengths, scatter_heads=True)[0]

    def local(self, i: int) -> torch.Tensor:
        """This PE's partial result: [requests, heads, dim + 1] in float32, divided already, and its logarithm."""
        out, lse = kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.local_lengths, group=self.alone)
        return torch.cat([out.float(), lse[:, :, None]], 2)

    def gathered(self, i: int) -> torch.Tensor:
        part = self.local(i)
        whole = part.new_empty(self.world.n_pes, *part.shape)
        dist.all_gather_into_tensor(whole.flatten(0, 1), part)
        result: torch.Tensor = self.combine(whole)
        return result

    def gathered_by_us(self, i: int) -> torch.Tensor:
        # The operator takes symmetric memory where a result of this size needs it.
        result: torch.Tensor = self.combine(kernels.functional.all_gather(self.local(i)[None]))
        return result

    def check(self, result: torch.Tensor, i: int) -> str | None:
        """What is wrong with a result: it is compared with the combined local ones, computed by PyTorch."""
        group = self.size.query_heads // self.size.kv_heads
        q = self.q[i].float().view(self.size.requests, self.size.kv_heads, group, -1)
        length = int(self.local_lengths[0])
        parts = []
        for request in range(self.size.requests):  # one by one: float32 copies of keys are large
            k, v = (x[i][request, :length].float() for x in (self.k, self.v))
            logits = torch.einsum("hgd,thd->hgt", q[request], k) * self.size.dim**-0.5
            out = torch.einsum("hgt,thd->hgd", logits.softmax(-1), v)
            parts.append(torch.cat([out, logits.logsumexp(-1, keepdim=True)], -1).flatten(0, 1))
        shared = triton_dist.from_tensor(torch.stack(parts))
        triton_dist.barrier_all()
        expected = combined(torch.stack([triton_dist.peer(shared, pe) for pe in range(self.world.n_pes)]))
        triton_dist.barrier_all()
        triton_dist.free(shared)
        if result.shape != expected.shape:  # heads of this PE
            expected = expected.chunk(self.world.n_pes, 1)[self.world.pe]
        error = (result.float() - expected.float()).abs().max().item() / expected.float().abs().max().item()
        return None if error < 0.03 else f"an error is {error:.3f} of the largest value"


def combined(parts: torch.Tensor) -> torch.Tensor:
    """The whole of partial results [PEs, requests, heads, dim + 1]."""
    out, lse = parts[..., :-1], parts[..., -1:]
    weights = (lse - lse.amax(0, keepdim=True)).exp()
    return ((out * weights).sum(0) / weights.sum(0)).bfloat16()


def contenders(d: Decode) -> dict[str, Step]:
    sides: dict[str, Step] = {"ours": d.fused, "ours unfused": d.gathered_by_us}
    if d.size.query_heads % d.world.n_pes == 0:
        sides["ours scatter_heads"] = d.scattered
    return sides


def flashinfer_alone(d: Decode) -> Callable[[], Any]:
    """FlashInfer's decode of this PE's keys, planned in advance, with pages of 16 positions."""
    library = importlib.import_module("flashinfer")
    size, pages = d.size, d.part // 16
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=d.world.device)
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    starts = torch.arange(size.requests + 1, dtype=torch.int32, device=d.world.device) * pages
    order = torch.arange(size.requests * pages, dtype=torch.int32, device=d.world.device)
    last = torch.full((size.requests,), 16, dtype=torch.int32, device=d.world.device)
    wrapper.plan(starts, order, last, size.query_heads, size.kv_heads, size.dim, 16, q_data_type=torch.bfloat16)
    cache = tuple(x[0].view(-1, 16, size.kv_heads, size.dim) for x in (d.k, d.v))
    return lambda: wrapper.run(d.q[0], cache)


def compare(bench: Bench, size: Size, rate: float) -> None:
    d = Decode(bench.world, size)
    sides = contenders(d) | {"NCCL all-gather + combine": d.gathered}
    bench.compare(f"flash decode {size}", sides, check=d.check, sets=d.sets, bound=d.nbytes / rate)
    alone: dict[str, Callable[[], Any]] = {"our kernel alone": lambda: d.local(0)}
    problem = ""
    try:
        alone["FlashInfer alone"] = flashinfer_alone(d)
        alone["FlashInfer alone"]()
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:120]}"
    if problem := bench.agree(problem):
        alone.pop("FlashInfer alone", None)
        bench.say(f"    FlashInfer: {problem}")
    for name, step in alone.items():
        bench.say(f"    {name:<36} {bench.time_alone(step) * 1e6:9.1f} µs")
    d.alone.close()


def check_only() -> None:
    """In the CPU world: every contender of ours computes the right thing."""
    with triton_dist.init() as world:
        d = Decode(world, Size(2, 24 * world.n_pes, 2 * world.n_pes, 1, 16))
        for name, step in contenders(d).items():
            if problem := d.check(step(0), 0):
                raise SystemExit(f"{name}: {problem}")
        d.alone.close()
        if world.pe == 0:
            print("decode: checked, not measured. The CPU world interprets kernels.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        check_only()
        return 0
    with session("flash decode", total=len(SIZES)) as bench:
        rate = bench.memory_rate()
        for size in SIZES:
            compare(bench, size, rate)
            if args.save:
                bench.save(args.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
