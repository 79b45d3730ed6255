"""Tokens to the PEs of their experts and back: dispatch and combine against NCCL and torch's symmetric memory.

Then experts of which every PE has a slice: GEMMs that overlap with all-gather and reduce-scatter (moe_slices.py).

    torchrun --nproc-per-node 8 benchmarks/moe.py [--only decode | kraken | slices] [--save FILE]

Peers get what a model would otherwise have to make for each routing: NCCL's splits and permutations are computed before
and not timed. The bound is the time in which a copy engine sends a row to each other PE that has an expert of its
token. In the CPU world tiny sizes are computed and compared, and nothing is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from harness import Bench, Side, session
from moe_slices import SLICED, TINY_SLICED, Slices, differs, measure_slices, ours_gathering, ours_scattering

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.gemm.portable import programs

FP8 = torch.float8_e4m3fn


class Shape(NamedTuple):
    name: str
    tokens: int
    hidden: int
    num_experts: int
    top_k: int


SHAPES = (
    Shape("decode, DeepSeek-V3", 128, 7168, 256, 8),
    Shape("decode, DeepSeek-V3, few tokens", 8, 7168, 256, 8),
    Shape("decode, Qwen3-30B-A3B", 128, 2048, 128, 8),
    Shape("prefill, DeepSeek-V3", 4096, 7168, 256, 8),
)
TINY = Shape("tiny", 6, 64, 8, 2)

KRAKEN = Shape("kraken", 4096, 4096, 8, 1)
"""The case of meta-pytorch/kraken, pull request 32: bfloat16, 4096 rows of 4096 from each PE to 8 experts, 33.55 MB.

