"""Flash decode of a KV cache that is split along the sequence, or by heads, then with the output projection.

    torchrun --nproc-per-node 4 benchmarks/decode.py [--save FILE]

Along the sequence, "unfused" is our kernel on this PE's keys alone, then an all-gather of the partial results, NCCL's
or ours, then the combine as one kernel of torch.compile. The local kernel, and FlashInfer's where that is installed,
say what the exchange costs, and our kernel with all keys on one GPU how decoding scales; they compute something else,
and so are timed apart. The bound is the time in which this PE's keys and values are read at the rate at which a large
copy, reads and writes counted, or a kernel that only reads moves bytes, whichever is higher.

By heads, "ours" is flash_decode_projection with a residual: flash decode, then the small-M GEMM with its all-reduce.
The others have the same flash decode, then cuBLAS, then our all-reduce or NCCL's, then the addition of the residual.
The bound counts the bytes of the weight, too.

On one GPU it is the local kernel that is timed, with and without pages, beside PyTorch's attention and, where it is
installed, FlashInfer's, which has a kernel for CUDA cores and one for tensor cores.

In the CPU world our contenders are checked at tiny sizes; nothing is timed.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
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

LOCAL = (
    *(Size(1, context, 64, 8, 128) for context in (1 << 10, 4 << 10, 32 << 10, 128 << 10, 1 << 20)),
    *(Size(requests, 8 << 10, 64, 8, 128) for requests in (8, 32, 64)),
    Size(33, 5000, 32, 8, 128),
    Size(256, 2 << 10, 32, 8, 128),
)
"""On one GPU."""

PAGE = 16
"""Positions."""

BY_HEADS = (
    *(Size(1, context, 64, 8, 128) for context in (4 << 10, 64 << 10)),
    *(Size(requests, 8 << 10, 64, 8, 128) for requests in (8, 32, 64)),
)
"""Where PEs share the heads: those of all PEs together."""


@functools.cache
def alone(world: World) -> kernels.Communicator:
    """A communicator of this PE only. It is made once: NVSHMEM has few teams."""
    return kernels.Communicator(world.team_world.split_2d(1)[0])


def random(world: World, *shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(world.device).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=world.device, dtype=torch.bfloat16)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one request, in float32: [heads, dim], and the logarithms of the sums, [heads, 1]."""
    queries = q.float().unflatten(0, (k.shape[1], -1))
    logits = torch.einsum("hgd,thd->hgt", queries, k.float()) * q.shape[1] ** -0.5
    out = torch.einsum("hgt,thd->hgd", logits.softmax(-1), v.float())
    return out.flatten(0, 1), logits.logsumexp(-1, keepdim=True).flatten(0, 1)


def of_all_pes(world: World, part: torch.Tensor) -> torch.Tensor:
    """Every PE's ``part``, in PE order."""
    shared = triton_dist.from_tensor(part)
    triton_dist.barrier_all()
    parts = torch.stack([triton_dist.peer(shared, pe) for pe in range(world.n_pes)])
    triton_dist.barrier_all()
    triton_dist.free(shared)
    return parts


def differs(result: torch.Tensor, expected: torch.Tensor) -> str | None:
    error = (result.float() - expected.float()).abs().max().item() / expected.float().abs().max().item()
    return None if error < 0.03 else f"an error is {error:.3f} of the largest value"


