"""The pattern ``copy_engine`` of gemm_all_scatter: rows of C leave by the copy engine while programs compute the next.

It needs no processor, and neither slows the other down. But NVLink brings copies to a PE at full rate only if they come
from one PE at a time: when each of four H200s copied to all others at once, it sent 220 to 290 GB/s, and one after the
other 377. So a PE's copies are in one queue, and before a copy it waits for its turn, which it gets from the PE whose
copy to the same PE has ended. All PEs go through the same steps, each as seen from itself; so turns go round without
anybody who decides.

A turn takes about 10 µs. So a copy is all that is finished when the engine is free, and has not gone to that PE yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import torch
import triton

import triton_dist
from triton_dist.kernels.gemm import portable, streams
from triton_dist.kernels.gemm.config import WIRE, choose, flops
from triton_dist.kernels.gemm.plan_cache import kept, shape_of
from triton_dist.kernels.gemm.schedule import Tile, grouped, make_schedule
from triton_dist.kernels.protocols.side_stream import side_stream

if TYPE_CHECKING:
    from triton_dist.kernels.gemm.hopper.launch import Launcher

__all__ = ["Step", "chunks_of", "send_by_engine", "steps_of"]

TURN = 10e-6
"""Seconds from the end of a copy to the begin of the next, to another PE."""

COPIES = 32
"""To each PE, at most: where nothing is gained by more, their launches would still take the host's time."""


@dataclass(frozen=True)
class Step:
    """A copy of C's rows of tiles ``[first, stop)`` to the PE ``distance`` PEs after this one."""

    distance: int
    first: int
    stop: int


def steps_of(rows: int, columns: int, programs: int, peers: int, *, round_: float, row: float) -> list[Step]:
    """All copies, in order: everything to everybody, to one PE after the other.

    Args:
        rows, columns: of tiles that C has, which are computed row after row.
        programs: how many tiles are computed at a time.
        peers: to how many PEs C goes.
        round_: seconds that ``programs`` tiles take.
        row: seconds that the engine takes for a row of tiles, to one PE.
    """
    least, free = triton.cdiv(rows, COPIES), 0.0
    sent = dict.fromkeys(range(1, peers + 1), 0)
    found: list[Step] = []
    for distance in cycle(sent):
        first = sent[distance]
        if first < rows:
            ready = triton.cdiv(min(rows, first + least) * columns, programs)
            free = max(free, ready * round_)
            stop = min(rows, max(ready, int(free / round_)) * programs // columns)
            found.append(Step(distance, first, stop))
            free += (stop - first) * row + TURN
            sent[distance] = stop
        elif min(sent.values()) == rows:
            break
    return found


def chunks_of(steps: Sequence[Step], rows: int) -> list[range]:
    """The rows of tiles between which copies begin or end."""
    ends = sorted({rows, *(step.stop for step in steps)})
    return [range(first, stop) for first, stop in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class _Plan:
    launcher: Launcher
    steps: list[Step]
    chunks: dict[int, int]
    """Their numbers, by the row of tiles behind their last."""
    turns: torch.Tensor
    """Symmetric words: who takes step i may begin it."""


def send_by_engine(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: torch.Tensor | None) -> None:
    """c = a · b, this PE's columns of C, on every PE. *Collective* when a shape is first used.

    Args:
        c: [M, N / n_pes], the columns of a symmetric [M, N].
    """
    from triton_dist.kernels.gemm.hopper.launch import everywhere
    from triton_dist.kernels.gemm.hopper.layout import DONE, ENTERED

    plan = kept(("engine", *shape_of(a, b)), lambda: _plan(a, c))
    launcher, steps, here = plan.launcher, plan.steps, torch.cuda.current_stream()
    n_pes, me = triton_dist.n_pes(), triton_dist.my_pe()
    others = [pe for pe in range(n_pes) if pe != me]
    ready, block_m, peers = launcher.chunk_flags.data_ptr(), launcher.config.block_m, everywhere(c)
    flags, turns = ([words.data_ptr() for words in everywhere(own)] for own in (launcher.flags, plan.turns))

    with side_stream() as beside:
        launcher(a, b, c, scale=scale)
        for pe in others:
            streams.take(beside, flags[0] + 4 * (ENTERED.value + pe))
        awaited = 0
        for i, step in enumerate(steps):
            while awaited <= plan.chunks[step.stop]:
                streams.take(beside, ready + 4 * awaited)
                awaited += 1
            if i and steps[i - 1].distance != step.distance:
                streams.take(beside, turns[0] + 4 * i)
            rows = slice(step.first * block_m, step.stop * block_m)
            streams.copy(beside, peers[step.distance][rows], c[rows])
            if i + 1 < len(steps) and steps[i + 1].distance != step.distance:
                # The next sender to the PE that this copy went to: it precedes that PE by the next step's distance.
                next_sender = (step.distance - steps[i + 1].distance) % n_pes
                streams.give(beside, turns[next_sender] + 4 * (i + 1))
            if step.stop == max(plan.chunks):
                streams.give(beside, flags[step.distance] + 4 * (DONE.value + me))
    for pe in others:
        streams.take(here, flags[0] + 4 * (DONE.value + pe))


def _plan(a: torch.Tensor, c: torch.Tensor) -> _Plan:
    from triton_dist.kernels.gemm.hopper.launch import Launcher

    n_pes, programs = triton_dist.n_pes(), portable.programs()
    config = choose(a, c, programs, peers=n_pes - 1)
    rows, columns = config.tiles(c)
    round_ = 2 * config.block_m * config.block_n * a.shape[1] * programs / (flops(a.dtype) * config.rate)
    row = config.block_m * c.shape[1] * c.element_size() / WIRE
    steps = steps_of(len(rows), len(columns), programs, n_pes - 1, round_=round_, row=row)
    chunks = chunks_of(steps, len(rows))
    tiles = [Tile(row, column, number) for number, some in enumerate(chunks) for row, column in grouped(some, columns)]
    schedule = make_schedule(tiles, config.k_steps(a), programs)
    sizes = [len(some) * len(columns) for some in chunks]
    launcher = Launcher(schedule, config, "chunks", False, len(columns), chunk_sizes=sizes)
    numbers = {some.stop: number for number, some in enumerate(chunks)}
    turns = triton_dist.zeros(max(1, len(steps)), dtype=torch.int32)
    return _Plan(launcher, steps, numbers, turns)
