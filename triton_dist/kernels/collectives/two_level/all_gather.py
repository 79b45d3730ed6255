"""Two-level all-gather: a PE sends its input to its column, and what it receives to its host.

In round r a program sends block r of its part to the other hosts. It then receives block r - 1 of each host, stores
these and its own to the staging memory of the host's PEs, passes a barrier of the host, and copies all members' blocks
to the output. (H - 1) · n bytes leave each PE for the network: every host gets every part of the others once, which is
the least.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.collectives.two_level.memory import (
    block_index,
    cut,
    epoch_of,
    memory,
    outbox,
    rank_at,
    send_block,
    slot,
    staged,
    store_to_host,
    used,
)
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.members import group_size, my_rank
from triton_dist.kernels.protocols.messages import await_message, last_number, store_number
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["all_gather", "gather_parts"]


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def _all_gather(
    output,
    input,
    data,
    signals,
    barriers,
    trace,
    total,
    part,
    rounds,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    IN_PLACE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    me, host = my_rank(ROW), my_rank(COLUMN)
    first = rank_at(host, me, ROW, COLUMN) * part
    mine = input + first if IN_PLACE else input
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    row = outbox(data, host, BLOCK, ROOM)
    for round in range(rounds + 1):
        if round < rounds:
            began = clock(trace)
            offsets = block_index(round) * BLOCK + tl.arange(0, BLOCK)
            block = tl.load(mine + offsets, mask=(offsets < part) & (first + offsets < total))
            dl.quiet()  # the last round's messages have left the row
            tl.store(row + tl.arange(0, BLOCK), block, mask=(offsets < part) & (first + offsets < total))
            count = used(block_index(round), first, part, total, BLOCK)
            for i in range(1, N_HOSTS):
                there = (host + i) % N_HOSTS
                send_block(data, signals, last + 1 + round, row, count, there, COLUMN, BLOCK, ROOM)
            record_event(trace, SEND, round, began)
        if round > 0:
            offsets = block_index(round - 1) * BLOCK + tl.arange(0, BLOCK)
            for i in range(N_HOSTS):
                there = (host + i) % N_HOSTS
                begin = rank_at(there, me, ROW, COLUMN) * part
                arrived = slot(data, last + round, there, BLOCK, ROOM) + tl.arange(0, BLOCK)
                if there == host:
                    arrived = mine + offsets
                else:
                    await_message(signals, last + round, there, COLUMN, trace, round - 1)
                block = tl.load(arrived, mask=(offsets < part) & (begin + offsets < total))
                for j in tl.static_range(PER_HOST):
                    local = (me + j) % PER_HOST
                    mask = (offsets < part) & (begin + offsets < total)
                    store_to_host(data, epoch, there * PER_HOST + me, local, block, mask, ROW, BLOCK, ROOM)
            barrier(barriers, tl.program_id(0), ROW, trace, round - 1)
            began = clock(trace)
            for there in range(N_HOSTS):
                for local in tl.static_range(PER_HOST):
                    begin = rank_at(there, local, ROW, COLUMN) * part
                    mask = (offsets < part) & (begin + offsets < total)
                    found = staged(data, epoch, there * PER_HOST + local, BLOCK, ROOM)
                    block = tl.load(found + tl.arange(0, BLOCK), mask=mask)
                    tl.store(output + begin + offsets, block, mask=mask)
            record_event(trace, COMPUTE, round - 1, began)
            epoch += 1
    dl.quiet()
    store_number(signals, last + rounds, COLUMN)


def gather_parts(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    part: int,
    *,
    in_place: bool,
    limit: int = NO_LIMIT,
) -> Launch | None:
    """Gather parts of ``part`` elements of ``output``, of which the last ones may be shorter.

    Args:
        in_place: whether ``input`` is as long as ``output``, of which this PE has its part.
    """
    plan = cut(comm, part, output.element_size(), limit)
    return launch(
        _all_gather,
        (plan.programs,),
        (output, input),
        *memory(comm, output.dtype),
        record("all_gather, two_level", plan.programs, 4 * plan.rounds + 4),
        output.numel(),
        part,
        plan.rounds,
        comm.grid.row,
        comm.grid.column,
        in_place,
        plan.block,
        plan.room,
        num_warps=8,
    )


def all_gather(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, *, limit: int = NO_LIMIT
) -> Launch | None:
    return gather_parts(comm, output, input, input.numel(), in_place=False, limit=limit)
