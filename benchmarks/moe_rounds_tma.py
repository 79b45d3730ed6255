"""Dispatch of thousands of tokens by few multiprocessors: rounds by TMA against rounds by load and store.

    torchrun --nproc-per-node 2 benchmarks/moe_rounds_tma.py [prefill] [bfloat16] [kraken]

Results are compared with those of the other rounds, bit by bit, before anything is timed. Beside the whole
dispatch, its two kernels are timed alone. In the CPU world only what the first kernel leaves is compared, at a small
size.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from harness import Bench, session
from moe_cases import FP8, Case, Shape

import triton_dist
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.moe import rounds_by_tma
from triton_dist.kernels.moe.arguments import check_routing
from triton_dist.kernels.moe.results import part_of, result_of
from triton_dist.kernels.moe.rounds_by_tma import Plan
from triton_dist.kernels.moe.rounds_headers import exchange_headers

BEGAN = time.perf_counter()
SECONDS = 95  # of all, then a report of where it hangs

CASES = {
    "prefill": (Shape("4096 x 7168, top 8 of 256", 4096, 7168, 256, 8), FP8),
    "bfloat16": (Shape("2048 x 7168, top 8 of 128", 2048, 7168, 128, 8), torch.bfloat16),
    "kraken": (Shape("4096 x 4096, top 1 of 8", 4096, 4096, 8, 1), torch.bfloat16),
}
Step = Callable[[int], torch.Tensor]
TINY = Shape("tiny", 41, 128, 8, 2)
PLANS = {
    "two lanes": Plan(),
    "two lanes, exact boxes": Plan(whole_loads=False, whole_stores=False),
    "one lane": Plan(lanes=1),
    "two lanes, batches of 4": Plan(batch=4),
    "4 send": Plan(senders=4),
    "6 send": Plan(senders=6),
    "6 send, batches of 4": Plan(senders=6, batch=4),
}
"""Of 24 multiprocessors."""
PROGRAMS = (8, 16, 24, 32, 64)


def given(case: Case, ids: torch.Tensor) -> dict[str, Any]:
    options = dict(case.options)
    if options["scales"] is not None:
        options["scales"] = case.scales[: len(ids)]  # type: ignore[index]
    return options


def same(found: torch.Tensor, expected: torch.Tensor, what: str) -> str:
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[found.element_size()]
    different = int((found.contiguous().view(kind) != expected.contiguous().view(kind)).sum().item())
    return f"{different} elements of {what} differ" if different else ""


def differences(case: Case, found: Any, expected: Any, rows_too: bool = True) -> str:
    """Where two results differ."""
    rows = int(expected.counts.sum())
    problems = [same(found.counts, expected.counts, "counts"), same(found.offsets, expected.offsets, "offsets")]
    for name in ("x",) * rows_too + ("scales", "weights", "choices"):
        if getattr(found, name) is not None:
            problems.append(same(getattr(found, name)[:rows], getattr(expected, name)[:rows], name))
    tokens = part_of(expected.memory, expected.routing, "rows")
    problems.append(same(part_of(found.memory, found.routing, "rows"), tokens, "tokens"))
    shape = (case.world.n_pes, case.shape.tokens, case.shape.top_k)
    for pe, n in enumerate(tokens.tolist()):
        place, kept = (part_of(r.memory, r.routing, "positions").view(shape)[pe, :n] for r in (found, expected))
        problems.append(same(place, kept, f"positions of PE {pe}"))
        factor, right = (part_of(r.memory, r.routing, "row_weights").view(shape)[pe, :n] for r in (found, expected))
        problems.append(same(torch.where(kept >= 0, factor, 0), torch.where(kept >= 0, right, 0), "weights of rows"))
    return "; ".join(filter(None, problems))


def routings(case: Case) -> dict[str, torch.Tensor]:
    me, n, experts, ids = case.world.pe, case.world.n_pes, case.shape.num_experts, case.ids
    return {
        "as drawn": ids,
        "no tokens on PE 0": ids[: 0 if me == 0 else len(ids)],
        "no tokens on the last PE": ids[: 0 if me == n - 1 else 17],
        "all to one expert": torch.full_like(ids, experts - 1),
        "half not made": torch.where(torch.rand(ids.shape, device=ids.device) < 0.5, -1, ids),
        "as drawn, again": ids,
    }


def check(bench: Bench, case: Case) -> bool:
    """Every plan against other rounds, at every routing. Whether all agree on all PEs."""
    generator = torch.Generator(case.world.device).manual_seed(case.world.pe)
    good = True
    for name, ids in routings(case).items():
        x = torch.randn(case.x.shape, generator=generator, device=case.world.device).to(case.dtype)[: len(ids)]
        weights = torch.rand(ids.shape, generator=generator, device=case.world.device)
        expected = moe.dispatch(x, ids, weights, num_sms=24, **given(case, ids))
        for plan_name, plan in PLANS.items():
            for programs in (24, 8) if name == "as drawn" and plan_name == "two lanes" else (24,):
                found = rounds_by_tma.dispatch(plan, x, ids, weights, num_sms=programs, **given(case, ids))
                if problem := bench.agree(differences(case, found, expected)):
                    bench.wrong.append(f"{name}, {plan_name}, {programs}: {problem}")
                    bench.say(f"WRONG {name}, {plan_name}, {programs} SMs: {problem}")
                    good = False
                del found
        del expected
    said("compared")
    return good


def halves(case: Case, plan: Plan, programs: int, options: dict[str, Any]) -> tuple[Callable[[], Any], Step]:
    """The two kernels of a dispatch, one by one."""
    found = rounds_by_tma.dispatch(plan, case.x, case.ids, case.weights, num_sms=programs, **options)

    def front() -> None:
        with calling("dispatch", None):
            exchange_headers(case.scales, found.routing, found, programs, plan.headers)

    def rows(_: int) -> torch.Tensor:
        with calling("dispatch", None):
            rounds_by_tma.move_rows(plan, case.x, found.routing, found, programs)
        return found.x

    return front, rows


def measure(bench: Bench, case: Case, rate: float) -> None:
    x, ids, weights, options = case.x, case.ids, case.weights, case.options
    expected = moe.dispatch(x, ids, weights, **options)
    rows = int(expected.counts.sum())
    options["capacity"] = -(-rows // 1024) * 1024  # a graph has memory for the results of all of its calls
    sent = torch.tensor([case.sent_bytes()], device=case.world.device, dtype=torch.float64)
    torch.distributed.all_reduce(sent, op=torch.distributed.ReduceOp.MAX)
    sides: dict[str, Callable[[int], torch.Tensor]] = {
        "all SMs, today": lambda _: moe.dispatch(x, ids, weights, **options).x,
    }
    for programs in PROGRAMS:
        if programs in (8, 24, 64):
            sides[f"{programs} SMs, today"] = lambda _, programs=programs: (
                moe.dispatch(x, ids, weights, num_sms=programs, **options).x
            )
        plans = PLANS if programs == 24 else {"two lanes": Plan(), "a quarter sends": Plan(senders=programs // 4)}
        for name, plan in plans.items():
            sides[f"{programs} SMs, TMA, {name}"] = lambda _, plan=plan, programs=programs: (
                rounds_by_tma.dispatch(plan, x, ids, weights, num_sms=programs, **options).x
            )
    fronts = {}
    for programs in (16, 24, 64):
        fronts[programs], move = halves(case, Plan(), programs, options)
        sides[f"{programs} SMs, TMA, rows alone"] = move
    kind = str(case.dtype).removeprefix("torch.")
    bench.compare(
        f"dispatch, {case.shape.name}, {kind}", sides, check=lambda r, _: same(r[:rows], expected.x[:rows], "rows"),
        calls=4, bound=float(sent.item()) / rate, rounds=7,
    )  # fmt: skip
    for programs, front in fronts.items():  # which leave no rows to compare; the tables are compared by check()
        bench.say(f"headers alone, {programs} SMs: {bench.time_alone(front, calls=4, rounds=5) * 1e6:.1f} µs")
    said("measured")


def limits(bench: Bench, case: Case) -> None:
    """How fast rows are moved where all stay, and where each has one choice that leaves."""
    me, n = case.world.pe, case.world.n_pes
    stay = case.ids % case.local + me * case.local
    leave = torch.full_like(case.ids, -1)
    leave[:, 0] = case.ids[:, 0] % case.local + (me + 1) % n * case.local
    nbytes = case.x.nbytes
    for programs in (8, 24, 64):
        for plan_name, plan in {"two lanes": Plan(), "a quarter sends": Plan(senders=programs // 4)}.items():
            rates = []
            for ids, stored in ((stay, case.shape.top_k * nbytes), (leave, nbytes)):
                found = rounds_by_tma.dispatch(plan, case.x, ids, case.weights, num_sms=programs, **case.options)

                def rows(found: Any = found, plan: Plan = plan, programs: int = programs) -> None:
                    with calling("dispatch", None):
                        rounds_by_tma.move_rows(plan, case.x, found.routing, found, programs)

                rates.append(stored / bench.time_alone(rows, calls=2, rounds=5) / 1e9)
                del found
            bench.say(
                f"rows alone, {programs} SMs, {plan_name}: all stay, {rates[0]:.0f} GB/s stored; one choice, all leave,"
                f" {rates[1]:.0f} GB/s sent"
            )
    said("limits")


def said(what: str) -> None:
    if triton_dist.my_pe() == 0:
        print(f"    [{what} after {time.perf_counter() - BEGAN:.0f} s]", flush=True)


def compare_headers() -> None:
    """What a machine without GPUs can run."""
    with triton_dist.init() as world:
        for dtype in (torch.bfloat16, FP8):
            case = Case(TINY, world, dtype)
            for name, ids in routings(case).items():
                x, weights = case.x[: len(ids)], case.weights[: len(ids)]
                options = given(case, ids)
                expected = moe.dispatch(x, ids, weights, num_sms=2, **options)
                scales = options.pop("scales")
                with calling("dispatch", None) as comm:
                    routing = check_routing(comm, "dispatch", x, ids, weights, 8, 41, 1, None, None, 3)
                    found = result_of(routing, dtype, 128, 0 if scales is None else scales.shape[1], torch.zeros)
                    exchange_headers(scales, routing, found, 3, 16)
                assert not (problem := differences(case, found, expected, False)), f"{name}: {problem}"
        if world.pe == 0:
            print("moe_rounds_tma: headers compared.", flush=True)


def main() -> None:
    only = sys.argv[1:] or list(CASES)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    if triton_dist.kind() == "cpu":
        compare_headers()
        return
    with session("moe rounds by TMA") as bench:
        rate = bench.copy_engine_rate()
        for name in only:
            case = Case(CASES[name][0], bench.world, CASES[name][1])
            if check(bench, case):
                measure(bench, case, rate)
                limits(bench, case)
            del case
        bench.save("moe_rounds_tma.json")


if __name__ == "__main__":
    main()
