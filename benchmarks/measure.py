"""Timing of transports that compares like with like, also where there is no world of ours.

What one process group can run is compared in one run: warmed up together (clocks start low), then in turns whose order
rotates, so that what disturbs the machine disturbs all. A round's time is that of its slowest PE; the median of the
rounds counts.
"""

from __future__ import annotations

import faulthandler
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["SIZES", "WARPS", "Report", "Split", "compare", "meet", "random_bytes", "split"]

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
SMALLEST_PIECE, LARGEST_PIECE = 4 * KIB, 256 * KIB
WARPS = 8

WARM_UP_SECONDS = 0.12
ROUNDS = 9
PATIENCE_SECONDS = 45.0


@dataclass(frozen=True)
class Split:
    """How the programs of a kernel share a copy: pieces, dealt out in turn.

    Neighbouring programs then work on neighbouring memory. One large share for each would have them march through the
    memory a power of two apart, which costs every transport a tenth of its bandwidth.
    """

    programs: int
    piece: int
    """Bytes, the same number of pieces for every program as far as that goes."""
    repeats: int
    """How often the copy is made in one kernel, so that what is timed is the copy and not the launch."""


class Report:
    """What a part found, in its file after every step. One that hangs ends, and says where each of its PEs was.

    Every PE has one; PE 0's writes and prints.
    """

    def __init__(self, path: Path, pe: int) -> None:
        self.found: dict[str, Any] = {}
        self._path, self._pe = path, pe
        self._begun = time.monotonic()
        self.goes_on()

    def goes_on(self) -> None:
        """The next step begins: it has ``PATIENCE_SECONDS``."""
        faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)

    def add(self, text: str) -> None:
        """``found`` is complete so far: write it, and say so."""
        self.goes_on()
        if self._pe == 0:
            self._path.write_text(json.dumps(self.found))
            print(f"[{time.monotonic() - self._begun:5.1f} s] {text}", flush=True)


def split(nbytes: int, programs: int) -> Split:
    share = max(SMALLEST_PIECE, -(-nbytes // programs))
    rounds = -(-share // LARGEST_PIECE)
    piece = -(-share // (rounds * 128)) * 128
    repeats = max(4, min(2000, (512 << 20) // nbytes))
    return Split(min(programs, -(-nbytes // piece)), piece, repeats)


def random_bytes(nbytes: int, pe: int, device: torch.device) -> torch.Tensor:
    """A PE's data, which every PE can make again."""
    generator = torch.Generator(device).manual_seed(1 + pe)
    return torch.randint(
        -(2**31), 2**31, (-(-nbytes // 4),), dtype=torch.int32, device=device, generator=generator
    ).view(torch.uint8)[:nbytes]


def compare(steps: dict[str, Callable[[], None]], *, as_graphs: bool = True) -> dict[str, float]:
    """Median seconds of each step on the slowest PE, every PE running the same step at the same time. *Collective.*

    Args:
        steps: each has run once already, so that it is compiled.
        as_graphs: launch each as a CUDA graph, so that the host's time does not count.
    """
    launches = {name: _capture(step).replay if as_graphs else step for name, step in steps.items()}
    names = list(launches)
    begin, warm = time.perf_counter(), False
    while not warm:
        for launch in launches.values():
            meet()
            launch()
        torch.cuda.synchronize()
        shortest = torch.tensor(time.perf_counter() - begin)
        dist.all_reduce(shortest, op=dist.ReduceOp.MIN)  # all PEs stop after the same round
        warm = shortest.item() > WARM_UP_SECONDS
    times = torch.zeros(len(names), ROUNDS, dtype=torch.float64)
    for round_ in range(ROUNDS):
        for turn in range(len(names)):
            index = (round_ + turn) % len(names)
            begin_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            meet()
            begin_event.record()
            launches[names[index]]()
            end_event.record()
            end_event.synchronize()
            times[index, round_] = begin_event.elapsed_time(end_event) * 1e-3
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return dict(zip(names, times.median(dim=1).values.tolist(), strict=True))


def meet() -> None:
    """All PEs are here, and their GPUs idle.

    By way of the CPU: dist.barrier() is a kernel where the group has NCCL, too.
    """
    torch.cuda.synchronize()
    dist.all_reduce(torch.zeros(1))


def _capture(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # of PEs that look on
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph
