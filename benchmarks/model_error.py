"""Times that triton_dist.model predicts for H200s, beside the measured ones of benchmarks/results.

    python benchmarks/model_error.py [--largest BYTES] [--only all_gather …] [--save FILE]
    python benchmarks/model_error.py --plot IMAGE FILE …

Needs no GPU: calls run in the CPU world and are replayed. Collectives (measured by collectives.py) are recorded whole;
of the small-M GEMMs that are fused with sums over PEs (gemms.py) the first and the last program of each PE are.
The steps of the Hopper kernels, which are large GEMMs, follow from their plans (planned_gemms.py). Local GEMMs on one
GPU show how good the rate of products is on which these depend. ``--save`` adds to a file what it lacks.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from model_cases import TIMED
from planned_gemms import ALGORITHMS, Gemm, simulated

from triton_dist.kernels.gemm.config import LARGE, WIDE
from triton_dist.model.expanded import ExpandedGraph
from triton_dist.model.graph import Graph
from triton_dist.model.machine import Machine
from triton_dist.model.record import record
from triton_dist.model.replay import Replay
from triton_dist.testing.forks import Forker

__all__ = ["Case", "measured", "measured_gemms", "measured_large_gemms", "measured_local_gemms", "predicted"]

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
SMALL_M = 128
"""Rows of a small-M GEMM, at most."""
TOGETHER = 12
"""How many cases are one run, whose log is held in memory."""


class Case(NamedTuple):
    n_pes: int
    name: str
    algorithm: str
    nbytes: int
    """Of one PE's input; of a GEMM, of its part of B."""
    microseconds: float
    """Measured: the median."""
    shape: str = ""
    """Of a GEMM: its M, N and K on a PE."""
    dtype: str = "bfloat16"

    @property
    def is_planned(self) -> bool:
        """Whether its steps follow from a plan, and not from a recording."""
        return bool(self.shape) and self.algorithm != "fused"

    @property
    def text(self) -> str:
        return f"{self.name}:{self.algorithm}:{self.shape or self.nbytes}"


LOCAL_GEMMS = {
    (4096, 2048, 8192): (215, 203),
    (8192, 1152, 36864): (1143, 1209),
    (8192, 2048, 30720): (1590, 1470),
    (8192, 9216, 4608): (1053, 1048),
}
"""M, N and K, and µs back to back on one H200 with tiles of 128 × 128 and of 128 × 256, of single programs
(benchmarks/results/2026-11-21-gemms.md, "Clusters of two programs")."""


def measured(n_pes: int, names: list[str] | None, largest: int) -> list[Case]:
    """What has been measured of our algorithms, of at most ``largest`` bytes of one PE's input."""
    data = json.loads((RESULTS / f"2026-11-21-{n_pes}xh200-collectives.json").read_text())
    cases = []
    for entry in data["entries"]:
        name, rest = entry["title"].split(" ", 1)
        nbytes = _nbytes(rest)
        if (names and name not in names) or nbytes > largest:
            continue
        for contender, timing in entry["timings"].items():
            if contender.startswith("ours "):
                cases.append(Case(n_pes, name, contender.removeprefix("ours "), nbytes, timing["median"]))
    return cases


def measured_gemms(n_pes: int, names: list[str] | None) -> list[Case]:
    """The small-M GEMMs that have been measured with sums over PEs, which ``auto`` fuses with them."""
    data = json.loads((RESULTS / f"2026-11-21-{n_pes}xh200-gemms.json").read_text())
    cases = []
    for entry in data["entries"]:
        found = re.fullmatch(r"(gemm_(?:reduce_scatter|all_reduce)) M=(\d+) K/PE=(\d+) N=(\d+)", entry["title"])
        if found and int(found[2]) <= SMALL_M and (not names or found[1] in names):
            name, (m, k, n) = found[1], map(int, found.groups()[1:])
            time = entry["timings"].get("ours, fused", entry["timings"]["ours"])["median"]
            cases.append(Case(n_pes, name, "fused", 2 * n * k, time, f"{m}x{n}x{k}"))
    return cases


