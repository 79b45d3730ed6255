"""Two-level reduce-scatter: the PEs of a host reduce their inputs, and columns reduce the results of the hosts.

In round r a program stores block r of each part to the staging memory of the PE of its host in whose column the part
ends, passes a barrier of the host, and reduces what it has received: its host's sums of the parts of its column. It
sends them there, and reduces block r - 1 of all hosts, in the order of the hosts. (H - 1) · n bytes leave each PE for
the network, the least. Sums of a host are rounded to the dtype, as are those of all.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.collectives.reductions import begin, combine, finish, widen
from triton_dist.kernels.collectives.two_level.memory import (
    block_index,
    cut,
    epoch_of,
    memory,
    outbox,
    own_slot,
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

__all__ = ["reduce_parts", "reduce_scatter"]


@triton.jit
def _reduce_host(data, epoch, host, mask, ROW: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """The reduction over this host's PEs of the block that is staged for ``host``."""
    PER_HOST: tl.constexpr = group_size(ROW)
    result = begin((BLOCK,), data.dtype.element_ty, OP)
    for local in tl.static_range(PER_HOST):
        found = staged(data, epoch, host * PER_HOST + local, BLOCK, ROOM) + tl.arange(0, BLOCK)
        result = combine(result, widen(tl.load(found, mask=mask)), OP)
    return finish(result, OP, PER_HOST).to(data.dtype.element_ty)


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def _reduce_scatter(
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
    OP: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    me, host = my_rank(ROW), my_rank(COLUMN)
    first = rank_at(host, me, ROW, COLUMN) * part
    mine = output + first if IN_PLACE else output
    places = tl.arange(0, BLOCK)
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    for round in range(rounds + 1):
        if round < rounds:
            began = clock(trace)
            offsets = block_index(round) * BLOCK + places
            for i in range(N_HOSTS):
                there = (host + i) % N_HOSTS
                for j in tl.static_range(PER_HOST):
                    local = (me + j) % PER_HOST
                    start = rank_at(there, local, ROW, COLUMN) * part
                    mask = (offsets < part) & (start + offsets < total)
                    block = tl.load(input + start + offsets, mask=mask)
                    store_to_host(data, epoch, there * PER_HOST + me, local, block, mask, ROW, BLOCK, ROOM)
            dl.quiet()  # the last round's messages have left their rows
            barrier(barriers, tl.program_id(0), ROW, trace, round)
            for i in range(1, N_HOSTS):
                there = (host + i) % N_HOSTS
                start = rank_at(there, me, ROW, COLUMN) * part
                mask = (offsets < part) & (start + offsets < total)
                row = outbox(data, there, BLOCK, ROOM)
                tl.store(row + places, _reduce_host(data, epoch, there, mask, ROW, OP, BLOCK, ROOM), mask=mask)
                count = used(block_index(round), start, part, total, BLOCK)
                send_block(data, signals, last + 1 + round, row, count, there, COLUMN, BLOCK, ROOM)
            mask = (offsets < part) & (first + offsets < total)
            kept = own_slot(data, last + 1 + round, COLUMN, BLOCK, ROOM)
            tl.store(kept + places, _reduce_host(data, epoch, host, mask, ROW, OP, BLOCK, ROOM), mask=mask)
            epoch += 1
            record_event(trace, SEND, round, began)
        if round > 0:
            offsets = block_index(round - 1) * BLOCK + places
            mask = (offsets < part) & (first + offsets < total)
            tl.debug_barrier()  # other threads may have stored what this host keeps
            result = begin((BLOCK,), data.dtype.element_ty, OP)
            for there in range(N_HOSTS):
                if there != host:
                    await_message(signals, last + round, there, COLUMN, trace, round - 1)
                arrived = slot(data, last + round, there, BLOCK, ROOM)
                result = combine(result, widen(tl.load(arrived + places, mask=mask)), OP)
            began = clock(trace)
            tl.store(mine + offsets, finish(result, OP, N_HOSTS).to(output.dtype.element_ty), mask=mask)
            record_event(trace, COMPUTE, round - 1, began)
    dl.quiet()
    store_number(signals, last + rounds, COLUMN)


def reduce_parts(
    comm: Communicator,
    output: torch.Tensor,
    input: torch.Tensor,
    op: str,
    part: int,
    *,
    in_place: bool,
    limit: int = NO_LIMIT,
) -> Launch | None:
    """Reduce parts of ``part`` elements of ``input``, of which the last ones may be shorter.

    Args:
        in_place: whether ``output`` is as long as ``input``, or the same, and gets this PE's part of it.
    """
    plan = cut(comm, part, input.element_size(), limit)
    return launch(
        _reduce_scatter,
        (plan.programs,),
        (output, input),
        *memory(comm, input.dtype),
        record("reduce_scatter, two_level", plan.programs, 4 * plan.rounds + 4),
        input.numel(),
        part,
        plan.rounds,
        comm.grid.row,
        comm.grid.column,
        in_place,
        op,
        plan.block,
        plan.room,
        num_warps=8,
    )


def reduce_scatter(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, limit: int = NO_LIMIT
) -> Launch | None:
    return reduce_parts(comm, output.view(-1), input.view(-1), op, output.numel(), in_place=False, limit=limit)
