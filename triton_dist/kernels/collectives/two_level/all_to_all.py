"""Two-level all-to-all: the PEs of a host first hand each other what goes to the same column, which then sends it.

In round r a program stores block r of each chunk to the staging memory of the PE of its host in whose column the chunk
ends, and passes a barrier of the host. It puts what has been staged for each other host, a block of every PE of this
one, there as one message. It copies block r - 1 of all hosts to the output. L · n bytes leave each PE for each other
host, where L is the number of PEs of a host: what it must.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.collectives.two_level.memory import (
    block_index,
    blocks_at_once,
    copy_blocks,
    cut,
    epoch_of,
    memory,
    own_slot,
    rank_at,
    share_in_host,
    slot,
    staged,
    used,
)
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.messages import await_message, last_number, send_message, store_number
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import record

__all__ = ["all_to_all"]


@triton.jit
def _send_rows(
    data, signals, number, src, count, host, ROW: tl.constexpr, COLUMN: tl.constexpr, BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """Send the blocks of this host's PEs from ``src`` as message ``number`` to ``host``, ``count`` elements of each."""
    PER_HOST: tl.constexpr = group_size(ROW)
    SIZE: tl.constexpr = data.dtype.element_ty.primitive_bitwidth // 8
    there = own_slot(data, number, COLUMN, PER_HOST * BLOCK, ROOM)
    if count == BLOCK:
        send_message(signals, number, there, src, PER_HOST * BLOCK * SIZE, host, COLUMN)
    else:  # a put for each block, so that nothing else crosses
        if PER_HOST > 1:
            for local in range(PER_HOST - 1):
                row = local * BLOCK
                dl.putmem_nbi(there + row, src + row, count * SIZE, pe_of(host, COLUMN))
            dl.fence()
        row = (PER_HOST - 1) * BLOCK
        send_message(signals, number, there + row, src + row, count * SIZE, host, COLUMN)


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def all_to_all_two_level(
    output,
    input,
    data,
    signals,
    barriers,
    trace,
    n,
    rounds,
    ROW: tl.constexpr,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
    WIDE: tl.constexpr,
):
    N_HOSTS: tl.constexpr = group_size(COLUMN)
    PER_HOST: tl.constexpr = group_size(ROW)
    LOCALS: tl.constexpr = triton.next_power_of_2(PER_HOST)
    AT_ONCE: tl.constexpr = blocks_at_once(N_HOSTS - 1, LOCALS * BLOCK, data.dtype.element_ty)
    host = my_rank(COLUMN)
    places, locals = tl.arange(0, BLOCK), tl.arange(0, LOCALS)
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    for round in tl.range(rounds + 1, disable_licm=True):
        if round < rounds:
            began = clock(trace)
            offsets = block_index(round, WIDE) * BLOCK + places
            share_in_host(input, data, epoch, offsets, n, None, ROW, COLUMN, BLOCK, ROOM)
            dl.quiet()  # the last round's messages have left staging, which peers store to behind the barrier
            barrier(barriers, tl.program_id(0), ROW, trace, round)
            count = used(block_index(round, WIDE), 0, n, n, BLOCK).to(tl.int32)
            for i in range(1, N_HOSTS):
                there = (host + i) % N_HOSTS
                src = staged(data, epoch, there * PER_HOST, BLOCK, ROOM)
                _send_rows(data, signals, last + 1 + round, src, count, there, ROW, COLUMN, BLOCK, ROOM)
            found = staged(data, epoch, host * PER_HOST + locals, BLOCK, ROOM)
            ranks = rank_at(host, locals, ROW, COLUMN)
            copy_blocks(output, found, ranks, locals < PER_HOST, offsets, n, None)
            epoch += 1
            record_event(trace, SEND, round, began)
        if round > 0:
            offsets = block_index(round - 1, WIDE) * BLOCK + places
            for first in range(1, N_HOSTS, AT_ONCE):
                for i in range(first, tl.minimum(first + AT_ONCE, N_HOSTS)):
                    await_message(signals, last + round, (host + i) % N_HOSTS, COLUMN, trace, round - 1)
                began = clock(trace)
                rows = tl.arange(0, AT_ONCE * LOCALS)
                order, local = first + rows // LOCALS, rows % LOCALS
                there = (host + order) % N_HOSTS
                found = slot(data, last + round, there, PER_HOST * BLOCK, ROOM) + local * BLOCK
                ranks, mask = rank_at(there, local, ROW, COLUMN), (order < N_HOSTS) & (local < PER_HOST)
                copy_blocks(output, found, ranks, mask, offsets, n, None)
                record_event(trace, COMPUTE, round - 1, began)
    dl.quiet()
    store_number(signals, last + rounds, COLUMN)


def all_to_all(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, *, limit: int = NO_LIMIT
) -> Launch | None:
    n = input.numel() // comm.n_pes
    plan = cut(comm, n, input.element_size(), limit, rows=comm.grid.per_host)
    events = (2 + 2 * comm.grid.hosts) * (plan.rounds + 1)
    return launch(
        all_to_all_two_level,
        (plan.programs,),
        (output, input),
        *memory(comm, input.dtype),
        record("all_to_all, two_level", plan.programs, events),
        n,
        plan.rounds,
        comm.grid.row,
        comm.grid.column,
        plan.block,
        plan.room,
        plan.wide,
        num_warps=8,
    )
