"""Signals that are lost, awaited wrongly or never sent; locks and barriers made by hand."""

from __future__ import annotations

import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def reset_race(flag, ack, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        dl.signal_op(flag, 0, dl.SIGNAL_SET, 0)  # reset_without_ack
        dl.signal_op(ack, 1, dl.SIGNAL_SET, 1)
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    else:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 0)
        if not BUG:
            dl.signal_wait_until(ack, dl.CMP_EQ, 1)
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 0)
        dl.signal_wait_until(ack, dl.CMP_EQ, 1)


@case("lost-signal", fatal=True, schedule="adversarial")
def reset_without_ack(world, bug):
    reset_race[(1,)](flags(), flags(), bug)


@triton.jit
def two_senders(flag, BUG: tl.constexpr):
    if tl.program_id(0) == 1:
        if dl.my_pe() == 0:
            if BUG:
                dl.signal_wait_until(flag, dl.CMP_EQ, 2)  # two_sets
            else:
                dl.wait_until_all(flag, 2, None, dl.CMP_GE, 1)
    elif BUG:
        dl.signal_op(flag, dl.my_pe() + 1, dl.SIGNAL_SET, 0)
    else:
        dl.signal_op(flag + dl.my_pe(), dl.my_pe() + 1, dl.SIGNAL_SET, 0)


@case("lost-signal", "deadlock", fatal=True)
def two_sets(world, bug):
    two_senders[(2,)](flags(2), bug)


@triton.jit
def overshoot(flag, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.signal_wait_until(flag, dl.CMP_EQ if BUG else dl.CMP_GE, 1)  # equal_and_add
    else:
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, 0)
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, 0)


@case("lost-signal", fatal=True, schedule="adversarial")
def equal_and_add(world, bug):
    overshoot[(1,)](flags(), bug)


@triton.jit
def set_and_add(flag, ack, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.signal_op(flag, 0, dl.SIGNAL_SET, 0)  # reset_and_add
        dl.signal_op(ack, 1, dl.SIGNAL_SET, 1)
        dl.signal_wait_until(flag, dl.CMP_GE, 1)
    else:
        if not BUG:
            dl.signal_wait_until(ack, dl.CMP_EQ, 1)
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, 0)
        dl.signal_wait_until(ack, dl.CMP_EQ, 1)


@case("lost-signal", fatal=True, schedule="adversarial")
def reset_and_add(world, bug):
    set_and_add[(1,)](flags(), flags(), bug)


@triton.jit
def count(flag, WANTED: tl.constexpr):
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, 0)
    if dl.my_pe() == 0:
        dl.signal_wait_until(flag, dl.CMP_GE, WANTED)  # one_too_many


@case("deadlock", fatal=True)
def one_too_many(world, bug):
    count[(1,)](flags(), 3 if bug else 2)


@triton.jit
def to_itself(flag, pe):
    dl.signal_op(flag, 1, dl.SIGNAL_SET, pe)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    dl.signal_op(flag, 2, dl.SIGNAL_SET, dl.my_pe())
    if dl.my_pe() == 0:
        dl.signal_wait_until(flag, dl.CMP_EQ, 2)


@triton.jit
def to_wrong_pe(flag, pe):
    if dl.my_pe() == 0:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, pe)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)  # signal_to_itself


@case("deadlock", fatal=True)
def signal_to_itself(world, bug):
    to_wrong_pe[(1,)](flags(), 0 if bug else 1)


@triton.jit
def greater(flag, CMP: tl.constexpr):
    dl.signal_op(flag, 1, dl.SIGNAL_SET, 1 - dl.my_pe())
    dl.signal_wait_until(flag, CMP, 1)  # greater_for_equal


@case("deadlock", fatal=True)
def greater_for_equal(world, bug):
    greater[(1,)](flags(), dl.CMP_GT if bug else dl.CMP_GE)


