"""In which order the programs of all PEs come to one counter, twice over; and what a missing quiet and wait show."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton.jit
def queue(counter, tickets, TIMES: tl.constexpr):
    for i in range(TIMES):
        ticket = dl.atomic_fetch_add(counter, 1, 0)
        tl.store(tickets + tl.program_id(0) * TIMES + i, ticket)


@triton.jit
def careless(inbox, outbox, signal, seen):
    """No quiet before the buffer is used again, and no fence before the signal."""
    if dl.my_pe() == 0:
        dl.putmem_nbi(inbox, outbox, 8, 1)
        tl.store(outbox, 2)
        dl.signal_op(signal, 1, dl.SIGNAL_SET, 1)
        dl.quiet()
    else:
        dl.signal_wait_until(signal, dl.CMP_EQ, 1)
        tl.store(seen, tl.load(inbox))
        dl.signal_wait_until(signal, dl.CMP_EQ, 1)


with triton_dist.init() as world:
    counter, signal = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1, dtype=torch.int64)
    tickets = torch.zeros(4, 3, dtype=torch.int64)
    queue[(4,)](counter, tickets, 3)
    print(world.pe, "tickets", tickets.flatten().tolist())
    inbox = triton_dist.zeros(1, dtype=torch.int64)
    outbox = triton_dist.full((1,), 1, dtype=torch.int64)
    seen = torch.full((1,), -1, dtype=torch.int64)
    if world.pe < 2:
        careless[(1,)](inbox, outbox, signal, seen)
    triton_dist.barrier_all()
    print(world.pe, "seen", seen.item(), "in the end", inbox.item())
