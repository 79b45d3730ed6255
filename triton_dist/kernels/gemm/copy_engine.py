"""The algorithm ``copy_engine`` of gemm_all_scatter: the copy engine sends rows of C while programs compute the next.

It takes no multiprocessor, and neither slows the other. But NVLink delivers copies at full rate only if a PE receives
from one PE at a time: four H200s sent 220 to 290 GB/s when each copied to all others at once, and 377 GB/s when each
received from one. So a PE's copies are in one stream, in round-robin order of the peers, and before a copy the stream
waits for a token, which it gets from the PE whose copy to the same peer has ended. All PEs go through the same steps,
each relative to itself, so the tokens circulate without a coordinator.

Passing a token takes about 10 µs. So a copy sends all rows that are finished and have not been sent to that peer yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import torch
import triton

from triton_dist.kernels import prepared
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.plan_cache import cached, in_bucket
from triton_dist.kernels.gemm.tile_sizes import choose
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_work import StreamWork, copy_rows, give, take
from triton_dist.kernels.rates import WIRE
from triton_dist.stream_operations import Operation

if TYPE_CHECKING:
    from triton_dist.kernels.gemm.hopper.gemm_all_scatter_chunks import Chunks
    from triton_dist.kernels.gemm.hopper.launch import Plan

__all__ = ["Step", "chunks_of", "lacks_copy_engine", "send_by_copy_engine", "steps_of"]

TOKEN_LATENCY = 10e-6
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
    """All copies, in order: every row to every peer, to one peer after the other.

    Args:
        rows, columns: of tiles that C has, which are computed row after row.
        programs: how many tiles are computed at a time.
        peers: to how many PEs C is sent.
        round_: seconds that ``programs`` tiles take.
        row: seconds that the copy engine takes for a row of tiles, to one PE.
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
            free += (stop - first) * row + TOKEN_LATENCY
            sent[distance] = stop
        elif min(sent.values()) == rows:
            break
    return found


def chunks_of(steps: Sequence[Step], rows: int) -> list[range]:
    """The rows of tiles between which copies begin or end."""
    ends = sorted({rows, *(step.stop for step in steps)})
    return [range(first, stop) for first, stop in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class CopyPlan:
    """What is kept for a shape.

    Attributes:
        plan, chunks: the kernel's.
        numbers: of the chunks, by the row of tiles behind their last.
        tokens: symmetric words; 1 where this PE has the token for step i.
    """

    plan: Plan
    chunks: Chunks
    steps: list[Step]
    numbers: dict[int, int]
    tokens: torch.Tensor


def lacks_copy_engine(comm: Communicator) -> str:
    """Why no copy engine can send; empty if one can."""
    streams = comm.world.host_streams
    return "" if streams is None else streams.lacks


def send_by_copy_engine(gemm: Operands) -> Sequence[prepared.Step] | None:
    """c = a · b, this PE's columns of C, on every PE. *Collective* when a shape is first used.

    Args:
        gemm: whose ``c``, [M, N / n_pes], are the columns of a symmetric [M, N].
    """
    from triton_dist.kernels.gemm.hopper import gemm_all_scatter_chunks as hopper
    from triton_dist.kernels.gemm.hopper.layout import DONE

    comm, a, c, programs = gemm.comm, gemm.a, gemm.c, portable.programs(gemm.sm_margin)
    copies = cached(
        comm, gemm.key("copy engine"), lambda: _make_plan(comm, a, in_bucket(c), programs, gemm.fold, gemm.of_blocks)
    )
    me, width = comm.my_rank, c.shape[1]
    mine = slice(me * width, (me + 1) * width)
    send = StreamWork(_sends(comm, copies, c))
    done = [copies.plan.flags.data_ptr() + 4 * (DONE.value + pe) for pe in range(comm.n_pes) if pe != me]
    take_done = StreamWork([take(flag) for flag in done])

    with side_stream(comm) as side:
        computed = hopper.run(copies.plan, copies.chunks, gemm)
        send(side.cuda_stream)
    take_done(comm.current_stream())
    return prepared.steps(
        (computed, lambda call: (call.a, call.b, call.out[:, mine]), (send, prepared.nothing)),
        (take_done, prepared.nothing),
    )


def _sends(comm: Communicator, copies: CopyPlan, c: torch.Tensor) -> list[Operation]:
    """What the copy engine's stream gets in a call, in order.

    It holds for any call whose ``c`` lies at the same place, which is a part of a call's signature.
    """
    from triton_dist.kernels.gemm.hopper.launch import peer_tensors
    from triton_dist.kernels.gemm.hopper.layout import DONE, ENTERED

    n_pes, me, steps, block_m = comm.n_pes, comm.my_rank, copies.steps, copies.plan.config.block_m
    ready, peers_c = copies.chunks.flags.data_ptr(), peer_tensors(comm, c)
    own = copies.plan.flags, copies.tokens
    flags, tokens = ([words.data_ptr() for words in peer_tensors(comm, symmetric)] for symmetric in own)
    entered = [flags[0] + 4 * (ENTERED.value + pe) for pe in range(n_pes) if pe != me]
    found = [take(flag) for flag in entered]
    awaited = 0
    for i, step in enumerate(steps):
        while awaited <= copies.numbers[step.stop]:
            found.append(take(ready + 4 * awaited))
            awaited += 1
        if i and steps[i - 1].distance != step.distance:
            found.append(take(tokens[0] + 4 * i))
        rows = slice(step.first * block_m, step.stop * block_m)
        found.append(copy_rows(peers_c[step.distance][rows], c[rows]))
        if i + 1 < len(steps) and steps[i + 1].distance != step.distance:
            # The next sender to the PE that this copy was sent to: it precedes that PE by the next step's distance.
            next_sender = (step.distance - steps[i + 1].distance) % n_pes
            found.append(give(tokens[next_sender] + 4 * (i + 1)))
        if step.stop == max(copies.numbers):
            found.append(give(flags[step.distance] + 4 * (DONE.value + me)))
    return found


def _make_plan(
    comm: Communicator, a: torch.Tensor, c: torch.Tensor, programs: int, fold: int = 1, of_blocks: bool = False
) -> CopyPlan:
    from triton_dist.kernels.gemm.hopper import gemm_all_scatter_chunks as hopper
    from triton_dist.kernels.gemm.hopper.memory import symmetric_flags

    n_pes = comm.n_pes
    config = choose(a, c, programs, peers=n_pes - 1, fold=fold, of_blocks=of_blocks)
    rows, columns = config.tiles(c)
    round_ = config.round_seconds(a.shape[1], a.dtype, programs)
    row = config.block_m * c.shape[1] * c.element_size() / WIRE
    steps = steps_of(len(rows), len(columns), programs, n_pes - 1, round_=round_, row=row)
    ranges = chunks_of(steps, len(rows))
    plan, chunks = hopper.make_plan(comm, a, c, config, ranges, programs)
    numbers = {rows.stop: number for number, rows in enumerate(ranges)}
    tokens = symmetric_flags(comm, max(1, len(steps)))
    return CopyPlan(plan, chunks, steps, numbers, tokens)
