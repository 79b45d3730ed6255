"""Dispatch and combine of many tokens: ways to share out the work between multiprocessors, against what there is.

    torchrun --nproc-per-node 2 benchmarks/moe_split.py [link] [kraken] [prefill] [once]

Results are compared with today's, bit by bit, before anything is timed. In the CPU world small sizes are compared.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from harness import Bench, session
from moe_cases import FP8, Case, Shape

import triton_dist
from triton_dist.kernels import moe
from triton_dist.kernels.moe import split
from triton_dist.kernels.moe.split import Plan

BEGAN = time.perf_counter()
SECONDS = 140  # of all, then a report of where it hangs

KRAKEN = Shape("kraken", 4096, 4096, 8, 1)
PREFILL = Shape("prefill", 4096, 7168, 256, 8)
ONCE = Shape("every token once to each PE", 4096, 7168, 2, 2)
TINY = Shape("tiny", 23, 64, 8, 2)

Plans = dict[str, Plan]


def thin(senders: int, per_sm: int = 4, block: int = 2048, quiet: bool = False) -> Plan:
    return Plan(132, senders, per_sm, 4, 1, block, quiet)


def fat(sms: int, senders: int, warps: int = 16, batch: int = 4, block: int = 2048, quiet: bool = False) -> Plan:
    """One program a multiprocessor."""
    return Plan(sms, senders, 1, warps, batch, block, quiet)


def plans(name: str, make: Callable[..., Plan], *senders: int, **more: Any) -> Plans:
    return {f"ours, split, {name}{n} send": make(senders=n, **more) for n in senders}


KRAKEN_PLANS = (
    plans("", thin, 16, 32)
    | plans("quiet, ", thin, 8, 16, 32, 48, quiet=True)
    | plans("one program each, quiet, ", fat, 16, 32, sms=132, quiet=True)
)
KRAKEN_BACK = plans("", thin, 16, 32) | plans("quiet, ", thin, 8, 16, 32, 48, 64, quiet=True)
TO_PLANS = (
    plans("", thin, 16)
    | plans("quiet, ", thin, 8, 16, 32, quiet=True)
    | plans("24 SMs, quiet, ", fat, 4, 6, 8, sms=24, quiet=True)
    | plans("24 SMs, ", fat, 6, sms=24)
)
BACK_PLANS = (
    plans("", thin, 64, per_sm=3, block=512)
    | plans("quiet, ", thin, 32, 48, 64, 80, per_sm=3, block=512, quiet=True)
    | plans("24 SMs, quiet, ", fat, 8, 10, 12, sms=24, warps=8, batch=1, quiet=True)
)
ONCE_TO = plans("24 SMs, quiet, ", fat, 4, 6, 8, 10, sms=24, quiet=True)
ONCE_BACK = plans("24 SMs, quiet, ", fat, 4, 6, 8, 10, sms=24, warps=8, batch=1, quiet=True)
TINY_PLANS = {"a": Plan(4, 1, 1, 4, 1, 32), "b": Plan(4, 2, 1, 4, 2, 64, True)}


def to(case: Case, plan: Plan | None, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, **options: Any) -> Any:
    options |= case.options
    if options["scales"] is not None:
        options["scales"] = case.scales[: len(x)]  # type: ignore[index]
    if plan is None:
        return moe.dispatch(x, ids, weights, **options)
    return split.dispatch(plan, x, ids, weights, **options)


def back(plan: Plan | None, y: torch.Tensor, found: Any) -> torch.Tensor:
    return moe.combine(y, found) if plan is None else split.combine(plan, y, found)


def same(found: torch.Tensor, expected: torch.Tensor, what: str) -> str:
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[found.element_size()]
    different = int((found.view(kind) != expected.view(kind)).sum().item())
    return f"{different} elements of {what} differ" if different else ""


def same_dispatch(found: Any, expected: Any) -> str:
    rows = int(expected.counts.sum())
    problems = [same(found.counts, expected.counts, "counts"), same(found.offsets, expected.offsets, "offsets")]
    for name in ("x", "scales", "weights", "choices"):
        if getattr(found, name) is not None:
            problems.append(same(getattr(found, name)[:rows], getattr(expected, name)[:rows], name))
    return "; ".join(filter(None, problems))


def routings(case: Case) -> dict[str, torch.Tensor]:
    """Ids of this PE, also of other numbers of tokens."""
    me, n, experts, ids = case.world.pe, case.world.n_pes, case.shape.num_experts, case.ids
    few = ids[: 0 if me == 0 else len(ids)]
    return {
        "as drawn": ids,
        "no tokens on PE 0": few,
        "no tokens on the last PE": ids[: 0 if me == n - 1 else 17],
        "all to one expert": torch.full_like(ids, experts - 1),
        "half not made": torch.where(torch.rand(ids.shape, device=ids.device) < 0.5, -1, ids),
        "as drawn, again": ids,
    }


def check(bench: Any, case: Case, to_plans: Plans, back_plans: Plans) -> None:
    """All plans against what there is, at every routing."""
    generator = torch.Generator(case.world.device).manual_seed(case.world.pe)
    for name, ids in routings(case).items():
        x = torch.randn(case.x.shape, generator=generator, device=case.world.device).to(case.dtype)[: len(ids)]
        weights = torch.rand(ids.shape, generator=generator, device=case.world.device)
        expected = to(case, None, x, ids, weights)
        y = torch.randn(expected.x.shape, generator=generator, device=case.world.device, dtype=torch.bfloat16)
        total = back(None, y, expected)
        found = None
        for plan_name, plan in to_plans.items():
            found = to(case, plan, x, ids, weights)
            report(bench, f"{name}, {plan_name}: dispatch", same_dispatch(found, expected))
        for plan_name, plan in back_plans.items():
            report(bench, f"{name}, {plan_name}: combine", same(back(plan, y, found), total, "sums"))
        del expected, y, total, found


def report(bench: Any, what: str, problem: str) -> None:
    if bench is None:
        if problem:
            raise AssertionError(f"{what}: {problem}")
    elif problem := bench.agree(problem):
        bench.wrong.append(f"{what}: {problem}")
        bench.say(f"WRONG {what}: {problem}")


def measure(
    bench: Bench, name: str, case: Case, rate: float, ids: torch.Tensor, to_plans: Plans, back_plans: Plans,
    rounds: bool = True, routes: tuple[bool, bool] = (True, True),
) -> None:  # fmt: skip
    x, weights = case.x, case.weights
    case.ids = ids
    expected = to(case, None, x, ids, weights)
    dispatched = to(case, next(iter(to_plans.values())), x, ids, weights)
    rows = int(expected.counts.sum())
    sent = torch.tensor([case.sent_bytes()], device=case.world.device, dtype=torch.float64)
    torch.distributed.all_reduce(sent, op=torch.distributed.ReduceOp.MAX)
    bound = float(sent.item()) / rate
    if routes[0]:
        sides: dict[str, Any] = {"ours, today": lambda _: to(case, None, x, ids, weights).x}
        if rounds:
            sides["ours, rounds, 24 SMs"] = lambda _: to(case, None, x, ids, weights, num_sms=24).x
        for plan_name, plan in to_plans.items():
            sides[plan_name] = lambda _, plan=plan: to(case, plan, x, ids, weights).x
        bench.compare(
            f"dispatch, {name}", sides, check=lambda r, _: same(r[:rows], expected.x[:rows], "rows"), calls=4,
            bound=bound, rounds=7,
        )  # fmt: skip
        said()
    if routes[1]:
        y = torch.randn(expected.x.shape, device=case.world.device, dtype=torch.bfloat16)
        total = back(None, y, expected)
        sides = {"ours, today": lambda _: back(None, y, expected)}
        if rounds:
            by_rounds = to(case, None, x, ids, weights, num_sms=24)
            sides["ours, rounds, 24 SMs"] = lambda _: back(None, y, by_rounds)
        for plan_name, plan in back_plans.items():
            sides[plan_name] = lambda _, plan=plan: back(plan, y, dispatched)
        crossing = bound * 2 / case.dtype.itemsize
        if case.scales is not None:
            crossing *= case.shape.hidden / (case.shape.hidden + 4 * case.scales.shape[1])
        bench.compare(
            f"combine, {name}, bfloat16", sides, check=lambda r, _: same(r, total, "sums"), calls=4, bound=crossing,
            rounds=7,
        )  # fmt: skip
        said()


def said() -> None:
    if triton_dist.my_pe() == 0:
        print(f"    [{time.perf_counter() - BEGAN:.0f} s]", flush=True)


@triton.jit
def _copy(target, source, n_blocks, BLOCK: tl.constexpr):
    block = tl.arange(0, BLOCK)
    programs = tl.num_programs(0)
    at = tl.program_id(0)
    words = tl.load(source + at.to(tl.int64) * BLOCK + block)
    for i in range(at, n_blocks, programs):
        now = words
        words = tl.load(
            source + (i + programs).to(tl.int64) * BLOCK + block, mask=(i + programs < n_blocks) & (block >= 0)
        )
        tl.store(target + tl.cast(i, tl.int64) * BLOCK + block, now)


@triton.jit
def _multiprocessors(found):
    began = tl.extra.cuda.globaltimer()
    while tl.extra.cuda.globaltimer() - began < 100000:
        pass
    tl.store(found + tl.program_id(0), tl.extra.cuda.smid())


def link(bench: Bench) -> None:
    """What multiprocessors store to and load from a peer, all PEs at once; and which programs share one."""
    numel = 64 << 20 >> 2
    here = triton_dist.zeros(numel, dtype=torch.int32)
    there = triton_dist.peer(here, (bench.world.pe + 1) % bench.world.n_pes)
    local = torch.zeros(numel, dtype=torch.int32, device=bench.world.device)
    for n in (6, 12, 24, 48, 132):
        rates = []
        for target, source in ((there, local), (local, there)):

            def step(target: Any = target, source: Any = source, n: int = n) -> None:
                _copy[(n,)](target, source, numel // 8192, BLOCK=8192, num_warps=16)

            rates.append(4 * numel / bench.time_alone(step, calls=2, rounds=5) / 1e9)
        bench.say(f"link, {n} SMs of 16 warps: stores {rates[0]:.0f} GB/s, loads {rates[1]:.0f} GB/s")
    found = torch.empty(528, dtype=torch.int32, device=bench.world.device)
    _multiprocessors[(528,)](found, num_warps=4)
    layers = found.view(4, 132).cpu()
    alike = int((layers == layers[0]).all(dim=0).sum())
    bench.say(f"programs p, p + 132, … on one SM: {alike} of 132; SMs of the first 132: {len(set(layers[0].tolist()))}")
    triton_dist.barrier_all()
    triton_dist.free(here)
    said()


def measure_kraken(bench: Bench, rate: float) -> None:
    case = Case(KRAKEN, bench.world, torch.bfloat16)
    check(bench, case, KRAKEN_PLANS, KRAKEN_BACK)
    said()
    drawn, me, n = case.ids, bench.world.pe, bench.world.n_pes
    away = drawn % case.local + (me + 1) % n * case.local
    stays = drawn % case.local + me * case.local
    for name, ids in ((" ", drawn), (", all leave", away), (", all stay", stays)):
        measure(bench, "kraken" + name.rstrip(), case, rate, ids, KRAKEN_PLANS, KRAKEN_BACK, False)


def main() -> None:
    only = sys.argv[1:] or ["link", "kraken", "prefill", "once"]
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    if triton_dist.kind() == "cpu":
        with triton_dist.init() as world:
            for dtype in (torch.bfloat16, FP8):
                case = Case(TINY, world, dtype)
                case.scales = None
                check(None, case, TINY_PLANS, TINY_PLANS)
            if world.pe == 0:
                print("moe_split: compared.", flush=True)
        return
    with session("moe split") as bench:
        rate = bench.copy_engine_rate()
        if "link" in only:
            link(bench)
        if "kraken" in only:
            measure_kraken(bench, rate)
        if "prefill" in only:
            case = Case(PREFILL, bench.world, FP8)
            check(bench, case, TO_PLANS, BACK_PLANS)
            said()
            measure(bench, "4096 x 7168, fp8, top 8 of 256", case, rate, case.ids, TO_PLANS, BACK_PLANS)
            del case
        if "once" in only:
            case = Case(ONCE, bench.world, FP8)
            measure(bench, "4096 x 7168, fp8, a row for each token and PE", case, rate, case.ids, ONCE_TO, ONCE_BACK)
        bench.save("moe_split.json")


if __name__ == "__main__":
    main()
