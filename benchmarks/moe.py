"""Tokens to the PEs of their experts and back: dispatch and combine against NCCL and torch's symmetric memory.

Tokens once to each PE, as DeepEP's Buffer sends them (moe_tokens.py). Then whole layers (moe_layers.py), also with
their backward (moe_backward.py), and experts of which every PE has a slice: GEMMs that overlap with all-gather and
reduce-scatter (moe_slices.py).

    torchrun --nproc-per-node 8 benchmarks/moe.py [--only decode|skew|kraken|tokens|layer|backward|slices] [--save FILE]

Peers get what a model would otherwise have to make for each routing: NCCL's splits and permutations are computed before
and not timed. The bound is the time in which a copy engine sends a row to each other PE that has an expert of its
token. In the CPU world tiny sizes are computed and compared, and nothing is timed. Layers of all sizes need
TRITON_DIST_SYMMETRIC_SIZE=6G.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from harness import Bench, Contender, session
from moe_backward import BACKWARD, compare_backward, measure_backward
from moe_cases import FP8, Case, Shape, nccl_combine, nccl_dispatch
from moe_layers import LAYERS, TINY_LAYER, Layer, measure_layer, ours_layer
from moe_slices import SLICED, TINY_SLICED, Slices, differs, measure_slices, ours_gathering, ours_scattering
from moe_tokens import TOKENS, Tokens, measure_tokens
from moe_tokens import ours_both as ours_tokens
from targets import at_most, share_of_bound

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.portable import programs

DECODE = Shape("decode, DeepSeek-V3", 128, 7168, 256, 8)
PREFILL = Shape("prefill, DeepSeek-V3", 4096, 7168, 256, 8)
SHAPES = (
    DECODE,
    Shape("decode, DeepSeek-V3, few tokens", 8, 7168, 256, 8),
    Shape("decode, Qwen3-30B-A3B", 128, 2048, 128, 8),
    PREFILL,
)

SKEWED = tuple(
    shape._replace(name=f"skew, {shape.name}, {routing}", routing=routing)
    for shape in (DECODE, PREFILL)
    for routing in ("zipf", "one PE")
)
"""Routings that are not uniform, of the first and the last of ``SHAPES``, whose figures are beside theirs."""

LATENCY = 3.0
"""Microseconds that targets add to the time of the bytes."""

TINY = Shape("tiny", 6, 64, 8, 2)

KRAKEN = Shape("kraken", 4096, 4096, 8, 1)
"""The case of meta-pytorch/kraken, pull request 32: bfloat16, 4096 rows of 4096 from each PE to 8 experts, 33.55 MB.

