"""Buffers that are written again before their readers are done."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def pulled(x, done, result, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.getmem(result, x, 64, 1)
        dl.signal_op(done, 1, dl.SIGNAL_SET, 1)
    else:
        if not BUG:
            dl.signal_wait_until(done, dl.CMP_EQ, 1)
        tl.store(x + at, 2.0)  # source_of_a_get
        dl.signal_wait_until(done, dl.CMP_EQ, 1)


@case("reuse", "early-read")
def source_of_a_get(world, bug):
    pulled[(1,)](triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def early_credit(x, y, filled, drained, result, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    for i in range(2):
        if dl.my_pe() == 0:
            dl.signal_wait_until(drained, dl.CMP_GE, i)
            dl.putmem_signal(x, y, 64, filled, i + 1, dl.SIGNAL_SET, 1)  # credit_before_reading
        else:
            dl.signal_wait_until(filled, dl.CMP_GE, i + 1)
            if BUG:
                dl.signal_op(drained, 1, dl.SIGNAL_ADD, 0)
            tl.store(result + at, tl.load(x + at))
            if not BUG:
                dl.signal_op(drained, 1, dl.SIGNAL_ADD, 0)


@case("reuse")
def credit_before_reading(world, bug):
    early_credit[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), flags(), out(), bug)


@triton.jit
def two_buffers(x, y, filled, drained, result, LEAD: tl.constexpr):
    at = tl.arange(0, 16)
    for i in range(6):
        slot = x + i % 2 * 16
        if dl.my_pe() == 0:
            dl.signal_wait_until(drained, dl.CMP_GE, tl.maximum(i - LEAD + 1, 0))
            dl.putmem_signal(slot, y, 64, filled, 1, dl.SIGNAL_ADD, 1)  # double_buffer_ahead
            dl.fence()
        else:
            dl.signal_wait_until(filled, dl.CMP_GE, i + 1)
            tl.store(result + at, tl.load(slot + at))
            dl.signal_op(drained, 1, dl.SIGNAL_ADD, 0)


@case("reuse", schedule="adversarial")
def double_buffer_ahead(world, bug):
    two_buffers[(1,)](triton_dist.zeros(32), triton_dist.zeros(16), flags(), flags(), out(), 3 if bug else 2)


@triton.jit
def readers(x, y, filled, credits, result, N: tl.constexpr, WANTED: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        if tl.program_id(0) == 0:
            dl.putmem_signal(x, y, 64, filled, 1, dl.SIGNAL_SET, 1)
            dl.signal_wait_until(credits, dl.CMP_GE, WANTED)
            dl.putmem(x, y, 64, 1)  # too_few_credits
            dl.quiet()
    else:
        dl.signal_wait_until(filled, dl.CMP_EQ, 1)
        tl.store(result + at, tl.load(x + at))
        dl.signal_op(credits, 1, dl.SIGNAL_ADD, 0)


@case("reuse", "early-read", schedule="eager")
def too_few_credits(world, bug):
    x, y = triton_dist.zeros(16), triton_dist.zeros(16)
    readers[(4,)](x, y, flags(), flags(), out(), 4, 3 if bug else 4)


@triton.jit
def collected(dst, src, done, result, which: tl.constexpr, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    team = dl.TEAM_WORLD
    if which == 0:
        dl.fcollect(team, dst, src, 8)
    elif which == 1:
        dl.alltoall(team, dst, src, 8)
    else:
        dl.sum_reduce(team, dst, src, 8)
    dl.barrier_all()
    if dl.my_pe() == 0:
        dl.getmem(result, dst, 32, other)
    if not BUG:
        dl.barrier_all()
    if which == 0:
        dl.fcollect(team, dst, src, 8)  # fcollect_again
    elif which == 1:
        dl.alltoall(team, dst, src, 8)  # alltoall_again
    else:
        dl.sum_reduce(team, dst, src, 8)  # reduce_again


@case("reuse", "early-read")
def fcollect_again(world, bug):
    collected[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), 0, bug)


@case("reuse", "early-read")
def alltoall_again(world, bug):
    collected[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), 1, bug)


@case("reuse", "early-read")
def reduce_again(world, bug):
    collected[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), 2, bug)


@triton.jit
def other_programs_source(x, y, done, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    if tl.program_id(0) == 0:
        dl.putmem_nbi(x, y, 64, 1 - dl.my_pe())
        if not BUG:
            dl.quiet()
        tl.atomic_xchg(done, 1, sem="release", scope="gpu")
        dl.quiet()
    else:
        while tl.atomic_add(done, 0, sem="acquire", scope="gpu") == 0:
            pass
        tl.store(y + at, 1.0)  # source_of_another_program


@case("missing-quiet")
def source_of_another_program(world, bug):
    other_programs_source[(2,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), bug)


@triton.jit
def push(x, y):
    dl.putmem(x, y, 64, 1 - dl.my_pe())
    dl.quiet()


@case("early-read", "reuse", "race")
def host_reads_too_early(world, bug):
    x, y = triton_dist.zeros(16), triton_dist.zeros(16)
    push[(1,)](x, y)
    if not bug:
        triton_dist.barrier_all()
    x.sum()  # host_reads_too_early


@case("race", "early-read", "reuse")
def host_put_and_fill(world, bug):
    x, y = triton_dist.zeros(16), triton_dist.zeros(16)
    triton_dist.put(x, y, 1 - world.pe)
    if not bug:
        triton_dist.barrier()
    x.fill_(1)  # host_put_and_fill


@case("early-read", "reuse")
def peer_view(world, bug):
    x = triton_dist.zeros(16)
    x.fill_(world.pe)
    if not bug:
        triton_dist.barrier_all()
    triton_dist.peer(x, 1 - world.pe).clone()  # peer_view


@triton.jit
def sums(total, x, part, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    there = dl.symm_at(total, 0) + at
    if BUG:
        tl.store(there, tl.load(there) + 1.0)  # lost_sum
    else:
        tl.atomic_add(there, 1.0, scope="sys")


@case("race", "early-read", "reuse")
def lost_sum(world, bug):
    sums[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), torch.zeros(1), bug)


@triton.jit
def atomic_and_load(total, arrived, result, BUG: tl.constexpr):
    dl.atomic_add(total, 1, 0)
    dl.signal_op(arrived, 1, dl.SIGNAL_ADD, 0)
    if dl.my_pe() == 0:
        if not BUG:
            dl.signal_wait_until(arrived, dl.CMP_EQ, 2)
        tl.store(result, tl.load(total))  # count_read_early
        dl.signal_wait_until(arrived, dl.CMP_EQ, 2)


@case("early-read", "reuse", schedule="adversarial")
def count_read_early(world, bug):
    atomic_and_load[(1,)](flags(), flags(), out(), bug)


main()