Published there for 2 H100s: dispatch 80.1 µs and combine 83.4 by Kraken, 812.8 and 165.3 by torchtitan's way, 740.0 and
621.1 by torch's symmetric memory. These are without packing tokens by expert and without weights, which ours does here,
and so do the peers.
"""


class Case:
    """The tokens and the routing of all PEs, and where each row belongs."""

    def __init__(self, shape: Shape, world: Any, dtype: torch.dtype) -> None:
        self.shape, self.world, self.dtype = shape, world, dtype
        n, self.local = world.n_pes, shape.num_experts // world.n_pes
        generator = torch.Generator().manual_seed(7)
        device = world.device
        ids = torch.rand(n, shape.tokens, shape.num_experts, generator=generator).topk(shape.top_k, dim=-1).indices
        self.all_ids = ids.to(device)
        weights = torch.randint(1, 5, ids.shape, generator=generator) / 4
        self.ids, self.weights = self.all_ids[world.pe].contiguous(), weights[world.pe].to(device)
        self.x = self.tokens_of(world.pe)
        n_scales = shape.hidden // 128 if dtype == FP8 else 0
        self.scales = torch.ones(shape.tokens, n_scales, device=device) if n_scales else None
        flat = self.all_ids.view(n, -1)
        # What NCCL needs: choices by expert, how many go to each PE and come from it, and the order by expert there.
        self.by_expert = flat[world.pe].argsort(stable=True)
        self.in_splits = torch.bincount(flat[world.pe] // self.local, minlength=n).tolist()
        here = [(row[row // self.local == world.pe]).sort(stable=True).values for row in flat]
        self.out_splits = [len(row) for row in here]
        self.order = torch.cat(here).argsort(stable=True)
        self.rows = sum(self.out_splits)
        # Whose row each is, in the order of both.
        sources = torch.arange(n, device=device)[:, None].expand_as(flat)[flat // self.local == world.pe]
        tokens = torch.arange(flat.shape[1], device=device).expand_as(flat)[flat // self.local == world.pe]
        sorted_ = flat[flat // self.local == world.pe].argsort(stable=True)
        self.sources, self.source_tokens = sources[sorted_], tokens[sorted_] // shape.top_k

    def tokens_of(self, pe: int) -> torch.Tensor:
        generator = torch.Generator(self.world.device).manual_seed(pe)
        shape, device = (self.shape.tokens, self.shape.hidden), self.world.device
        return torch.randint(-8, 9, shape, generator=generator, device=device).to(self.dtype)

    @property
    def options(self) -> dict[str, Any]:
        return {"num_experts": self.shape.num_experts, "max_tokens": self.shape.tokens, "scales": self.scales}

    def sent_bytes(self) -> float:
        """What this PE sends to others: a row for each pair of a token and a PE."""
        homes = torch.nn.functional.one_hot(self.ids // self.local, self.world.n_pes).amax(dim=1).sum(dim=0)
        homes[self.world.pe] = 0
        row = self.shape.hidden * self.dtype.itemsize + (0 if self.scales is None else 4 * self.scales.shape[1])
        return float(homes.sum().item()) * row

    def received_bytes(self) -> float:
        """What this PE gets from others, which a combine sends back, in rows like those of the dispatch."""
        own = self.all_ids.clone()
        own[self.world.pe] = -1
        here = (own // self.local == self.world.pe) & (own >= 0)
        return float(here.any(dim=-1).sum().item()) * self.shape.hidden * self.dtype.itemsize

    def check_rows(self, result: torch.Tensor, _: int) -> str | None:
        wrong = 0
        for pe in range(self.world.n_pes):
            mine = self.sources == pe
            expected = self.tokens_of(pe)[self.source_tokens[mine]]
            wrong += int((result[: self.rows][mine].float() != expected.float()).sum().item())
        return f"{wrong} elements differ" if wrong else None

    def check_tokens(self, result: torch.Tensor, _: int) -> str | None:
        expected = self.x.float() * self.weights.sum(dim=1, keepdim=True)
        excess = ((result.float() - expected).abs() - 0.02 * expected.abs()).max().item()
        return f"an error is too large by {excess:.3f}" if excess > 1e-3 else None


def ours_dispatch(case: Case, **options: Any) -> Side:
    return lambda _: moe.dispatch(case.x, case.ids, case.weights, **case.options, **options).x


def ours_both(case: Case, **options: Any) -> Side:
    def step(_: int) -> torch.Tensor:
        received = moe.dispatch(case.x, case.ids, case.weights, **case.options, **options)
        y = received.x if case.dtype != FP8 else buffer
        return moe.combine(y, received)

    received = moe.dispatch(case.x, case.ids, case.weights, **case.options)
    buffer = received.x.bfloat16() if case.dtype == FP8 else received.x
    return step


def ours_combine(case: Case, **options: Any) -> Side:
    """Of rows as they came."""
    received = moe.dispatch(case.x, case.ids, case.weights, **case.options, **options)
    return lambda _: moe.combine(received.x, received)


def nccl_dispatch(case: Case) -> Callable[[], torch.Tensor]:
    received = case.x.new_empty(case.rows, case.shape.hidden).view(torch.uint8)

    def run() -> torch.Tensor:
        rows = case.x.view(torch.uint8)[case.by_expert // case.shape.top_k]
        dist.all_to_all_single(received, rows, case.out_splits, case.in_splits)
        return received[case.order].view(case.dtype)

    return run


def nccl_combine(case: Case) -> Callable[[torch.Tensor], torch.Tensor]:
    back = torch.empty_like(case.order)
    back[case.order] = torch.arange(len(case.order), device=back.device)
    dtype = torch.bfloat16
    received = torch.empty(len(case.by_expert), case.shape.hidden, dtype=dtype, device=case.x.device)
    of_token = case.by_expert // case.shape.top_k
    factors = case.weights.view(-1)[case.by_expert][:, None]

    def run(y: torch.Tensor) -> torch.Tensor:
        dist.all_to_all_single(received, y.to(dtype)[back], case.in_splits, case.out_splits)
        total = torch.zeros(case.shape.tokens, case.shape.hidden, device=y.device)
        return total.index_add_(0, of_token, received.float() * factors).to(dtype)

    return run


def padded_dispatch(case: Case) -> Side:
    """Our all-to-all of as many rows for each PE as there may be, and a gather."""
    n, tokens, hidden = case.world.n_pes, case.shape.tokens, case.shape.hidden
    sent = triton_dist.zeros(n, tokens, hidden, dtype=case.dtype)
    received = triton_dist.zeros(n, tokens, hidden, dtype=case.dtype)

    def step(_: int) -> torch.Tensor:
        sent.copy_(case.x.expand(n, -1, -1))
        kernels.all_to_all(received, sent)
        return received[case.sources, case.source_tokens]

    return step


def vdev_dispatch(case: Case) -> Side:
    """torch's: rows by expert, with splits on the device; a row of a token for each of its experts."""
    import torch.distributed._symmetric_memory as symm_mem

    group, n = dist.group.WORLD, case.world.n_pes
    symm_mem.set_backend("NVSHMEM")
    size = n * case.shape.tokens * case.shape.top_k, case.shape.hidden
    sent = symm_mem.empty(*size, dtype=case.dtype, device=case.x.device)
    received = symm_mem.empty(*size, dtype=case.dtype, device=case.x.device)
    splits = symm_mem.empty(case.shape.num_experts, dtype=torch.int64, device=case.x.device)
    offsets = symm_mem.empty(2, case.shape.num_experts, dtype=torch.int64, device=case.x.device)
    for tensor in (sent, received, splits, offsets):
        symm_mem.rendezvous(tensor, group)
    splits.copy_(torch.bincount(case.ids.view(-1), minlength=case.shape.num_experts))

    def step(_: int) -> torch.Tensor:
        sent[: len(case.by_expert)].copy_(case.x[case.by_expert // case.shape.top_k])
        torch.ops.symm_mem.all_to_all_vdev_2d(sent, received, splits, offsets, group.group_name)
        return received

    return step


def attempt(make: Callable[[], Side]) -> Side:
    """A side that cannot be made raises in its first call, so that the reason is listed."""
    try:
        return make()
    except Exception as error:
        reason = error

        def step(_: int) -> torch.Tensor:
            raise reason

        return step


def host_microseconds(step: Side, calls: int = 200) -> float:
    """What a direct call takes of the host's time."""
    step(0)
    torch.cuda.synchronize()
    triton_dist.barrier_all()
    begin = time.perf_counter()
    for _ in range(calls):
        step(0)
    end = time.perf_counter()
    torch.cuda.synchronize()
    return (end - begin) / calls * 1e6


def measure(bench: Bench, shape: Shape, rate: float) -> None:
    for dtype in (torch.bfloat16, FP8):
        case = Case(shape, bench.world, dtype)
        name = f"{shape.name}, {shape.tokens} x {shape.hidden} {dtype}, top {shape.top_k} of {shape.num_experts}"
        to = nccl_dispatch(case)
        sides: dict[str, Side] = {
            "ours": ours_dispatch(case),
            "ours, 24 SMs": ours_dispatch(case, sm_margin=max(0, programs() - 24)),
            "ours, rounds, 24 SMs": ours_dispatch(case, num_sms=24),
            "NCCL, permuted": lambda _, to=to: to(),
            "our all_to_all, padded": attempt(lambda case=case: padded_dispatch(case)),
            "torch all_to_all_vdev_2d": attempt(lambda case=case: vdev_dispatch(case)),
        }
        bound = case.sent_bytes() / rate
        bench.compare(f"dispatch, {name}", sides, check=case.check_rows, calls=8, bound=bound)
        back = nccl_combine(case)
        sides = {
            "ours": ours_both(case),
            "ours, rounds, 24 SMs": ours_both(case, num_sms=24),
            "NCCL, permuted": lambda _, to=to, back=back: back(to()),
        }
        both = bound * (1 + 2 / dtype.itemsize)
        bench.compare(f"dispatch and combine, {name}", sides, check=case.check_tokens, calls=8, bound=both)
        bench.say(f"    host: {host_microseconds(sides['ours']):.1f} µs a dispatch and a combine, called directly")


def measure_kraken(bench: Bench, rate: float) -> None:
    """Dispatch and combine one by one, as they are published."""
    case, shape = Case(KRAKEN, bench.world, torch.bfloat16), KRAKEN
    name = f"{shape.name}, {shape.tokens} x {shape.hidden}, top {shape.top_k} of {shape.num_experts}"
    bound = case.sent_bytes() / rate
    to, back = nccl_dispatch(case), nccl_combine(case)
    sides: dict[str, Side] = {
        "ours": ours_dispatch(case),
        "ours, rounds, 24 SMs": ours_dispatch(case, num_sms=24),
        "ours, rounds, 64 SMs": ours_dispatch(case, num_sms=64),
        "NCCL, permuted": lambda _: to(),
        "torch all_to_all_vdev_2d": attempt(lambda: vdev_dispatch(case)),
    }
    bench.compare(f"dispatch, {name}", sides, check=case.check_rows, calls=8, bound=bound)
    rows = to().clone()
    sides = {
        "ours": ours_combine(case),
        "ours, rounds, 24 SMs": ours_combine(case, num_sms=24),
        "ours, rounds, 64 SMs": ours_combine(case, num_sms=64),
        "NCCL, permuted": lambda _: back(rows),
    }
    bench.compare(f"combine, {name}", sides, check=case.check_tokens, calls=8, bound=case.received_bytes() / rate)


def compare_tiny() -> None:
    with triton_dist.init() as world:
        once = Case(TINY._replace(top_k=1), world, torch.bfloat16)
        for options in ({}, {"num_sms": 2}):
            if problem := once.check_tokens(ours_combine(once, **options)(0), 0):
                raise AssertionError(problem)
        for dtype in (torch.bfloat16, FP8):
            case = Case(TINY, world, dtype)
            case.scales = None
            dispatches = ours_dispatch(case), ours_dispatch(case, num_sms=2)
            both = ours_both(case), ours_both(case, num_sms=2)
            checks = case.check_rows, case.check_rows, case.check_tokens, case.check_tokens
            for step, check in zip((*dispatches, *both), checks, strict=True):
                if problem := check(step(0), 0):
                    raise AssertionError(problem)
        sliced = Slices(TINY_SLICED, world)
        gathered = triton_dist.zeros(world.n_pes * len(sliced.x), TINY_SLICED.hidden, dtype=sliced.x.dtype)
        kernels.all_gather(gathered, sliced.x)
        back = torch.empty_like(sliced.x)
        kernels.reduce_scatter(back, sliced.multiplied_then_summed())
        expected = sliced.gathered_then_multiplied(gathered), back
        for step, wanted in zip((ours_gathering(sliced), ours_scattering(sliced)), expected, strict=True):
            if problem := differs(step(0), wanted):
                raise AssertionError(problem)
        if world.pe == 0:
            print("moe: compared. The CPU world interprets kernels; its times say nothing about GPUs.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="shapes whose names contain this")
    parser.add_argument("--save", metavar="FILE")
    arguments = parser.parse_args()
    if triton_dist.kind() == "cpu":
        compare_tiny()
        return
    shapes = [shape for shape in SHAPES if arguments.only in shape.name]
    sliced = [shape for shape in SLICED if arguments.only in shape.name]
    kraken = arguments.only in KRAKEN.name
    with session("moe", total=4 * len(shapes) + 3 * len(sliced) + 2 * kraken) as bench:
        rate = bench.copy_engine_rate()
        if kraken:
            measure_kraken(bench, rate)
        for shape in shapes:
            measure(bench, shape, rate)
        for of_slices in sliced:
            measure_slices(bench, of_slices, rate)
        if arguments.save:
            bench.save(arguments.save)


if __name__ == "__main__":
    main()
