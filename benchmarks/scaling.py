"""How collectives scale over hosts, simulated: recordings of the kernels, replayed by triton_dist.model.

    python benchmarks/scaling.py --pes 8 16 32 --bytes 131072 --save FILE [--only all_gather …] [--whole]
    python benchmarks/scaling.py --plot IMAGE FILE
    python benchmarks/scaling.py --table FILE

Needs no GPU, and measures nothing but itself: seconds of recording and events. ``--save`` adds to a file what it lacks.
BYTES are those of the whole vector: a PE's output of an all-gather, its input of the others.

Inside a host everything is recorded. Over hosts, where all PEs do the same with their numbers shifted, one PE is, with
two programs, and stands for all; of a broadcast, two programs of every PE. ``--whole`` records everything instead, to
compare. A point says what was recorded, and what its replay has come from it.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

from triton_dist.check.symmetry import Symmetry
from triton_dist.model.expanded import ExpandedGraph
from triton_dist.model.graph import Graph
from triton_dist.model.machine import Machine
from triton_dist.model.path import critical_path, shares
from triton_dist.model.record import record
from triton_dist.model.replay import Replay
from triton_dist.model.representative import RepresentativeGraph
from triton_dist.testing.forks import Forker

SCRIPT = str(Path(__file__).parent / "scaling_case.py")
IN_A_HOST = {
    "all_gather": ("low_latency", "push", "copy_engine"),
    "reduce_scatter": ("low_latency", "push"),
    "all_reduce": ("one_shot", "two_shot", "push"),
    "all_to_all": ("low_latency", "push", "copy_engine"),
    "broadcast": ("low_latency", "push", "scatter"),
}
"""The algorithms besides ``two_level``. They go by load and store, so no further than a host."""

Point = dict[str, Any]

WHOLE, TWO_PROGRAMS, ONE_PE = "all", "two programs of each PE", "two programs of one PE"


def _recorded(name: str, n_pes: int, machine: Machine) -> str:
    """What has to run of a collective."""
    if n_pes <= machine.gpus_per_host:
        return WHOLE
    return TWO_PROGRAMS if name == "broadcast" else ONE_PE  # a root has no equal


def point(
    forker: Forker, machine: Machine, name: str, algorithm: str, n_pes: int, nbytes: int, recorded: str, limit: float
) -> Point:
    """One simulated time, what its critical path waits for, and what it took to find out."""
    mine = nbytes // n_pes if name == "all_gather" else nbytes
    begin = time.monotonic()
    script = [SCRIPT, name, algorithm, str(mine), *(["--check"] if recorded == WHOLE else [])]
    some, alone = () if recorded == TWO_PROGRAMS else None, recorded == ONE_PE
    run = record(forker, script, n_pes, machine, timeout=limit, captures=True, light=True, programs=some, alone=alone)
    log = time.monotonic()
    cpu = time.process_time()
    gc.collect()
    gc.freeze()
    gc.disable()  # of millions of steps none is garbage
    graph = (
        RepresentativeGraph(run, Symmetry(n_pes, machine.gpus_per_host))
        if recorded == ONE_PE
        else ExpandedGraph(run)
        if recorded == TWO_PROGRAMS
        else Graph(run)
    )
    replay = Replay(graph, machine)
    replay.run()
    gc.enable()
    gc.unfreeze()
    phase = [phase for phase in replay.phases if phase.launches][-1]
    took = phase.end - phase.begin
    nics = [nic.nbytes for nic in replay.hardware.nic_out]
    return {
        "name": name, "algorithm": algorithm, "pes": n_pes, "bytes": nbytes, "simulated_us": took,
        "path": {what: us / took for what, us in shares(critical_path(phase))},
        "largest_nic_bytes": max(nics), "events": len(run), "steps": graph.n_nodes,
        "recorded": recorded, "recorded_s": log - begin, "replayed_s": time.monotonic() - log,
        "replay_cpu_s": time.process_time() - cpu,
    }  # fmt: skip


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >> 20 else f"{nbytes >> 10} KB"


def plot(points: list[Point], file: str) -> None:
    """A panel for each collective: time over GPUs, a line for each algorithm and size."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "scaling"
    import matplotlib.pyplot as plt

    names = list(IN_A_HOST)
    figure, panels = plt.subplots(1, len(names), figsize=(16, 4.4), sharey=True, constrained_layout=True)
    sizes = sorted({each["bytes"] for each in points})
    for name, axes in zip(names, panels, strict=True):
        mine = [each for each in points if each["name"] == name]
        for size, style in zip(sizes, ("o-", "s--", "^:"), strict=False):
            line = sorted(
                (p["pes"], p["simulated_us"]) for p in mine if (p["algorithm"], p["bytes"]) == ("two_level", size)
            )
            if line:
                axes.plot(*zip(*line, strict=True), style, color="C0", markersize=4, label=f"two_level, {_size(size)}")
            for i, algorithm in enumerate(IN_A_HOST[name], 1):
                dots = [
                    (p["pes"], p["simulated_us"]) for p in mine if (p["algorithm"], p["bytes"]) == (algorithm, size)
                ]
                if dots:
                    label = f"{algorithm}, {_size(size)}"
                    axes.plot(*zip(*dots, strict=True), style[0], color=f"C{i}", markersize=4, label=label)
        ticks = sorted({each["pes"] for each in points})
        axes.set(xscale="log", yscale="log", xlabel="GPUs, 8 in a host", title=name)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_yticks(marks := [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000], [str(mark) for mark in marks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6)
    panels[0].set_ylabel("simulated, µs")
    figure.suptitle("Simulated, not measured: H200 hosts of 8 with 400 Gb/s NICs", fontsize=9)
    figure.savefig(file, metadata={"Date": None})


def table(points: list[Point]) -> str:
    """Of Markdown: a row for each algorithm and size, a column for each number of GPUs."""
    counts = sorted({each["pes"] for each in points})
    rows: dict[tuple[str, str, int], dict[int, Point]] = {}
    for each in points:
        rows.setdefault((each["name"], each["algorithm"], each["bytes"]), {})[each["pes"]] = each
    order = [(name, algorithm) for name, inside in IN_A_HOST.items() for algorithm in (*inside, "two_level")]
    lines = [
        f"| simulated µs | {' | '.join(f'{count} GPUs' for count in counts)} |",
        "| --- |" + " --- |" * len(counts),
    ]
    for (name, algorithm, nbytes), found in sorted(rows.items(), key=lambda row: (order.index(row[0][:2]), row[0][2])):
        cells = (f"{found[count]['simulated_us']:.1f}" if count in found else "" for count in counts)
        lines.append(f"| {name}, {algorithm}, {_size(nbytes)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pes", nargs="+", type=int, default=[8, 16, 32])
    parser.add_argument("--bytes", nargs="+", type=int, default=[128 << 10])
    parser.add_argument("--only", nargs="+", choices=IN_A_HOST, default=list(IN_A_HOST))
    parser.add_argument("--machine", default="h200-hosts")
    parser.add_argument("--whole", action="store_true", help="record all PEs and programs")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each recording")
    parser.add_argument("--save", help="a JSON file to which points are added")
    parser.add_argument("--plot", nargs=2, metavar=("IMAGE", "FILE"), help="draw what a file has")
    parser.add_argument("--table", metavar="FILE", help="print a table of what a file has")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(Path(args.table).read_text())["points"]))
        return 0
    if args.plot:
        plot(json.loads(Path(args.plot[1]).read_text())["points"], args.plot[0])
        return 0
    machine = Machine.load(args.machine)
    file = Path(args.save) if args.save else None
    points: list[Point] = json.loads(file.read_text())["points"] if file and file.exists() else []
    known = {(p["name"], p["algorithm"], p["pes"], p["bytes"]) for p in points}
    with Forker({"OMP_NUM_THREADS": "1", "TRITON_DIST_SYMMETRIC_SIZE": "256M"}, ["triton_dist.kernels"]) as forker:
        for n_pes in args.pes:
            for nbytes in args.bytes:
                for name in args.only:
                    inside = IN_A_HOST[name] if n_pes <= machine.gpus_per_host else ()
                    for algorithm in (*inside, "two_level"):
                        if (name, algorithm, n_pes, nbytes) in known:
                            continue
                        what = WHOLE if args.whole else _recorded(name, n_pes, machine)
                        found = point(forker, machine, name, algorithm, n_pes, nbytes, what, args.timeout)
                        points.append(found)
                        path = ", ".join(f"{what} {part:.0%}" for what, part in list(found["path"].items())[:3])
                        what = f"{n_pes:4} × {name} {algorithm} of {_size(nbytes)}"
                        effort = f"{found['events']} events in {found['recorded_s']:.1f} s"
                        print(f"{what}: {found['simulated_us']:.1f} µs simulated ({path}); {effort}", flush=True)
                        if file:
                            file.write_text(json.dumps({"machine": machine.name, "points": points}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
