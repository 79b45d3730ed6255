"""Run the examples on this machine and say what ran, where, whether the results are right, and how long it took.

    python -m triton_dist.demo [--pes N]

Exit status 0 means that every example passed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from triton_dist.testing.launch import child_environment
from triton_dist.world.kind import kind

__all__ = ["main"]

PACKAGE = Path(__file__).resolve().parent
EXAMPLES = next((folder for folder in (PACKAGE / "examples", PACKAGE.parent / "examples") if folder.is_dir()), None)
"""An installed package has them inside, a source tree beside the package."""
TIME_LIMIT = 600.0  # seconds for one example: far above what any takes, so that a demo ends even if a machine hangs
PROGRESS_STEP = 10.0  # seconds between two signs of life


@dataclass(frozen=True)
class Outcome:
    """How one example went."""

    example: str
    passed: bool
    line: str  # the example's own result line, or what went wrong instead
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m triton_dist.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pes", type=int, help="how many PEs (default: 4 in the CPU world, else the number of GPUs)")
    n_pes = parser.parse_args().pes
    if kind() == "gpu" and torch.cuda.device_count() == 0:
        parser.error("TRITON_DIST_WORLD=gpu, but PyTorch sees no GPU: set TRITON_DIST_WORLD=cpu")
    if n_pes is None:
        n_pes = 4 if kind() == "cpu" else torch.cuda.device_count()
    if n_pes < 1:
        parser.error(f"--pes {n_pes}: at least one is needed")
    examples = sorted(EXAMPLES.glob("[0-9]*.py")) if EXAMPLES else []
    if not examples:
        print(f"no examples in or beside {PACKAGE}: triton_dist is not installed completely", file=sys.stderr)
        return 2
    print(f"triton-dist: {kind()} world, {n_pes} PEs, on {_devices()}", flush=True)
    outcomes = []
    for number, example in enumerate(examples, 1):
        print(f"[{number}/{len(examples)}] {example.stem}: torchrun --nproc-per-node {n_pes} {_shown(example)}")
        outcomes.append(_run(example, n_pes))
        print(f"      {outcomes[-1].line}", flush=True)
    _print_table(outcomes, n_pes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _run(example: Path, n_pes: int) -> Outcome:
    begin = time.monotonic()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n_pes)]
    environment = child_environment() | {"TRITON_DIST_WORLD": kind()}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*command, str(example)], stdout=output, stderr=output, env=environment)
        try:
            status = _wait(process, begin)
        finally:
            process.terminate()  # torchrun ends its PEs when it is asked to end
            process.wait()
        output.seek(0)
        text = output.read()
    seconds = time.monotonic() - begin
    lines = [line for line in text.splitlines() if line.startswith(("PASS ", "FAIL "))]
    if status != 0 or not lines:
        print(text, file=sys.stderr)
        problem = f"no end after {seconds:.0f} s" if status is None else f"exit status {status}"
        return Outcome(example.stem, False, lines[-1] if lines else f"FAIL {example.stem}: {problem}", seconds)
    return Outcome(example.stem, lines[-1].startswith("PASS"), lines[-1], seconds)


def _wait(process: subprocess.Popen[bytes], begin: float) -> int | None:
    """The exit status, or None after the time limit; meanwhile a line from time to time."""
    while time.monotonic() - begin < TIME_LIMIT:
        try:
            return process.wait(timeout=PROGRESS_STEP)
        except subprocess.TimeoutExpired:
            print(f"      still running after {time.monotonic() - begin:.0f} s", flush=True)
    return None


def _shown(example: Path) -> Path:
    """The path to type in the folder that the demo was started in."""
    here = Path.cwd()
    return example.relative_to(here) if example.is_relative_to(here) else example


def _devices() -> str:
    if kind() == "cpu":
        return f"{os.cpu_count()} cores of {platform.node()}, no GPU used; Triton interprets the kernels"
    count = torch.cuda.device_count()
    return f"{count} x {torch.cuda.get_device_name(0)}"


def _print_table(outcomes: list[Outcome], n_pes: int) -> None:
    rows = [("example", "world", "PEs", "check", "seconds")]
    for o in outcomes:
        rows.append((o.example, kind(), str(n_pes), "passed" if o.passed else "FAILED", f"{o.seconds:.1f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"\n{failed} of {len(outcomes)} failed" if failed else f"\nall {len(outcomes)} passed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
