"""Print which op of the table was run where: docs/tested.md, from what the checks between PEs wrote down.

torchrun --nproc-per-node 2 tests/gpu/worker_ops.py --results p2p-2.json    # in each world to be shown
python scripts/op_coverage.py --add "H200, CUDA 13" p2p-2.json …            # into benchmarks/results; of a world
    # whose checks ran in several parts, all files, the oldest first
python scripts/op_coverage.py > docs/tested.md                              # what `make docs` does
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from triton_dist._C.op_table import OPS, Op

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results/op-checks.json"
PAGE = Path(__file__).resolve().parents[1] / "docs/tested.md"

_INTRODUCTION = """\
# What was run where

Every operation of the [op table](ops.md), and in how many checks of
[`tests/gpu/worker_ops.py`](../tests/gpu/worker_ops.py) a kernel with it was launched: between 2 and 4 PEs, each against
a reference, all passed unless said otherwise. A kernel that several checks launch counts in the first. This page
is made by `scripts/op_coverage.py` from [what those runs wrote down](../benchmarks/results/op-checks.json).

Several commits of a run are those of its parts, the oldest first: of a check that ran twice the later one counts.

ROCSHMEM was compiled for gfx942 and gfx950 and never run ([amd.md](amd.md)); — means that it has no such routine.
"""


def page() -> Iterator[str]:
    runs = json.loads(RESULTS.read_text())
    yield _INTRODUCTION
    yield "| run | where | commit | checks | failed |"
    yield "| --- | --- | --- | --- | --- |"
    for run in runs:
        failed = [check["check"] for check in run["checks"] if not check["passed"]]
        where = f"{run['where']} | {run.get('commit') or 'not noted'}"
        yield f"| {_title(run)} | {where} | {len(run['checks'])} | {', '.join(failed) or '0'} |"
    yield ""
    yield "| op | " + " | ".join(map(_title, runs)) + " | rocshmem |"
    yield "| --- |" + " --- |" * (len(runs) + 1)
    for op in OPS.values():
        cells = [_cell(run, op) for run in runs]
        yield f"| [`{op.name}`](ops.md#{op.name}) | {' | '.join(cells)} | {_rocshmem(op)} |"


def _title(run: Any) -> str:
    return f"{run['transport']}, {run['pes']} PEs" if run["transport"] != "cpu" else f"CPU world, {run['pes']} PEs"


def _cell(run: Any, op: Op) -> str:
    checks = [check for check in run["checks"] if op.name in check["ops"]]
    failed = sum(not check["passed"] for check in checks)
    if run["transport"] == "cpu" and op.name in ("always", "poll"):
        return "not needed"
    return "not run" if not checks else f"{len(checks) - failed}" + (f", {failed} failed" if failed else "")


def _rocshmem(op: Op) -> str:
    return "compiled" if op.routines["rocshmem"] or not op.caller else "—"


def added(known: Iterable[Any], where: str, parts: Iterable[Any]) -> list[Any]:
    """The runs that are ``known``, but those of the worlds of which there are ``parts``: these in their place.

    Where parts of a world are of several commits all of them are named, and a check counts as the last commit has it.

    Raises:
        ValueError: two parts of one commit have a check in common.
    """
    found: dict[tuple[str, int], Any] = {}
    seen = set()
    for part in parts:
        new = {"where": where} | part | {"checks": [], "skipped": []}
        run = found.setdefault((part["transport"], part["pes"]), new)
        names = {check["check"] for check in part["checks"]}
        keys = {(_title(part), part["commit"], name) for name in names}
        if twice := keys & seen:
            raise ValueError(f"{_title(part)}: two parts have the checks {', '.join(sorted(key[2] for key in twice))}")
        seen |= keys
        commits = dict.fromkeys(f"{run['commit']}, {part['commit']}".split(", "))  # of a part that is several, too
        run["commit"] = ", ".join(commits)
        run["checks"] = [check for check in run["checks"] if check["check"] not in names] + part["checks"]
        run["skipped"] += [check for check in part["skipped"] if check not in run["skipped"]]
    runs = {(run["transport"], run["pes"]): run for run in known} | found
    return [runs[key] for key in sorted(runs, reverse=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--add", help="where the results that are named were made; they replace those of the same world"
    )
    parser.add_argument("results", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.add:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        runs = added(known, arguments.add, [json.loads(file.read_text()) for file in arguments.results])
        RESULTS.write_text(json.dumps(runs, indent=1) + "\n")
    else:
        print("\n".join(page()))


if __name__ == "__main__":
    main()
