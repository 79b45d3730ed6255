"""Times that triton_dist.model predicts for collectives on H200s, beside the measured ones of benchmarks/results.

    python benchmarks/model_error.py [--largest BYTES] [--only all_gather …] [--save FILE] [--plot FILE]

Needs no GPU: the calls run in the CPU world and are replayed. What was measured: benchmarks/collectives.py.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

from model_cases import TIMED

from triton_dist.model.graph import Graph
from triton_dist.model.machine import Machine
from triton_dist.model.record import record
from triton_dist.model.replay import Replay
from triton_dist.testing.forks import Forker

__all__ = ["Case", "measured", "predicted"]

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
TOGETHER = 12
"""How many cases are one run, whose log is held in memory."""


class Case(NamedTuple):
    n_pes: int
    name: str
    algorithm: str
    nbytes: int
    microseconds: float
    """Measured: the median."""

    @property
    def text(self) -> str:
        return f"{self.name}:{self.algorithm}:{self.nbytes}"


def measured(n_pes: int, names: list[str] | None, largest: int) -> list[Case]:
    """What has been measured of our algorithms, of at most ``largest`` bytes of one PE's input."""
    data = json.loads((RESULTS / f"2026-11-21-{n_pes}xh200-collectives.json").read_text())
    cases = []
    for entry in data["entries"]:
        name, rest = entry["title"].split(" ", 1)
        nbytes = _nbytes(rest)
        if (names and name not in names) or nbytes > largest:
            continue
        for side, timing in entry["timings"].items():
            if side.startswith("ours "):
                cases.append(Case(n_pes, name, side.removeprefix("ours "), nbytes, timing["median"]))
    return cases


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
    run = record(forker, [str(script), *(case.text for case in cases)], cases[0].n_pes, machine, timeout=timeout)
    replay = Replay(Graph(run), machine)
    replay.run()
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
        for n_pes, marker in ((2, "o"), (4, "^")):
            points = [(case.microseconds, time) for case, time in rows if (case.name, case.n_pes) == (name, n_pes)]
            if points:
                label = f"{name}, {n_pes} GPUs"
                axes.scatter(*zip(*points, strict=True), s=18, marker=marker, color=f"C{i}", label=label)
    axes.set(xscale="log", yscale="log", xlabel="measured, µs", ylabel="simulated, µs")
    axes.set_title("H200, collectives, one point for each algorithm and size", fontsize=9)
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
    parser.add_argument("--pes", nargs="+", type=int, default=[2, 4], choices=[2, 4])
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--timeout", type=float, default=170.0, help="seconds for each run of a few cases")
    parser.add_argument("--save", help="where to write the figures, as JSON")
    parser.add_argument("--plot", help="where to draw them")
    args = parser.parse_args()
    machine = Machine.load(args.machine)
    rows: list[tuple[Case, float]] = []
    with Forker({"OMP_NUM_THREADS": "1", "TRITON_DIST_SYMMETRIC_SIZE": "2G"}, ["triton_dist.kernels"]) as forker:
        for n_pes in args.pes:
            cases = measured(n_pes, args.only, args.largest)
            for begin in range(0, len(cases), TOGETHER):
                part = cases[begin : begin + TOGETHER]
                for case, time in zip(part, predicted(forker, part, machine, args.timeout), strict=True):
                    rows.append((case, time))
                    error = time / case.microseconds - 1
                    what = f"{case.n_pes} × {case.name} {case.algorithm} {case.nbytes}"
                    print(f"{what:50} {case.microseconds:9.2f} µs measured {time:9.2f} µs simulated {error:+7.1%}")
                    sys.stdout.flush()
    for n_pes in args.pes:
        print(f"{n_pes} GPUs: {summary([row for row in rows if row[0].n_pes == n_pes])}")
    print(f"all: {summary(rows)}")
    if args.save:
        found: list[dict[str, Any]] = [{**case._asdict(), "simulated": time} for case, time in rows]
        Path(args.save).write_text(json.dumps({"machine": machine.name, "cases": found}, indent=1) + "\n")
    if args.plot:
        plot(rows, args.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