class Decode:
    """Queries and this PE's keys and values."""

    def __init__(self, world: World, size: Size) -> None:
        self.world, self.size = world, size
        self.part = -(-size.context // world.n_pes)
        shape = (size.requests, self.part, size.kv_heads, size.dim)
        self.nbytes = 2 * 2 * size.requests * self.part * size.kv_heads * size.dim
        self.sets = max(1, min(8, (512 << 20) // self.nbytes)) if world.kind == "gpu" else 1
        self.k = [random(world, *shape, seed=10 * i + 1000 * world.pe + 1) for i in range(self.sets)]
        self.v = [random(world, *shape, seed=10 * i + 1000 * world.pe + 2) for i in range(self.sets)]
        self.q = [random(world, size.requests, size.query_heads, size.dim, seed=10 * i) for i in range(self.sets)]
        self.lengths = torch.full((size.requests,), size.context, dtype=torch.int32, device=world.device)
        length = max(0, min(self.part, size.context - self.part * world.pe))
        self.local_lengths = torch.full_like(self.lengths, length)
        pages = self.part // PAGE
        self.pages = torch.arange(size.requests * pages, dtype=torch.int32, device=world.device).view(-1, max(1, pages))
        self.this_pe = alone(world)
        self.combine: Any = compiled(combined) if world.kind == "gpu" else combined

    def fused(self, i: int) -> torch.Tensor:
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.lengths)[0]

    def paged(self, i: int) -> torch.Tensor:
        """The same keys and values as pages."""
        k, v = (x[i].view(-1, PAGE, *x[i].shape[2:]) for x in (self.k, self.v))
        pages = self.pages
        return kernels.flash_decode(self.q[i], k, v, self.lengths, block_table=pages, interleave=self.part)[0]

    def scattered(self, i: int) -> torch.Tensor:
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.lengths, scatter_heads=True)[0]

    def local_decode(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This PE's partial result, divided already, and its logarithm."""
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.local_lengths, group=self.this_pe)

    def local(self, i: int) -> torch.Tensor:
        """The same as one float32 tensor, [requests, heads, dim + 1]."""
        out, lse = self.local_decode(i)
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
        length = int(self.local_lengths[0])
        parts = []
        for request in range(self.size.requests):  # one by one: float32 copies of keys are large
            k, v = (x[i][request, :length] for x in (self.k, self.v))
            parts.append(torch.cat(attention(self.q[i][request], k, v), -1))
        expected = combined(of_all_pes(self.world, torch.stack(parts)))
        if result.shape != expected.shape:  # heads of this PE
            expected = expected.chunk(self.world.n_pes, 1)[self.world.pe]
        return differs(result, expected)


class ByHeads:
    """Queries, keys and values of this PE's heads, its rows of the output projection's weight, and a residual."""

    def __init__(self, world: World, size: Size, hidden: int) -> None:
        self.world, self.size = world, size
        heads, kv_heads = size.query_heads // world.n_pes, size.kv_heads // world.n_pes
        shape = (size.requests, size.context, kv_heads, size.dim)
        weight = (heads * size.dim, hidden)
        self.nbytes = 2 * (2 * size.requests * size.context * kv_heads * size.dim + weight[0] * hidden)
        self.sets = max(1, min(8, (512 << 20) // self.nbytes)) if world.kind == "gpu" else 1
        seeds = [10 * i + 1000 * world.pe for i in range(self.sets)]
        self.q = [random(world, size.requests, heads, size.dim, seed=seed) for seed in seeds]
        self.k = [random(world, *shape, seed=seed + 1) for seed in seeds]
        self.v = [random(world, *shape, seed=seed + 2) for seed in seeds]
        self.weight = [random(world, *weight, seed=seed + 3) * weight[0] ** -0.5 for seed in seeds]
        self.residual = random(world, size.requests, hidden, seed=9)
        self.lengths = torch.full((size.requests,), size.context, dtype=torch.int32, device=world.device)
        self.this_pe = alone(world)
        self.summed = triton_dist.empty(size.requests, hidden, dtype=torch.bfloat16)
        """A partial sum that becomes the sum; symmetric, as our all-reduce wants larger ones."""

    def fused(self, i: int) -> torch.Tensor:
        return kernels.flash_decode_projection(
            self.q[i], self.k[i], self.v[i], self.lengths, self.weight[i], residual=self.residual
        )

    def nccl(self, i: int) -> torch.Tensor:
        part = self.attention(i) @ self.weight[i]
        dist.all_reduce(part)
        return part.add_(self.residual)

    def ours_unfused(self, i: int) -> torch.Tensor:
        part = torch.mm(self.attention(i), self.weight[i], out=self.summed)
        return kernels.all_reduce(part) + self.residual

    def attention(self, i: int) -> torch.Tensor:
        return kernels.flash_decode(self.q[i], self.k[i], self.v[i], self.lengths, group=self.this_pe)[0].flatten(1)

    def check(self, result: torch.Tensor, i: int) -> str | None:
        parts = [attention(*row)[0].flatten() for row in zip(self.q[i], self.k[i], self.v[i], strict=True)]
        product = torch.stack(parts) @ self.weight[i].float()
        return differs(result, of_all_pes(self.world, product).sum(0) + self.residual.float())


def combined(parts: torch.Tensor) -> torch.Tensor:
    """The whole of partial results [PEs, requests, heads, dim + 1]."""
    out, lse = parts[..., :-1], parts[..., -1:]
    weights = (lse - lse.amax(0, keepdim=True)).exp()
    return ((out * weights).sum(0) / weights.sum(0)).bfloat16()


def contenders_of(d: Decode) -> dict[str, Step]:
    contenders: dict[str, Step] = {"ours": d.fused, f"ours, pages of {PAGE}": d.paged, "ours unfused": d.gathered_by_us}
    if d.size.query_heads % d.world.n_pes == 0:
        contenders["ours scatter_heads"] = d.scattered
    return contenders


FLASHINFER = {"FlashInfer": False, "FlashInfer, tensor cores": True}


def local_flashinfer(d: Decode, tensor_cores: bool) -> Step:
    """FlashInfer's decode of this PE's keys, planned in advance, with pages."""
    library = importlib.import_module("flashinfer")
    size, pages = d.size, d.part // PAGE
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device=d.world.device)
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=tensor_cores)
    starts = torch.arange(size.requests + 1, dtype=torch.int32, device=d.world.device) * pages
    last = torch.full((size.requests,), PAGE, dtype=torch.int32, device=d.world.device)
    wrapper.plan(
        starts, d.pages.flatten(), last, size.query_heads, size.kv_heads, size.dim, PAGE, q_data_type=torch.bfloat16
    )

    def step(i: int) -> torch.Tensor:
        found: torch.Tensor = wrapper.run(
            d.q[i], tuple(x[i].view(-1, PAGE, size.kv_heads, size.dim) for x in (d.k, d.v))
        )
        return found

    return step


def compare(bench: Bench, size: Size, rate: float) -> None:
    d = Decode(bench.world, size)
    contenders = contenders_of(d) | {"NCCL all-gather + combine": d.gathered}
    entry = bench.compare(f"flash decode {size}", contenders, check=d.check, sets=d.sets, bound=d.nbytes / rate)
    local: dict[str, Callable[[int], Any]] = {"our local kernel": d.local_decode}
    for name, tensor_cores in FLASHINFER.items():
        problem = ""
        try:
            local[f"local {name}"] = local_flashinfer(d, tensor_cores)
            local[f"local {name}"](0)
        except Exception as error:
            problem = f"{type(error).__name__}: {str(error)[:120]}"
        if problem := bench.agree(problem):
            local.pop(f"local {name}", None)
            bench.say(f"    {name}: {problem}")
    times = {name: time_in_turns(bench, d, step) for name, step in local.items()}
    one = Decode(bench.world, replace(size, context=size.context * bench.world.n_pes))  # all keys on every PE
    times["ours on one GPU, all keys"] = time_in_turns(bench, one, one.local_decode)
    for name, seconds in times.items():
        bench.say(f"    {name:<36} {seconds * 1e6:9.1f} µs")
        entry.alone[name] = seconds * 1e6


def time_in_turns(bench: Bench, d: Decode, step: Callable[[int], Any]) -> float:
    """Seconds of one call, of calls that take the sets of buffers in turns as those that are compared do."""
    turns = itertools.cycle(range(d.sets))
    return bench.time_alone(lambda: step(next(turns)), calls=max(4, d.sets))


def attention_of_torch(d: Decode, i: int) -> torch.Tensor:
    """PyTorch's attention of all positions, by the library that it chooses."""
    q, k, v = d.q[i][:, :, None], d.k[i].transpose(1, 2), d.v[i].transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)[:, :, 0]


