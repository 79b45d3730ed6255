"""What is lost between kernels: launches, waits for the slowest PE, and traffic of intermediate results.

    torchrun --nproc-per-node 2 benchmarks/taxes.py [--save FILE] [--plot FILE.svg] [--timelines FOLDER]

The three "taxes" of bulk-synchronous programs are those of Iris's authors ("Eliminating Multi-GPU Performance Taxes",
arXiv 2511.02168). An all-gather + GEMM, a GEMM + all-scatter and a flash decode are computed from bulk-synchronous
(NCCL) over kernels with device-side barriers and producer–consumer pairs to one fused kernel:

- launches: time in which no kernel runs, from the profiler's timeline of a captured graph;
- waiting: what the programs of our kernels that compute wait for, on average (docs/kernels.md, Tracing): peers, and in
  the Hopper GEMMs operands from memory, too; of NCCL's kernels, how much longer they take than on the PE that arrives
  last. Both are means over PEs;
- intermediate: bytes that a PE writes to memory and reads again, by formula.

A timeline of each PE shows who waits for whom (taxes_timelines.py).

The all-gather + GEMM that is fused into one kernel loads A from the peers, as in that paper (taxes_kernels.py). It
stores nothing in between, and loads a peer's rows once for each column of tiles; our library has the copy engine
gather A instead.

Calls of a flash decode have caches of their own; those of a GEMM find what fits into the L2 cache there.

In the CPU world the variants are checked at tiny sizes, and their traces are read; nothing is timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from decode import Decode, Size
from harness import Bench, capture, machine, session
from layer_traces import Kernel, kernels_of
from taxes_kernels import combine_behind_barrier, combine_on_arrival, gemm_from_peers
from taxes_timelines import PerPe, last_call, of_all_pes
from taxes_timelines import picture as picture_of_timelines

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER_ALGORITHMS
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER_ALGORITHMS

Step = Callable[[int], torch.Tensor]
CALLS = 4
TIMED = 16
"""Calls of a graph that is traced, and of one that is timed, in which the graph's own launch counts for less."""
MOST_NCCL = 64  # kernels of NCCL that are looked at in a graph

KINDS = {
    "bulk_synchronous": "device barriers, two kernels",
    "copy_engine": "producer–consumer, copy engine",
    "producer_consumer": "producer–consumer, two kernels",
}
"""What our algorithms of two kernels are; all others are fused."""


@dataclass(frozen=True)
class Variant:
    """A way to compute something, and the bytes of intermediate results that a PE writes and reads again."""

    step: Step
    traffic: int


@dataclass(frozen=True)
class Taxes:
    """Microseconds of one call and of what of it is lost; how many kernels it is; bytes of intermediate results."""

    total: float
    launches: float
    waiting: float
    kernels: float
    traffic: int

    @property
    def computing(self) -> float:
        """The rest: work, and the waits for memory and the wire within it."""
        return max(0.0, self.total - self.launches - self.waiting)


@dataclass(frozen=True)
class Case:
    title: str
    variants: dict[str, Variant]
    check: Callable[[torch.Tensor, int], str | None]
    sets: int = 1
    """Of buffers, up to ``CALLS``, which calls take in turns, so that they find none in the L2 cache."""

    def in_turns(self, step: Step) -> Step:
        turn = itertools.count()
        return lambda _: step(next(turn) % self.sets)


def named(algorithm: str) -> str:
    return f"ours, {KINDS.get(algorithm, f'fused ({algorithm})')}"