def measured_large_gemms(n_pes: int, names: list[str] | None, dtype: str = "bfloat16") -> list[Case]:
    """The fused GEMMs of more rows, by the algorithm whose kernel is planned.

    Where a result names no algorithm, ``auto`` took it: the other one takes longer by measured times and by the model
    that it chooses by.
    """
    suffix = "" if dtype == "bfloat16" else "-fp8"
    file = RESULTS / f"2026-11-21-{n_pes}xh200-gemms{suffix}.json"
    cases = []
    for entry in json.loads(file.read_text())["entries"] if file.exists() else ():
        name, sizes = entry["title"].split(" ", 1)
        name = name.rstrip(",")
        of = {key: int(value) for key, value in re.findall(r"(\S+)=(\d+)", sizes)}
        if of["M"] <= SMALL_M or (names and name not in names):
            continue
        n = of["N/PE"] if "N/PE" in of else of["N"] // (n_pes if name == "gemm_all_scatter" else 1)
        shape = f"{of['M']}x{n}x{of.get('K/PE', of.get('K'))}"
        timings, algorithm = entry["timings"], ALGORITHMS[name]
        time = timings.get(f"ours, {algorithm}", timings["ours"])["median"]
        cases.append(Case(n_pes, name, algorithm, 0, time, shape, dtype))
    return cases


def measured_local_gemms() -> list[Case]:
    """Of the kernels' tiles, on one GPU."""
    return [
        Case(1, "local_gemm", f"128x{config.block_n}", 0, time, "x".join(map(str, shape)))
        for shape, times in LOCAL_GEMMS.items()
        for config, time in zip((LARGE, WIDE), times, strict=True)
    ]


def planned(case: Case, machine: Machine) -> float:
    """Microseconds of a case whose steps follow from a plan."""
    m, n, k = map(int, case.shape.split("x"))
    config = None
    if case.name == "local_gemm":
        config = next(config for config in (LARGE, WIDE) if case.algorithm == f"128x{config.block_n}")
    return simulated(Gemm(case.name, case.n_pes, m, n, k, getattr(torch, case.dtype), config=config), machine)


def _nbytes(text: str) -> int:
    if rows := re.fullmatch(r"(\d+) × 7168", text):
        return int(rows[1]) * 7168 * 2
    size = re.match(r"(\d+) (KB|MB)", text)
    assert size is not None, text
    return int(size[1]) << {"KB": 10, "MB": 20}[size[2]]


def predicted(forker: Forker, cases: list[Case], machine: Machine, timeout: float) -> list[float]:
    """Microseconds of each of these cases, which all have the same number of PEs."""
    script = FOLDER / "model_cases.py"
    line = next(i for i, text in enumerate(script.read_text().splitlines(), 1) if text.endswith(f"# {TIMED}"))
    calls = [str(script), *(case.text for case in cases)]
    some = () if cases[0].shape else None
    run = record(forker, calls, cases[0].n_pes, machine, timeout=timeout, programs=some)
    gc.collect()
    gc.freeze()
    gc.disable()  # of all steps none is garbage
    replay = Replay(Graph(run) if some is None else ExpandedGraph(run), machine)
    replay.run()
    gc.enable()
    gc.unfreeze()
    times = [phase.end - phase.begin for phase in replay.phases if phase.place and phase.place.line == line]
    assert len(times) == len(cases)
    return times


