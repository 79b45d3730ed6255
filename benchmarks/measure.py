"""Timing on several GPUs that compares like with like.

Everything to be compared runs in one process and one run: warmed up together (clocks start low), then in turns, so that
what disturbs the machine disturbs all of them. A round's time is that of its slowest PE; the median of the rounds
counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import triton_dist
from triton_dist import World

__all__ = ["compare", "gpus_or_exit"]

WARM_UP_SECONDS = 0.15
ROUNDS = 9


def gpus_or_exit(n_pes: int, what: str) -> None:
    """End the program, with status 0, unless this is a GPU world that can have that many PEs."""
    if triton_dist.kind() == "cpu":
        print(f"{what}: not measured. The CPU world interprets kernels; its times say nothing about GPUs.")
        sys.exit(0)
    if torch.cuda.device_count() < n_pes:
        print(f"{what}: not measured. It needs {n_pes} GPUs, and PyTorch sees {torch.cuda.device_count()}.")
        sys.exit(0)


def compare(world: World, steps: dict[str, Callable[[], None]], iterations: int = 1) -> dict[str, float]:
    """Median seconds of one iteration of each step, every PE running the same step at the same time. *Collective.*

    A step must be something that a CUDA graph can capture: it is launched as one, so that the host's time does not
    count.
    """
    graphs = {name: _capture(step, iterations) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    _warm_up(world, graphs)
    names = list(steps)
    for round_ in range(ROUNDS):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            triton_dist.barrier_all()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e-3 / iterations)
    triton_dist.barrier_all()
    slowest = _gather(world, torch.tensor([times[name] for name in names], dtype=torch.float64)).amax(dim=0)
    return dict(zip(names, slowest.median(dim=1).values.tolist(), strict=True))


def _capture(step: Callable[[], None], iterations: int) -> torch.cuda.CUDAGraph:
    step()  # compiles and loads, which a capture must not do
    triton_dist.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(iterations):
            step()
    return graph


def _warm_up(world: World, graphs: dict[str, torch.cuda.CUDAGraph]) -> None:
    begin = time.perf_counter()
    while True:
        for graph in graphs.values():
            graph.replay()
            triton_dist.barrier_all()
        done = torch.tensor([float(time.perf_counter() - begin > WARM_UP_SECONDS)])
        if _gather(world, done).all():  # all PEs stop after the same replay
            return


def _gather(world: World, values: torch.Tensor) -> torch.Tensor:
    """``values`` of every PE, stacked in PE order."""
    mine = triton_dist.from_tensor(values)
    gathered = torch.stack([triton_dist.peer(mine, pe).cpu() for pe in range(world.n_pes)])
    triton_dist.barrier_all()
    triton_dist.free(mine)
    return gathered