def matrix(world: World, rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator(world.device).manual_seed(seed)
    dtype = torch.bfloat16 if world.kind == "gpu" else torch.float32
    return torch.randn(rows, columns, generator=generator, device=world.device).to(dtype)


def against(exact: torch.Tensor) -> Callable[[torch.Tensor, int], str | None]:
    def check(result: torch.Tensor, i: int) -> str | None:
        error = (result.float() - exact).abs().max().item() / exact.abs().max().item()
        return None if error < 0.02 else f"an error is {error:.3f} of the largest value"

    return check


def all_gather_gemm(world: World, m: int, n: int, k: int) -> Case:
    """C = A · B, of each PE's rows of A and its own columns of B."""
    pe, n_pes = world.pe, world.n_pes
    a, b = matrix(world, m // n_pes, k, pe), matrix(world, k, n // n_pes, 100 + pe)
    whole = torch.cat([matrix(world, m // n_pes, k, other) for other in range(n_pes)])
    gathered, out = torch.empty_like(whole), torch.empty(m, n // n_pes, dtype=a.dtype, device=world.device)

    def nccl(i: int) -> torch.Tensor:
        dist.all_gather_into_tensor(gathered, a)
        return gathered @ b

    written = 2 * whole.nbytes
    variants = {"NCCL + cuBLAS": Variant(nccl, written)}
    for algorithm in GATHER_ALGORITHMS:

        def step(i: int, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.all_gather_gemm(a, b, out, algorithm=algorithm)

        received = written if algorithm == "bulk_synchronous" else written - 2 * a.nbytes
        variants[named(algorithm)] = Variant(step, received)
    shared, comm = triton_dist.from_tensor(a), communicator_of()
    fused = "ours, fused (GEMM that loads from peers)"
    variants[fused] = Variant(lambda i: gemm_from_peers(comm, shared, b, out), 0)
    return Case(f"all-gather + GEMM, {m} × {n} × {k}", variants, against(whole.float() @ b.float()))


def gemm_all_scatter(world: World, m: int, n: int, k: int) -> Case:
    """C = A · B on every PE, of each PE's columns of B."""
    pe, n_pes = world.pe, world.n_pes
    a, b = matrix(world, m, k, 0), matrix(world, k, n // n_pes, 1 + pe)
    whole = torch.cat([matrix(world, k, n // n_pes, 1 + other) for other in range(n_pes)], 1)
    out = triton_dist.zeros(m, n, dtype=a.dtype)
    parts = torch.empty(n_pes, m, n // n_pes, dtype=a.dtype, device=world.device)

    def nccl(i: int) -> torch.Tensor:
        dist.all_gather_into_tensor(parts.view(-1, n // n_pes), a @ b)
        return parts.permute(1, 0, 2).flatten(1)

    mine = out.nbytes // n_pes
    variants = {"NCCL + cuBLAS": Variant(nccl, 2 * mine + 2 * out.nbytes)}
    for algorithm in SCATTER_ALGORITHMS:

        def step(i: int, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.gemm_all_scatter(a, b, out, algorithm=algorithm)

        fused = algorithm in ("fused_sequential", "warp_specialized")  # sent from registers or shared memory
        variants[named(algorithm)] = Variant(step, 0 if fused else 2 * mine)
    return Case(f"GEMM + all-scatter, {m} × {n} × {k}", variants, against(a.float() @ whole.float()))


def flash_decode(world: World, size: Size) -> Case:
    d = Decode(world, size)
    rows = size.requests * size.query_heads
    shared = triton_dist.empty(size.requests, size.query_heads, size.dim + 1)
    comm = communicator_of()

    def behind_barrier(i: int) -> torch.Tensor:
        out, lse = d.local_decode(i)
        torch.cat([out.float(), lse[:, :, None]], 2, out=shared)
        return combine_behind_barrier(comm, shared, d.q[i].dtype)

    def on_arrival(i: int) -> torch.Tensor:
        return combine_on_arrival(comm, *d.local_decode(i))

    part = rows * (size.dim + 1) * 4  # a partial result as it is exchanged
    local = 2 * (rows * size.dim * (2 + 4) + part)  # as the local kernel stores it, as float32, and with its logarithms
    sent = 2 * world.n_pes * rows * (size.dim + 2) * 8  # with a flag beside each word
    variants = {
        "NCCL all-gather + combine": Variant(d.gathered, local + 2 * world.n_pes * part),
        "ours, three kernels": Variant(d.gathered_by_us, local + 2 * world.n_pes * part),
        "ours, device barriers, two kernels": Variant(behind_barrier, local),
        "ours, producer–consumer, two kernels": Variant(on_arrival, 2 * rows * (size.dim * 2 + 4) + sent),
        "ours, fused": Variant(d.fused, sent),
    }
    return Case(f"flash decode, {size}", variants, d.check, min(CALLS, d.sets))


# ---- what is lost


def waits(trace: dict[str, Any], calls: int) -> float:
    """Microseconds that a program waits in one of the last ``calls`` calls of a trace of ``1 + calls``; of all PEs.

    A call may be several launches. The wait of a launch is the mean of its threads'; where some of them compute, of
    those: warps that only load, send or receive wait beside them.
    """
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    launches = 1 + max((event["args"]["launch"] for event in events), default=-1)
    each = launches // (1 + calls)
    of_launches: dict[tuple[int, int], dict[int, dict[str, float]]] = {}
    for event in events:
        if event["args"]["launch"] >= launches - each * calls:
            threads = of_launches.setdefault((event["pid"], event["args"]["launch"]), {})
            spent = threads.setdefault(event["tid"], {})
            spent[event["cat"]] = spent.get(event["cat"], 0.0) + event["dur"]
    total = 0.0
    for threads in of_launches.values():
        counted = [spent for spent in threads.values() if "compute" in spent] or list(threads.values())
        total += sum(spent.get("wait", 0.0) for spent in counted) / len(counted)
    n_pes = len({pe for pe, _ in of_launches})
    return total / calls / n_pes if n_pes else 0.0


def idle(timeline: Sequence[Kernel], since: float) -> float:
    """Microseconds from ``since`` to the end of a timeline's last kernel in which none runs."""
    lost, end = 0.0, since
    for _, _, begin, duration in sorted(timeline, key=lambda kernel: kernel[2]):
        lost += max(0.0, begin - end)
        end = max(end, begin + duration)
    return lost


def behind_the_first(timeline: Sequence[Kernel], calls: int) -> tuple[list[Kernel], float]:
    """The kernels of all calls but the first, which waits for what the hosts launched at different times; and when that
    one ended. What does not belong to all calls stands in front of them."""
    ordered = sorted(timeline, key=lambda kernel: kernel[2])
    each, more = divmod(len(ordered), calls)
    first = ordered[more : more + each]
    return ordered[more + each :], max((begin + duration for _, _, begin, duration in first), default=0.0)


def traced_waits(bench: Any, step: Step) -> float:
    """:func:`waits` of a step, the same on every PE. *Collective.*"""
    world = bench.world
    lost = torch.zeros(1, device=world.device)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        for _ in range(2):  # the first compiles the kernels that record
            with kernels.tracing(file):
                if world.kind == "gpu":
                    graph = capture(step, 1, CALLS)[0]  # behind a direct call
                    for _ in range(2):
                        bench.settle()
                        graph.replay()
                    torch.cuda.synchronize()
                else:
                    for _ in range(1 + CALLS):
                        step(0)
        if world.pe == 0:
            lost.fill_(waits(json.loads(file.read_text()), CALLS))
    dist.broadcast(lost, 0)
    return lost.item()


def profiled(bench: Bench, step: Step) -> tuple[float, float, float, PerPe]:
    """Of one call, from the profiler's timeline of a graph: µs without a kernel, how many kernels, and µs that NCCL's
    take longer than on the PE that arrives last, means over PEs; and every PE's kernels. *Collective.*"""
    graph = capture(step, 1, CALLS)[0]
    graph.replay()
    bench.settle()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "timeline.json")
        profile.export_chrome_trace(str(file))
        whole = kernels_of(file, by_the_clock=True)
    timeline, since = behind_the_first(whole, CALLS)
    durations = [kernel[3] for kernel in timeline if "nccl" in kernel[0].lower()]
    nccl = torch.zeros(MOST_NCCL, device=bench.world.device)
    nccl[: len(durations)] = torch.tensor(durations[:MOST_NCCL])
    fastest = nccl.clone()
    dist.all_reduce(fastest, op=dist.ReduceOp.MIN)
    late = (nccl - fastest).sum().item()
    means = torch.tensor([idle(timeline, since), len(timeline), late], device=bench.world.device) / (CALLS - 1)
    dist.all_reduce(means)
    launches, count, waiting = (means / bench.world.n_pes).tolist()
    return launches, count, waiting, of_all_pes(last_call(whole, CALLS), bench.world.device)


# ---- what is said of it


@dataclass
class Found:
    """The taxes of a case's variants, why some were not measured, and the kernels of one call on each PE."""

    title: str
    taxes: dict[str, Taxes]
    absent: dict[str, str]
    timelines: dict[str, PerPe]


def table(found: Found) -> str:
    """One case in Markdown."""
    lines = [
        f"| {found.title} | µs | computing | waiting | launches | kernels | intermediate KB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, t in found.taxes.items():
        times = " | ".join(f"{time:.1f}" for time in (t.total, t.computing, t.waiting, t.launches))
        lines.append(f"| {name} | {times} | {t.kernels:.0f} | {t.traffic / 1024:.0f} |")
    return "\n".join(lines + [f"| {name} | {reason} | | | | | |" for name, reason in found.absent.items()])


def picture(cases: Sequence[Found], path: Path) -> None:
    """Draw a stacked bar for each variant, a panel for each case."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    drawn = [case for case in cases if case.taxes]
    figure, panels = pyplot.subplots(
        len(drawn), figsize=(9, 1 + 1.8 * len(drawn)), squeeze=False, constrained_layout=True
    )
    for axes, case in zip(panels[:, 0], drawn, strict=True):
        left = [0.0] * len(case.taxes)
        for what, colour in (("computing", "tab:blue"), ("waiting", "tab:orange"), ("launches", "tab:red")):
            widths = [getattr(taxes, what) for taxes in case.taxes.values()]
            axes.barh(list(case.taxes), widths, left=left, color=colour, label=what)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set_title(case.title, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_xlabel("µs", fontsize=7)
    panels[0, 0].legend(fontsize=7, ncols=3)
    figure.savefig(path)
    pyplot.close(figure)


def cases_of(world: World, *, small: bool) -> list[Callable[[], Case]]:
    """What is compared, each made when it is its turn."""
    n = world.n_pes
    gemms = ((32 * n, 16 * n, 32),) if small else ((512, 4096, 4096), (4096, 8192, 4096))
    sizes = (
        (Size(2, 24 * n, 2 * n, 1, 16),)
        if small
        else (Size(1, 8 << 10, 64, 8, 128), Size(1, 64 << 10, 64, 8, 128), Size(32, 16 << 10, 64, 8, 128))
    )
    return [
        *(partial(make, world, *shape) for make in (all_gather_gemm, gemm_all_scatter) for shape in gemms),
        *(partial(flash_decode, world, size) for size in sizes),
    ]


def measure(bench: Bench, case: Case) -> Found:
    sides = {name: variant.step for name, variant in case.variants.items()}
    entry = bench.compare(case.title, sides, check=case.check, sets=case.sets, calls=TIMED)
    found = Found(case.title, {}, dict(entry.absent), {})
    for name, timing in entry.timings.items():
        variant = case.variants[name]
        launches, count, late, found.timelines[name] = profiled(bench, case.in_turns(variant.step))
        waiting = late + traced_waits(bench, case.in_turns(variant.step))
        found.taxes[name] = Taxes(timing.median, launches, waiting, count, variant.traffic)
    bench.say(table(found))
    return found


@dataclass
class Checks:
    """A benchmark's place in the CPU world, as far as traces need it."""

    world: World


def check_only() -> None:
    """In the CPU world: every variant computes the right thing, and its trace can be read."""
    dist.init_process_group("gloo")
    with triton_dist.init() as world:
        for make in cases_of(world, small=True):
            case = make()
            for name, variant in case.variants.items():
                try:
                    result = variant.step(0)
                except ValueError as error:
                    if world.pe == 0:
                        print(f"{case.title}, {name}: {error}")
                    continue
                if problem := case.check(result, 0):
                    raise SystemExit(f"{case.title}, {name}: {problem}")
                if name.startswith("ours") and not traced_waits(Checks(world), variant.step) > 0:
                    raise SystemExit(f"{case.title}, {name}: its trace has no waits")
        if world.pe == 0:
            print("taxes: checked, not measured. The CPU world interprets kernels.")
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", type=Path, help="where to write the figures, as JSON")
    parser.add_argument("--plot", type=Path, help="where to draw them, as SVG (extra bench)")
    parser.add_argument("--timelines", type=Path, help="a folder for pictures of each PE's kernels, as SVG")
    args = parser.parse_args()
    if triton_dist.kind() == "cpu":
        check_only()
        return 0
    os.environ.setdefault("TRITON_DIST_SYMMETRIC_SIZE", "4G")
    with session("taxes") as bench:
        found = []
        for make in cases_of(bench.world, small=False):
            found.append(measure(bench, make()))
            if args.save and bench.world.pe == 0:
                data = {"benchmark": "taxes", "machine": machine(bench.world), "cases": [asdict(c) for c in found]}
                args.save.write_text(json.dumps(data, indent=1))
        if args.plot and bench.world.pe == 0:
            picture(found, args.plot)
        if args.timelines and bench.world.pe == 0:
            args.timelines.mkdir(parents=True, exist_ok=True)
            for number, one in enumerate(found):
                picture_of_timelines(one.title, one.timelines, args.timelines / f"timelines-{number}.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
