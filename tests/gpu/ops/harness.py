"""Registering checks, running them on all PEs in step, and saying how each went."""

from __future__ import annotations

import argparse
import faulthandler
import functools
import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import triton_dist
from ops import record
from triton_dist import World, environment

Check = Callable[[World], None]

GPU = triton_dist.kind() == "gpu"
LIMIT_SECONDS = 60  # of one check, of the start and of the end: then every PE prints its stack and ends
LEFT_ALONE_SECONDS = 15  # how long a PE on which a check failed waits for the others, who may be waiting for it
SHOWN = 16  # differences of a result
_checks: dict[str, tuple[Check, bool, bool, bool]] = {}


def check(
    function: Check | None = None, *, gpu_only: bool = False, maps_all: bool = False, own_gpu: bool = False
) -> Any:
    """Register ``function(world)`` as a check: every PE runs it, and it raises where something is wrong.

    ``maps_all``: it loads from and stores to peers, so it is for worlds in which every PE reaches every other.
    ``own_gpu``: it has kernels that wait for copies between PEs, which are kernels, too, where PEs share a GPU.
    """
    if function is None:
        return lambda f: check(f, gpu_only=gpu_only, maps_all=maps_all, own_gpu=own_gpu)
    _checks[function.__name__] = function, gpu_only, maps_all, own_gpu
    return function


def rounds(gpu: int, cpu: int) -> int:
    """How often to repeat: interpreted programs are some thousand times slower, as are PEs that take turns on a GPU."""
    return gpu if GPU and not environment.get("TRITON_DIST_ALLOW_SHARED_GPU") else cpu


def random_bytes(n: int, seed: int) -> torch.Tensor:
    """Bytes that every PE can make again."""
    return torch.randint(0, 256, (n,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def random_floats(*shape: int, seed: int) -> torch.Tensor:
    """float32 values that every PE can make again."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def expect_equal(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """AssertionError with the first differences when the two are not equal bit for bit (NaN equals nothing)."""
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    if found.device == expected.device and torch.equal(found, expected):
        return
    found, expected = found.cpu(), expected.cpu()
    wrong = (found != expected).nonzero()
    if len(wrong):
        few = tuple(wrong[:SHOWN].t())
        raise AssertionError(
            f"{what}: {len(wrong)} of {found.numel()} differ, first at {wrong[:SHOWN].tolist()}: found"
            f" {found[few].tolist()}, expected {expected[few].tolist()}"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=[""], help="run only checks whose name contains one of these")
    parser.add_argument("--without", nargs="+", default=[], help="run no check whose name contains one of these")
    parser.add_argument("--part", default="0/1", help="run one part of the checks: 2/4 is the third of four")
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT_SECONDS,
        help="seconds for each check: more where kernels are not compiled yet",
    )
    parser.add_argument("--results", type=Path, help="a JSON file to write: what ran, with which ops, and how it went")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    names = [name for name in _checks if any(wanted in name for wanted in args.only)]
    names = [name for name in names if not any(unwanted in name for unwanted in args.without)][part::parts]
    chosen = {name: _checks[name] for name in names}
    if args.list:
        print("\n".join(chosen))
        return 0
    failed, results, skipped = 0, [], []
    record.start(GPU)
    faulthandler.dump_traceback_later(args.limit, exit=True)
    with triton_dist.init() as world:
        all_reachable = all(world.is_reachable(pe) for pe in range(world.n_pes))
        for name, (function, gpu_only, maps_all, own_gpu) in chosen.items():
            lacks = "GPUs" if gpu_only and not GPU else ""
            lacks = lacks or ("a GPU for each PE" if own_gpu and world.shares_gpu else "")
            lacks = lacks or ("PEs that reach each other by load and store" if maps_all and not all_reachable else "")
            if lacks:
                _say(world, f"SKIP {name}: needs {lacks}")
                skipped.append(name)
                continue
            begin = time.perf_counter()
            error = _run(function, world, args.limit)
            failed += not error.startswith("PASS")
            seconds = time.perf_counter() - begin
            _say(world, f"{error} ({seconds:.2f} s)")
            results.append({"check": name, "passed": error.startswith("PASS"), "ops": record.take()})
            _write(world, args.results, results, skipped)  # each time, since a time limit may end this program
        _write(world, args.results, results, skipped)
        _say(world, f"{len(chosen) - failed} of {len(chosen)} without failure on {world.n_pes} PEs")
    return 1 if failed else 0


def _write(world: World, file: Path | None, checks: list[dict[str, Any]], skipped: list[str]) -> None:
    """Write what has run so far, if it is wanted."""
    if file is not None and world.pe == 0:
        where = {"transport": world.transport if GPU else "cpu", "pes": world.n_pes}
        written = file.with_suffix(".part")
        written.write_text(json.dumps(where | {"commit": commit(), "checks": checks, "skipped": skipped}, indent=1))
        written.replace(file)


@functools.cache
def commit() -> str | None:
    """The commit of this tree, or of ``GIT_COMMIT`` where it is no repository; with ``+`` if files differ from it."""

    def git(*command: str) -> str:
        run = subprocess.run(["git", "-C", Path(__file__).parent, *command], capture_output=True, text=True)
        return run.stdout.strip() if run.returncode == 0 else ""

    if found := git("rev-parse", "--short=12", "HEAD"):
        return found + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    return os.environ.get("GIT_COMMIT")


def _run(function: Check, world: World, limit: float) -> str:
    """Run one check and learn how it went on the other PEs: a line that starts with PASS or FAIL, the same for all."""
    name = function.__name__
    problem = ""
    faulthandler.dump_traceback_later(limit, exit=True)
    try:
        function(world)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"PE {world.pe}, {name}:\n{traceback.format_exc()}", flush=True)
        faulthandler.dump_traceback_later(LEFT_ALONE_SECONDS, exit=True)
    bad = triton_dist.full(1, float(bool(problem)))
    pes = [pe for pe in range(world.n_pes) if _on_pe(bad, pe).item()]
    triton_dist.barrier_all()
    triton_dist.free(bad)
    faulthandler.dump_traceback_later(limit, exit=True)
    return f"FAIL {name} on PEs {pes} {problem}" if pes else f"PASS {name}"


def _on_pe(tensor: torch.Tensor, pe: int) -> torch.Tensor:
    """A copy of a symmetric tensor as it lies on a PE."""
    copy = torch.empty_like(tensor)
    triton_dist.get(copy, tensor, pe)
    return copy


def _say(world: World, line: str) -> None:
    if world.pe == 0:
        print(line, flush=True)