@triton.jit
def skipped(x, SKIPS: tl.constexpr):
    if dl.my_pe() == 0 or not SKIPS:
        dl.sum_reduce(dl.TEAM_WORLD, x, x, 8)  # skipped_collective


@case("barrier", fatal=True)
def skipped_collective(world, bug):
    skipped[(1,)](triton_dist.zeros(8), bug)


@triton.jit
def spin_lock(lock, x, SEM: tl.constexpr):
    while dl.atomic_compare_swap(lock, 0, 1, 0, sem="acquire") != 0:
        pass
    there = dl.symm_at(x, 0)
    tl.store(there, tl.load(there) + 1.0)  # relaxed_unlock
    dl.atomic_set(lock, 0, 0, sem=SEM)


@case("early-read", "race", "reuse")
def relaxed_unlock(world, bug):
    spin_lock[(1,)](flags(), triton_dist.zeros(1), "relaxed" if bug else "release")


@triton.jit
def ticket_lock(ticket, serving, x, BUG: tl.constexpr):
    mine = dl.atomic_fetch_add(ticket, 1, 0, sem="relaxed")
    while dl.atomic_fetch(serving, 0, sem="relaxed" if BUG else "acquire") != mine:
        pass
    there = dl.symm_at(x, 0)
    tl.store(there, tl.load(there) + 1.0)  # relaxed_ticket
    dl.atomic_add(serving, 1, 0, sem="release")


@case("early-read", "race", "reuse")
def relaxed_ticket(world, bug):
    ticket_lock[(1,)](flags(), flags(), triton_dist.zeros(1), bug)


@triton.jit
def own_barrier(x, count, epoch, result, SEM: tl.constexpr):
    dl.store(x, 1.0, 1 - dl.my_pe())  # barrier_by_relaxed_counter
    dl.atomic_add(count, 1, 0, sem=SEM)
    while dl.atomic_fetch(count, 0, sem="acquire") < epoch * dl.n_pes():
        pass
    tl.store(result, tl.load(x))


@case("early-read", "reuse")
def barrier_by_relaxed_counter(world, bug):
    own_barrier[(1,)](triton_dist.zeros(1), flags(), 1, out(), "relaxed" if bug else "release")


@triton.jit
def work_queue(tail, items, result, BUG: tl.constexpr):
    at = tl.arange(0, 4)
    if dl.my_pe() == 1:
        dl.store(items + at, 1.0, 0)  # queue_tail
        dl.atomic_set(tail, 1, 0, sem="relaxed" if BUG else "release")
    else:
        while dl.atomic_fetch(tail, 0, sem="acquire") == 0:
            pass
        tl.store(result + at, tl.load(items + at))


@case("early-read")
def queue_tail(world, bug):
    work_queue[(1,)](flags(), triton_dist.zeros(4), out(), bug)


@triton.jit
def circle(flag, WAITS_FIRST: tl.constexpr):
    other = 1 - dl.my_pe()
    if WAITS_FIRST:
        dl.wait_until(flag, dl.CMP_NE, 0)  # circle_of_waits
    dl.p(flag, 1, other)
    dl.wait_until(flag, dl.CMP_NE, 0)


@case("deadlock", fatal=True)
def circle_of_waits(world, bug):
    circle[(1,)](flags(), bug)


@triton.jit
def different(x, BUG: tl.constexpr):
    if BUG and dl.my_pe() == 1:
        dl.signal_wait_until(x, dl.CMP_EQ, 1)  # barrier_and_wait
    dl.barrier_all()


@case("deadlock", "barrier", fatal=True)
def barrier_and_wait(world, bug):
    different[(1,)](flags(), bug)


@triton.jit
def reverse(flag, result, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        if BUG:
            dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
        dl.signal_op(flag, 2, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1 if BUG else 2)  # overwritten_value


@case("lost-signal", fatal=True, schedule="adversarial")
def overwritten_value(world, bug):
    reverse[(1,)](flags(), out(), bug)


main()