def plot(rows: list[tuple[Case, float]], file: str) -> None:
    """Predicted over measured times, with the lines of 15 % and 40 %."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 6), constrained_layout=True)
    ends = [min(case.microseconds for case, _ in rows) / 1.5, max(case.microseconds for case, _ in rows) * 1.5]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for error, style in ((0.15, "--"), (0.4, ":")):
        for sign in (1, -1):
            label = f"± {error:.0%}" if sign == 1 else None
            axes.plot(ends, [end * (1 + sign * error) for end in ends], style, color="grey", linewidth=0.8, label=label)
    for i, name in enumerate(dict.fromkeys(case.name for case, _ in rows)):
        for n_pes, marker in ((1, "s"), (2, "o"), (4, "^")):
            points = [(case.microseconds, time) for case, time in rows if (case.name, case.n_pes) == (name, n_pes)]
            if points:
                label = f"{name}, {n_pes} GPU{'s' if n_pes > 1 else ''}"
                axes.scatter(*zip(*points, strict=True), s=18, marker=marker, color=f"C{i}", label=label)
    axes.set(xscale="log", yscale="log", xlabel="measured, µs", ylabel="simulated, µs")
    axes.set_title("H200: a point for each algorithm and size", fontsize=9)
    axes.legend(fontsize=7)
    figure.savefig(file)


def summary(rows: list[tuple[Case, float]]) -> str:
    errors = [abs(time / case.microseconds - 1) for case, time in rows]
    signed = statistics.median(time / case.microseconds - 1 for case, time in rows)
    return f"median {statistics.median(errors):.1%} (with sign {signed:+.1%}), worst {max(errors):.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=512 << 10, help="bytes of one PE's input (default: 512 KB)")
    parser.add_argument("--only", nargs="+", help="which collectives")
    parser.add_argument("--pes", nargs="+", type=int, default=[2, 4], choices=[1, 2, 4])
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--timeout", type=float, default=170.0, help="seconds for each run of a few cases")
    parser.add_argument("--save", help="a JSON file to which figures are added")
    parser.add_argument("--planned", action="store_true", help="only GEMMs whose steps follow from plans")
    parser.add_argument("--plot", nargs="+", metavar=("IMAGE", "FILE"), help="draw what files have")
    args = parser.parse_args()
    if args.plot:
        image, *files = args.plot
        plot([row for file in files for row in _saved(file)], image)
        return 0
    machine = Machine.load(args.machine)
    rows = _saved(args.save) if args.save and Path(args.save).exists() else []
    known = {case for case, _ in rows}
    with Forker({"OMP_NUM_THREADS": "1", "TRITON_DIST_SYMMETRIC_SIZE": "2G"}, ["triton_dist.kernels"]) as forker:
        for n_pes in args.pes:
            parts = _parts(n_pes, args.only, args.largest, known, only_planned=args.planned)
            for part in parts:
                times = (
                    [planned(case, machine) for case in part]
                    if part[0].is_planned
                    else predicted(forker, part, machine, args.timeout)
                )
                for case, time in zip(part, times, strict=True):
                    rows.append((case, time))
                    error = time / case.microseconds - 1
                    what = f"{case.n_pes} × {case.text}" + (f", {case.dtype}" if case.dtype != "bfloat16" else "")
                    print(f"{what:50} {case.microseconds:9.2f} µs measured {time:9.2f} µs simulated {error:+7.1%}")
                    sys.stdout.flush()
                if args.save:
                    _save(args.save, machine, rows)
    for n_pes in args.pes:
        for what in ("collectives", "small-M GEMMs", "large GEMMs, bfloat16", "large GEMMs, float8_e4m3fn"):
            chosen = [(case, time) for case, time in rows if case.n_pes == n_pes and _kind(case) == what]
            if chosen:
                print(f"{n_pes} GPUs, {what}: {summary(chosen)}")
    print(f"all: {summary(rows)}")
    return 0


def _parts(
    n_pes: int, names: list[str] | None, largest: int, known: set[Case], *, only_planned: bool
) -> list[list[Case]]:
    """The cases that are simulated, as many at a time as are one run."""
    if n_pes == 1:
        return [[case] for case in measured_local_gemms() if case not in known]
    large = [*measured_large_gemms(n_pes, names), *measured_large_gemms(n_pes, names, "float8_e4m3fn")]
    single = large if only_planned else [*measured_gemms(n_pes, names), *large]
    cases = [] if only_planned else [case for case in measured(n_pes, names, largest) if case not in known]
    together = [cases[begin : begin + TOGETHER] for begin in range(0, len(cases), TOGETHER)]
    return [*together, *([case] for case in single if case not in known)]


def _kind(case: Case) -> str:
    if not case.shape:
        return "collectives"
    return f"large GEMMs, {case.dtype}" if case.is_planned else "small-M GEMMs"


def _save(file: str, machine: Machine, rows: list[tuple[Case, float]]) -> None:
    found: list[dict[str, Any]] = [{**case._asdict(), "simulated": time} for case, time in rows]
    Path(file).write_text(json.dumps({"machine": machine.name, "cases": found}, indent=1) + "\n")


def _saved(file: str) -> list[tuple[Case, float]]:
    found = json.loads(Path(file).read_text())["cases"]
    return [(Case(**{key: each[key] for key in Case._fields if key in each}), each["simulated"]) for each in found]


if __name__ == "__main__":
    raise SystemExit(main())
