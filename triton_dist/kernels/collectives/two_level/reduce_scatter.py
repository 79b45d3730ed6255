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
    are_elements,
    block_index,
    blocks_at_once,
    cut,
    epoch_of,
    memory,
    outbox,
    own_slot,
    rank_at,
    send_block,
    share_in_host,
    slot,
    staged,
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

_UNROLLED = tl.constexpr(16)


@triton.jit
def _reduce_host(
    data, epoch, hosts, mask, ROW: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr
):
    """The reductions over this host's PEs of the blocks that are staged for ``hosts``, a vector: a row for each."""
    PER_HOST: tl.constexpr = group_size(ROW)
    found = staged(data, epoch, hosts * PER_HOST, BLOCK, ROOM)[:, None] + tl.arange(0, BLOCK)[None, :]
    result = begin(mask.shape, data.dtype.element_ty, OP)
    for local in tl.static_range(PER_HOST):  # loads without stores between them are in flight together
        result = combine(result, widen(tl.load(found + local * BLOCK, mask=mask)), OP)
    return finish(result, OP, PER_HOST).to(data.dtype.element_ty)


@triton.jit
def _combine_hosts(
    result, data, signals, number, first, mask, trace, tile, COUNT: tl.constexpr, COLUMN: tl.constexpr,
    OP: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Combine ``result`` with message ``number`` of the hosts from ``first`` on, in their order."""
    for i in range(COUNT):
        if first + i != my_rank(COLUMN):
            await_message(signals, number, first + i, COLUMN, trace, tile)
    for i in tl.static_range(COUNT):
        found = slot(data, number, first + i, BLOCK, ROOM) + tl.arange(0, BLOCK)
        result = combine(result, widen(tl.load(found, mask=mask)), OP)
    return result


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def reduce_scatter_two_level(
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
    WIDE: tl.constexpr,
):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    PARTS: tl.constexpr = blocks_at_once(N_HOSTS - 1, triton.next_power_of_2(PER_HOST) * BLOCK, data.dtype.element_ty)
    SUMS: tl.constexpr = blocks_at_once(N_HOSTS, BLOCK, data.dtype.element_ty, _UNROLLED)
    WHOLE: tl.constexpr = N_HOSTS // SUMS * SUMS
    me, host = my_rank(ROW), my_rank(COLUMN)
    first = rank_at(host, me, ROW, COLUMN) * part
    mine = output + first if IN_PLACE else output
    places = tl.arange(0, BLOCK)
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    for round in tl.range(rounds + 1, disable_licm=True):
        if round < rounds:
            began = clock(trace)
            offsets = block_index(round, WIDE) * BLOCK + places
            share_in_host(input, data, epoch, offsets, part, total, ROW, COLUMN, BLOCK, ROOM)
            dl.quiet()  # the last round's messages have left their rows
            barrier(barriers, tl.program_id(0), ROW, trace, round)
            for begins in range(1, N_HOSTS, PARTS):
                order = begins + tl.arange(0, PARTS)
                hosts = (host + order) % N_HOSTS
                mask = are_elements(order < N_HOSTS, rank_at(hosts, me, ROW, COLUMN) * part, offsets, part, total)
                rows = outbox(data, hosts, BLOCK, ROOM)[:, None] + places[None, :]
                tl.store(rows, _reduce_host(data, epoch, hosts, mask, ROW, OP, BLOCK, ROOM), mask=mask)
                for i in range(begins, tl.minimum(begins + PARTS, N_HOSTS)):
                    there = (host + i) % N_HOSTS
                    count = used(block_index(round, WIDE), rank_at(there, me, ROW, COLUMN) * part, part, total, BLOCK)
                    row = outbox(data, there, BLOCK, ROOM)
                    send_block(data, signals, last + 1 + round, row, count, there, COLUMN, BLOCK, ROOM)
            mask = ((offsets < part) & (first + offsets < total))[None, :]
            kept = own_slot(data, last + 1 + round, COLUMN, BLOCK, ROOM) + places[None, :]
            own = _reduce_host(data, epoch, host + tl.arange(0, 1), mask, ROW, OP, BLOCK, ROOM)
            tl.store(kept, own, mask=mask)
            epoch += 1
            record_event(trace, SEND, round, began)
        if round > 0:
            offsets = block_index(round - 1, WIDE) * BLOCK + places
            mask = (offsets < part) & (first + offsets < total)
            tl.debug_barrier()  # other threads may have stored what this host keeps
            result = begin((BLOCK,), data.dtype.element_ty, OP)
            for begins in range(0, WHOLE, SUMS):
                result = _combine_hosts(
                    result, data, signals, last + round, begins, mask, trace, round - 1, SUMS, COLUMN, OP, BLOCK, ROOM
                )  # fmt: skip
            if N_HOSTS > WHOLE:
                result = _combine_hosts(
                    result, data, signals, last + round, WHOLE, mask, trace, round - 1, N_HOSTS - WHOLE, COLUMN, OP,
                    BLOCK, ROOM,
                )  # fmt: skip
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
        reduce_scatter_two_level,
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
        plan.wide,
        num_warps=8,
    )


def reduce_scatter(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, limit: int = NO_LIMIT
) -> Launch | None:
    return reduce_parts(comm, output.view(-1), input.view(-1), op, output.numel(), in_place=False, limit=limit)