Published there for 2 H100s: dispatch 80.1 µs and combine 83.4 by Kraken, 812.8 and 165.3 by torchtitan's way, 740.0 and
621.1 by torch's symmetric memory. These are without packing tokens by expert and without weights, which ours does here,
and so do the peers.
"""


def ours_dispatch(case: Case, **options: Any) -> Contender:
    return lambda _: moe.dispatch(case.x, case.ids, case.weights, **case.options, **options).x


def ours_both(case: Case, **options: Any) -> Contender:
    def step(_: int) -> torch.Tensor:
        received = moe.dispatch(case.x, case.ids, case.weights, **case.options, **options)
        y = received.x if case.dtype != FP8 else buffer
        return moe.combine(y, received)

    received = moe.dispatch(case.x, case.ids, case.weights, **case.options)
    buffer = received.x.bfloat16() if case.dtype == FP8 else received.x
    return step


def ours_combine(case: Case, **options: Any) -> Contender:
    """Of rows as they came."""
    received = moe.dispatch(case.x, case.ids, case.weights, **case.options, **options)
    return lambda _: moe.combine(received.x, received)


def padded_dispatch(case: Case) -> Contender:
    """Our all-to-all of as many rows for each PE as there may be, and a gather."""
    n, tokens, hidden = case.world.n_pes, case.shape.tokens, case.shape.hidden
    sent = triton_dist.zeros(n, tokens, hidden, dtype=case.dtype)
    received = triton_dist.zeros(n, tokens, hidden, dtype=case.dtype)

    def step(_: int) -> torch.Tensor:
        sent.copy_(case.x.expand(n, -1, -1))
        kernels.all_to_all(received, sent)
        return received[case.sources, case.source_tokens]

    return step


def vdev_dispatch(case: Case) -> Contender:
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


def attempt(make: Callable[[], Contender]) -> Contender:
    """A contender that cannot be made raises in its first call, so that the reason is listed."""
    try:
        return make()
    except Exception as error:
        reason = error

        def step(_: int) -> torch.Tensor:
            raise reason

        return step


def host_microseconds(step: Contender, calls: int = 200) -> float:
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
        contenders: dict[str, Contender] = {
            "ours": ours_dispatch(case),
            "ours, 24 SMs": ours_dispatch(case, sm_margin=max(0, programs() - 24)),
            "ours, rounds, 24 SMs": ours_dispatch(case, num_sms=24),
            "NCCL, permuted": lambda _, to=to: to(),
            "our all_to_all, padded": attempt(lambda case=case: padded_dispatch(case)),
            "torch all_to_all_vdev_2d": attempt(lambda case=case: vdev_dispatch(case)),
        }
        bound = case.sent_bytes() / rate
        entry = bench.compare(f"dispatch, {name}", contenders, check=case.check_rows, calls=8, bound=bound)
        if shape is DECODE and dtype == FP8:
            bench.say(at_most(entry, bound * 1e6 + LATENCY + 8))
        if shape is PREFILL:
            bench.say(share_of_bound(entry, 0.85, "ours, rounds, 24 SMs", LATENCY))
        back = nccl_combine(case)
        contenders = {
            "ours": ours_both(case),
            "ours, rounds, 24 SMs": ours_both(case, num_sms=24),
            "NCCL, permuted": lambda _, to=to, back=back: back(to()),
        }
        if dtype != FP8 and shape in (DECODE, PREFILL):
            measure_combine(bench, case, name, case.received_bytes() / rate)
        both = bound * (1 + 2 / dtype.itemsize)
        bench.compare(f"dispatch and combine, {name}", contenders, check=case.check_tokens, calls=8, bound=both)
        bench.say(f"    host: {host_microseconds(contenders['ours']):.1f} µs a dispatch and a combine, called directly")


def measure_combine(bench: Bench, case: Case, name: str, bound: float) -> None:
    """By itself, of rows as they came."""
    contenders = {"ours": ours_combine(case), "ours, rounds, 24 SMs": ours_combine(case, num_sms=24)}
    entry = bench.compare(f"combine, {name}", contenders, check=case.check_tokens, calls=8, bound=bound)
    if case.shape is DECODE:
        bench.say(at_most(entry, bound * 1e6 + LATENCY + 10))
    else:
        bench.say(share_of_bound(entry, 0.85, "ours, rounds, 24 SMs", LATENCY))


def measure_kraken(bench: Bench, rate: float) -> None:
    """Dispatch and combine one by one, as they are published."""
    case, shape = Case(KRAKEN, bench.world, torch.bfloat16), KRAKEN
    name = f"{shape.name}, {shape.tokens} x {shape.hidden}, top {shape.top_k} of {shape.num_experts}"
    bound = case.sent_bytes() / rate
    to, back = nccl_dispatch(case), nccl_combine(case)
    contenders: dict[str, Contender] = {
        "ours": ours_dispatch(case),
        "ours, rounds, 24 SMs": ours_dispatch(case, num_sms=24),
        "ours, rounds, 64 SMs": ours_dispatch(case, num_sms=64),
        "NCCL, permuted": lambda _: to(),
        "torch all_to_all_vdev_2d": attempt(lambda: vdev_dispatch(case)),
    }
    entry = bench.compare(f"dispatch, {name}", contenders, check=case.check_rows, calls=8, bound=bound)
    bench.say(at_most(entry, 60.0, entry.best(ours=True) or "ours"))
    rows = to().clone()
    contenders = {
        "ours": ours_combine(case),
        "ours, rounds, 24 SMs": ours_combine(case, num_sms=24),
        "ours, rounds, 64 SMs": ours_combine(case, num_sms=64),
        "NCCL, permuted": lambda _: back(rows),
    }
    entry = bench.compare(
        f"combine, {name}", contenders, check=case.check_tokens, calls=8, bound=case.received_bytes() / rate
    )
    bench.say(at_most(entry, 60.0, entry.best(ours=True) or "ours"))


def compare_tiny() -> None:
    with triton_dist.init() as world:
        once = Case(TINY._replace(top_k=1), world, torch.bfloat16)
        for options in ({}, {"num_sms": 2}):
            if problem := once.check_tokens(ours_combine(once, **options)(0), 0):
                raise AssertionError(problem)
        for routing in ("zipf", "one PE"):
            skewed = Case(TINY._replace(routing=routing), world, torch.bfloat16)
            if problem := skewed.check_rows(ours_dispatch(skewed)(0), 0):
                raise AssertionError(f"{routing}: {problem}")
        for dtype in (torch.bfloat16, FP8):
            case = Case(TINY, world, dtype)
            case.scales = None
            dispatches = ours_dispatch(case), ours_dispatch(case, num_sms=2)
            both = ours_both(case), ours_both(case, num_sms=2)
            checks = case.check_rows, case.check_rows, case.check_tokens, case.check_tokens
            for step, check in zip((*dispatches, *both), checks, strict=True):
                if problem := check(step(0), 0):
                    raise AssertionError(problem)
        tokens = Tokens(Case(TINY, world, torch.bfloat16))
        for num_sms in (0, 2):
            if problem := tokens.check_sums(ours_tokens(tokens.case, num_sms=num_sms)(0), 0):
                raise AssertionError(problem)
        layer = Layer(TINY_LAYER, world)
        if problem := differs(ours_layer(layer, algorithm="fused")(0), ours_layer(layer, algorithm="separate")(0)):
            raise AssertionError(problem)
        if problem := compare_backward(layer):
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
    parser.add_argument("--save", metavar="FILE", help="written after each comparison")
    arguments = parser.parse_args()
    if triton_dist.kind() == "cpu":
        compare_tiny()
        return
    shapes = [shape for shape in (*SHAPES, *SKEWED) if arguments.only in shape.name]
    sliced = [shape for shape in SLICED if arguments.only in shape.name]
    layers = [shape for shape in LAYERS if arguments.only in shape.name]
    once = [shape for shape in TOKENS if arguments.only in shape.name]
    kraken = arguments.only in KRAKEN.name
    backward = [shape for shape in BACKWARD if arguments.only in shape.name]
    combines = sum(shape in (DECODE, PREFILL) for shape in shapes)
    of_layers = len(layers) + len(backward)
    total = 4 * len(shapes) + 3 * len(once) + combines + 3 * len(sliced) + of_layers + 2 * kraken
    with session("moe", total=total, save=arguments.save) as bench:
        rate = bench.copy_engine_rate()
        if kraken:
            measure_kraken(bench, rate)
        for shape in shapes:
            measure(bench, shape, rate)
        for tokens in once:
            measure_tokens(bench, tokens, rate)
        for layer in layers:
            measure_layer(bench, layer)
        for both_ways in backward:
            measure_backward(bench, both_ways)
        for of_slices in sliced:
            measure_slices(bench, of_slices, rate)
        bench.say(f"workspace of this PE: {communicator_of().workspace_bytes / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
