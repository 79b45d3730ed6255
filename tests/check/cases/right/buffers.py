"""Slots and queues: what is written again has been read before."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, out
from right.common import pair, use

import triton_dist
import triton_dist.language as dl


@triton.jit
def credits(x, y, filled, drained, result, SLOTS: tl.constexpr):
    for i in range(8):
        slot = x + i % SLOTS * 16
        if dl.my_pe() == 0:
            dl.signal_wait_until(drained, dl.CMP_GE, tl.maximum(i - SLOTS + 1, 0))
            dl.putmem_signal(slot, y, 64, filled, 1, dl.SIGNAL_ADD, 1)
            dl.fence()
        else:
            dl.signal_wait_until(filled, dl.CMP_GE, i + 1)
            use(result, slot)
            dl.signal_op(drained, 1, dl.SIGNAL_ADD, 0)


@case()
def one_slot(world, bug):
    credits[(1,)](*pair(), flags(), flags(), out(), 1)


@case()
def two_slots(world, bug):
    credits[(1,)](triton_dist.zeros(32), triton_dist.zeros(16), flags(), flags(), out(), 2)


@case()
def three_slots(world, bug):
    credits[(1,)](triton_dist.zeros(48), triton_dist.zeros(16), flags(), flags(), out(), 3)


@triton.jit
def flag_in_data(slots, result, EPOCHS: tl.constexpr):
    at = tl.arange(0, 16)
    for i in range(1, EPOCHS + 1):
        slot = slots + i % 3 * 16
        tl.store(dl.symm_at(slot, 1 - dl.my_pe()) + at, i + tl.zeros((16,), tl.int32))
        got = tl.load(slot + at, volatile=True)
        while tl.min(got, 0) < i:
            got = tl.load(slot + at, volatile=True)
        tl.store(result + at, got)


@case()
def low_latency(world, bug):
    flag_in_data[(1,)](flags(48, torch.int32), torch.empty(16, dtype=torch.int32), 7)


@triton.jit
def many_senders(x, y, flag, result):
    me, n = dl.my_pe(), dl.n_pes()
    for pe in range(n):
        dl.putmem_signal(x + me * 16, y, 64, flag, 1, dl.SIGNAL_ADD, pe)
    dl.signal_wait_until(flag, dl.CMP_GE, n)
    for pe in range(n):
        use(result, x + pe * 16)


@case()
def all_gather(world, bug):
    many_senders[(1,)](triton_dist.zeros(32), triton_dist.zeros(16), flags(), out())


@triton.jit
def progress(x, y, flag, result):
    if dl.my_pe() == 0:
        for i in range(4):
            dl.putmem(x + i * 16, y, 64, 1)
            dl.fence()
            dl.signal_op(flag, i + 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_GE, 2)
        use(result, x + 16)
        dl.signal_wait_until(flag, dl.CMP_GE, 4)
        use(result, x + 48)


@case()
def progress_word(world, bug):
    progress[(1,)](triton_dist.zeros(64), triton_dist.zeros(16), flags(), out())


@triton.jit
def queue_by_value(x, y, tail, result):
    if dl.my_pe() == 0:
        for i in range(4):
            dl.putmem_signal(x + i * 16, y, 64, tail, 1, dl.SIGNAL_ADD, 1)
            dl.fence()
    else:
        head = 0
        while head < 4:
            seen = dl.signal_wait_until(tail, dl.CMP_GT, head)
            while head < seen:
                use(result, x + head * 16)
                head += 1


@case()
def value_of_a_wait(world, bug):
    queue_by_value[(1,)](triton_dist.zeros(64), triton_dist.zeros(16), flags(), out())


@triton.jit
def mpsc(items, ready, tail, result, N: tl.constexpr):
    at = tl.arange(0, 16)
    if tl.program_id(0) == 0:
        if dl.my_pe() == 0:
            for i in range(N):
                dl.wait_until(ready + i, dl.CMP_EQ, 1)
                tl.store(result + at, tl.load(items + i * 16 + at))
    else:
        mine = dl.atomic_fetch_add(tail, 1, 0, sem="relaxed")
        dl.store(items + mine * 16 + at, 1.0, 0)
        dl.atomic_set(ready + mine, 1, 0, sem="release")


@case()
def queue_of_many_producers(world, bug):
    mpsc[(3,)](triton_dist.zeros(64), flags(4), flags(), out(), 4)


@triton.jit
def resets(flag, ack, x, result):
    for i in range(3):
        if dl.my_pe() == 0:
            dl.store(x + tl.arange(0, 16), 1.0, 1)
            dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
            dl.signal_wait_until(ack, dl.CMP_EQ, i + 1)
        else:
            dl.signal_wait_until(flag, dl.CMP_EQ, 1)
            use(result, x)
            dl.signal_op(flag, 0, dl.SIGNAL_SET, 1)
            dl.signal_op(ack, 1, dl.SIGNAL_ADD, 0)


@case()
def reset_and_ack(world, bug):
    resets[(1,)](flags(), flags(), triton_dist.zeros(16), out())


@triton.jit
def resets_by_store(flag, ack, x, result):
    for i in range(3):
        if dl.my_pe() == 0:
            dl.store(x + tl.arange(0, 16), 1.0, 1)
            dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
            dl.signal_wait_until(ack, dl.CMP_EQ, i + 1)
        else:
            dl.signal_wait_until(flag, dl.CMP_EQ, 1)
            use(result, x)
            tl.store(flag, 0)
            dl.signal_op(ack, 1, dl.SIGNAL_ADD, 0)


@case()
def reset_by_store(world, bug):
    resets_by_store[(1,)](flags(), flags(), triton_dist.zeros(16), out())


@triton.jit
def pull(x, ready, done, result):
    other = 1 - dl.my_pe()
    for i in range(3):
        tl.store(x + tl.arange(0, 16), 1.0 * i)
        dl.signal_op(ready, i + 1, dl.SIGNAL_SET, other)
        dl.signal_wait_until(ready, dl.CMP_GE, i + 1)
        dl.getmem_nbi(result, x, 64, other)
        dl.quiet()
        dl.signal_op(done, i + 1, dl.SIGNAL_SET, other)
        dl.signal_wait_until(done, dl.CMP_GE, i + 1)


@case()
def pull_and_ack(world, bug):
    pull[(1,)](triton_dist.zeros(16), flags(), flags(), out())
