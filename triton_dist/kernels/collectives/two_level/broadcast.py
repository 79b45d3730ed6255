"""Two-level broadcast: the root's host shares the blocks among its PEs, each sends its own to its column, and every
host gathers them.

In round r a program of the root stores a block to the staging memory of each PE of its host, which sends it to the
other hosts. All PEs then store block r - 1, theirs or received, to the PEs of their hosts, pass a barrier of the host,
and copy the host's blocks to the tensor. n bytes go to each other host, the least, by all links of the root's host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.collectives.two_level.memory import (
    block_index,
    copy_blocks,
    cut,
    epoch_of,
    memory,
    outbox,
    own_slot,
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

__all__ = ["broadcast"]


@triton.jit(do_not_specialize_on_alignment=["rounds"])
def broadcast_two_level(
    tensor,
    data,
    signals,
    barriers,
    trace,
    root_host,
    root_local,
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
    me, host = my_rank(ROW), my_rank(COLUMN)
    is_root = (host == root_host) & (me == root_local)
    places, locals = tl.arange(0, BLOCK), tl.arange(0, triton.next_power_of_2(PER_HOST))
    last, epoch = last_number(signals, COLUMN), epoch_of(barriers)
    row = outbox(data, host, BLOCK, ROOM)
    for round in range(rounds + 1):
        if round < rounds:
            began = clock(trace)
            count = 0
            dl.quiet()  # the last round's messages have left the row
            if host == root_host:
                if is_root:
                    blocks = ()
                    for j in tl.static_range(PER_HOST):  # all loads are in flight before the first store
                        offsets = (block_index(round, WIDE) * PER_HOST + (me + j) % PER_HOST) * BLOCK + places
                        block = tl.load(tensor + offsets, mask=offsets < n)
                        blocks = blocks + (block,)  # type: ignore[assignment]  # noqa: RUF005
                    for j in tl.static_range(PER_HOST):
                        local = (me + j) % PER_HOST
                        offsets = (block_index(round, WIDE) * PER_HOST + local) * BLOCK + places
                        store_to_host(data, epoch, 0, local, blocks[j], offsets < n, ROW, BLOCK, ROOM)
                barrier(barriers, tl.program_id(0), ROW, trace, round)
                offsets = (block_index(round, WIDE) * PER_HOST + me) * BLOCK + places
                block = tl.load(staged(data, epoch, 0, BLOCK, ROOM) + places, mask=offsets < n)
                tl.store(row + places, block, mask=offsets < n)
                kept = own_slot(data, last + 1 + round, COLUMN, BLOCK, ROOM)
                tl.store(kept + places, block, mask=offsets < n)
                count = used(block_index(round, WIDE) * PER_HOST + me, 0, n, n, BLOCK).to(tl.int32)
                epoch += 1
            for i in range(1, N_HOSTS):  # others, too: without data, messages tell that slots are free
                there = (host + i) % N_HOSTS
                send_block(data, signals, last + 1 + round, row, count, there, COLUMN, BLOCK, ROOM)
            record_event(trace, SEND, round, began)
        if round > 0:
            for i in range(1, N_HOSTS):
                await_message(signals, last + round, (host + i) % N_HOSTS, COLUMN, trace, round - 1)
            tl.debug_barrier()  # other threads may have stored what this host keeps
            offsets = (block_index(round - 1, WIDE) * PER_HOST + me) * BLOCK + places
            arrived = slot(data, last + round, root_host, BLOCK, ROOM)
            block = tl.load(arrived + places, mask=offsets < n)
            for j in tl.static_range(PER_HOST):
                store_to_host(data, epoch, me, (me + j) % PER_HOST, block, offsets < n, ROW, BLOCK, ROOM)
            barrier(barriers, tl.program_id(0), ROW, trace, round - 1)
            began = clock(trace)
            if not is_root:
                blocks_of_host = block_index(round - 1, WIDE) * PER_HOST + locals
                found = staged(data, epoch, locals, BLOCK, ROOM)
                copy_blocks(tensor, found, blocks_of_host.to(tl.int64), locals < PER_HOST, places, BLOCK, n)
            epoch += 1
            record_event(trace, COMPUTE, round - 1, began)
    dl.quiet()
    store_number(signals, last + rounds, COLUMN)


def broadcast(comm: Communicator, tensor: torch.Tensor, root: int, *, limit: int = NO_LIMIT) -> Launch | None:
    n, grid = tensor.numel(), comm.grid
    plan = cut(comm, triton.cdiv(n, grid.per_host), tensor.element_size(), limit, parts=grid.per_host)
    root_host, root_local = grid.place_of(root)
    return launch(
        broadcast_two_level,
        (plan.programs,),
        (tensor,),
        *memory(comm, tensor.dtype),
        record("broadcast, two_level", plan.programs, (4 + grid.hosts) * (plan.rounds + 1)),
        root_host,
        root_local,
        n,
        plan.rounds,
        grid.row,
        grid.column,
        plan.block,
        plan.room,
        plan.wide,
        num_warps=8,
    )
