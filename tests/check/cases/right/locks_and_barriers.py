"""Locks, counters and barriers that programs make of atomics and signals."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, out
from right.common import use

import triton_dist
import triton_dist.language as dl


@triton.jit
def ticket_lock(ticket, serving, x):
    mine = dl.atomic_fetch_inc(ticket, 0, sem="relaxed")
    while dl.atomic_fetch(serving, 0, sem="acquire") != mine:
        pass
    there = dl.symm_at(x, 0)
    tl.store(there, tl.load(there) + 1.0)
    dl.atomic_inc(serving, 0, sem="release")


@case()
def ticket_locks(world, bug):
    ticket_lock[(3,)](flags(), flags(), triton_dist.zeros(1))


@triton.jit
def cas_lock(lock, x):
    for _ in range(2):
        while dl.atomic_compare_swap(lock, 0, 1, 0) != 0:
            pass
        there = dl.symm_at(x, 0)
        tl.store(there, tl.load(there) + 1.0)
        dl.atomic_set(lock, 0, 0)


@case()
def spin_locks(world, bug):
    cas_lock[(2,)](flags(1, torch.int32), triton_dist.zeros(1))


@triton.jit
def tl_lock(lock, x):
    there = dl.symm_at(lock, 0)
    while tl.atomic_cas(there, 0, 1, sem="acquire", scope="sys") != 0:
        pass
    data = dl.symm_at(x, 0)
    tl.store(data, tl.load(data) + 1.0)
    tl.atomic_xchg(there, 0, sem="release", scope="sys")


@case()
def triton_locks(world, bug):
    tl_lock[(2,)](flags(1, torch.int32), triton_dist.zeros(1))


@triton.jit
def sense_barrier(x, count, sense, result):
    other = 1 - dl.my_pe()
    for i in range(4):
        dl.store(x + i * 16 + tl.arange(0, 16), 1.0, other)
        if dl.atomic_fetch_add(count, 1, 0) == dl.n_pes() - 1:
            dl.atomic_set(count, 0, 0, sem="relaxed")
            for pe in range(dl.n_pes()):
                dl.atomic_set(sense, (i + 1) % 2, pe)
        else:
            dl.wait_until(sense, dl.CMP_EQ, (i + 1) % 2)
        use(result, x + i * 16)


@case()
def sense_reversing_barrier(world, bug):
    sense_barrier[(1,)](triton_dist.zeros(64), flags(1, torch.int32), flags(1, torch.int32), out())


@triton.jit
def counter_barrier(x, count, result):
    other = 1 - dl.my_pe()
    for i in range(3):
        dl.store(x + i * 16 + tl.arange(0, 16), 1.0, other)
        for pe in range(dl.n_pes()):
            dl.atomic_add(count, 1, pe, sem="release")
        dl.wait_until(count, dl.CMP_GE, (i + 1) * dl.n_pes())
        use(result, x + i * 16)


@case()
def counting_barrier(world, bug):
    counter_barrier[(1,)](triton_dist.zeros(48), flags(1, torch.int32), out())


@triton.jit
def handed_on(x, flag, done, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.program_id(0) * 16 + tl.arange(0, 16), 1.0, other)
    if tl.atomic_add(done, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    for i in range(tl.num_programs(0)):
        use(result, x + i * 16)


@case()
def last_block_signals(world, bug):
    handed_on[(3,)](triton_dist.zeros(48), flags(), torch.zeros(1, dtype=torch.int32), out())


@triton.jit
def dissemination(x, flag, result, epoch):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_GE, 2 * epoch - 1)
    use(result, x)
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_GE, 2 * epoch)


@case()
def rounds_of_signals(world, bug):
    x, flag = triton_dist.zeros(16), flags()
    for epoch in range(1, 4):
        dissemination[(1,)](x, flag, out(), epoch)
        triton_dist.barrier_all()


@triton.jit
def claims(next_item, x):
    item = dl.atomic_fetch_inc(next_item, 0, sem="relaxed")
    while item < 6:
        dl.store(x + item, 1.0, 0)
        item = dl.atomic_fetch_inc(next_item, 0, sem="relaxed")


@case()
def work_by_counter(world, bug):
    x = triton_dist.zeros(8)
    claims[(2,)](flags(), x)
    triton_dist.barrier_all()
    assert world.pe != 0 or x.sum() == 6
