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
    are_elements,
    block_index,
    blocks_at_once,
    copy_blocks,
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
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.messages import await_message, last_number, store_number
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["all_gather", "gather_parts"]


@triton.jit
def _distribute(
    data, signals, number, epoch, offsets, part, total, trace, tile, ROW: tl.constexpr, COLUMN: tl.constexpr,
    BLOCK: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Store what the other hosts send as message ``number`` to the staging memory of this host's PEs."""
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    AT_ONCE: tl.constexpr = blocks_at_once(N_HOSTS - 1, BLOCK, data.dtype.element_ty)
    me, host = my_rank(ROW), my_rank(COLUMN)
    places = tl.arange(0, BLOCK)[None, :]
    for first in range(1, N_HOSTS, AT_ONCE):
        for i in range(first, tl.minimum(first + AT_ONCE, N_HOSTS)):
            await_message(signals, number, (host + i) % N_HOSTS, COLUMN, trace, tile)
        order = first + tl.arange(0, AT_ONCE)
        hosts = (host + order) % N_HOSTS
        mask = are_elements(order < N_HOSTS, rank_at(hosts, me, ROW, COLUMN) * part, offsets, part, total)
        blocks = tl.load(slot(data, number, hosts, BLOCK, ROOM)[:, None] + places, mask=mask)
        for j in tl.static_range(PER_HOST):
            to = at_rank(staged(data, epoch, me, BLOCK, ROOM), (me + j) % PER_HOST, ROW)
            tl.store(to + (hosts * (PER_HOST * BLOCK))[:, None] + places, blocks, mask=mask)


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def all_gather_two_level(
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
    WIDE: tl.constexpr,
):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    AT_ONCE: tl.constexpr = blocks_at_once(N_HOSTS * PER_HOST, BLOCK, data.dtype.element_ty)
    me, host = my_rank(ROW), my_rank(COLUMN)
    first = rank_at(host, me, ROW, COLUMN) * part
    mine = input + first if IN_PLACE else input
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    row = outbox(data, host, BLOCK, ROOM)
    for round in tl.range(rounds + 1, disable_licm=True):
        if round < rounds:
            began = clock(trace)
            offsets = block_index(round, WIDE) * BLOCK + tl.arange(0, BLOCK)
            block = tl.load(mine + offsets, mask=(offsets < part) & (first + offsets < total))
            dl.quiet()  # the last round's messages have left the row
            tl.store(row + tl.arange(0, BLOCK), block, mask=(offsets < part) & (first + offsets < total))
            count = used(block_index(round, WIDE), first, part, total, BLOCK)
            for i in range(1, N_HOSTS):
                there = (host + i) % N_HOSTS
                send_block(data, signals, last + 1 + round, row, count, there, COLUMN, BLOCK, ROOM)
            record_event(trace, SEND, round, began)
        if round > 0:
            offsets = block_index(round - 1, WIDE) * BLOCK + tl.arange(0, BLOCK)
            mask = (offsets < part) & (first + offsets < total)
            block = tl.load(mine + offsets, mask=mask)
            for j in tl.static_range(PER_HOST):
                local = (me + j) % PER_HOST
                store_to_host(data, epoch, host * PER_HOST + me, local, block, mask, ROW, BLOCK, ROOM)
            if N_HOSTS > 1:
                _distribute(
                    data, signals, last + round, epoch, offsets, part, total, trace, round - 1, ROW, COLUMN, BLOCK, ROOM
                )  # fmt: skip
            barrier(barriers, tl.program_id(0), ROW, trace, round - 1)
            began = clock(trace)
            for start in range(0, N_HOSTS * PER_HOST, AT_ONCE):
                rows = start + tl.arange(0, AT_ONCE)
                ranks = rank_at(rows // PER_HOST, rows % PER_HOST, ROW, COLUMN)
                found = staged(data, epoch, rows, BLOCK, ROOM)
                copy_blocks(output, found, ranks, rows < N_HOSTS * PER_HOST, offsets, part, total)
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
        all_gather_two_level,
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
        plan.wide,
        num_warps=8,
    )


def all_gather(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, *, limit: int = NO_LIMIT
) -> Launch | None:
    return gather_parts(comm, output, input, input.numel(), in_place=False, limit=limit)