def compare_local(bench: Bench, size: Size, rate: float) -> None:
    d = Decode(bench.world, size)
    contenders: dict[str, Step] = {"ours": d.fused, "torch's attention": lambda i: attention_of_torch(d, i)}
    if d.part % PAGE == 0:
        contenders[f"ours, pages of {PAGE}"] = d.paged
        for name, tensor_cores in FLASHINFER.items():
            try:
                contenders[name] = local_flashinfer(d, tensor_cores)
            except Exception as error:
                bench.say(f"    {name}: {type(error).__name__}: {str(error)[:120]}")
    bench.compare(f"local flash decode {size}", contenders, check=d.check, sets=d.sets, bound=d.nbytes / rate)


def compare_by_heads(bench: Bench, size: Size, rate: float) -> None:
    d = ByHeads(bench.world, size, size.query_heads * size.dim)
    contenders = {"ours": d.fused, "ours unfused": d.ours_unfused, "cuBLAS + NCCL all-reduce": d.nccl}
    title = f"flash decode by heads + projection {size}"
    bench.compare(title, contenders, check=d.check, sets=d.sets, bound=d.nbytes / rate)
    triton_dist.free(d.summed)


def check_only() -> None:
    """In the CPU world: every contender of ours computes the right thing."""
    with triton_dist.init() as world:
        d = Decode(world, Size(2, 2 * PAGE * world.n_pes, 2 * world.n_pes, 1, 16))
        by_heads = ByHeads(world, Size(2, 24, 4 * world.n_pes, 2 * world.n_pes, 16), 32)
        contenders = [(d, name, step) for name, step in contenders_of(d).items()]
        contenders += [(by_heads, "by heads", by_heads.fused), (by_heads, "by heads, unfused", by_heads.ours_unfused)]
        for of, name, step in contenders:
            if problem := of.check(step(0), 0):
                raise SystemExit(f"{name}: {problem}")
        if world.pe == 0:
            print("decode: checked, not measured. The CPU world interprets kernels.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", help="where to write the figures, as JSON")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        check_only()
        return 0
    with session("flash decode", least=1) as bench:
        rate = bench.memory_rate()
        runs = [(compare, size) for size in SIZES] + [(compare_by_heads, size) for size in BY_HEADS]
        if bench.world.n_pes == 1:
            runs = [(compare_local, size) for size in LOCAL]
        for run, size in runs:
            run(bench, size, rate)
            if args.save:
                bench.save(args.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
