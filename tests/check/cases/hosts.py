"""Signals and atomics to another host, which arrive late and in any order: each PE is a host (TRITON_DIST_TOPOLOGY)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def signal_behind_a_put(inbox, outbox, flag, result, FENCE: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.putmem(inbox, outbox, 64, 1)
        if FENCE:
            dl.fence()
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result + at, tl.load(inbox + at))  # signal_overtakes_a_put


@case("missing-fence")
def signal_overtakes_a_put(world, bug):
    signal_behind_a_put[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), not bug)


@triton.jit
def add_behind_a_put(inbox, outbox, flag, result, FENCE: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.putmem(inbox, outbox, 64, 1)
        if FENCE:
            dl.pe_fence(1)
        dl.atomic_add(flag, 1, 1, sem="release")
    else:
        dl.wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result + at, tl.load(inbox + at))  # add_overtakes_a_put


@case("missing-fence")
def add_overtakes_a_put(world, bug):
    add_behind_a_put[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), not bug)


@triton.jit
def sets(flag, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
        if FENCE:
            dl.fence()
        dl.signal_op(flag, 2, dl.SIGNAL_SET, 1)  # two_sets_by_one
    else:
        dl.signal_wait_until(flag, dl.CMP_GE, 2)


@case("lost-signal", schedule="eager")
def two_sets_by_one(world, bug):
    sets[(1,)](flags(), not bug)


@triton.jit
def value_and_flag(value, flag, result, QUIET: tl.constexpr):
    if dl.my_pe() == 0:
        dl.atomic_set(value, 7, 1)  # flag_overtakes_a_value
        if QUIET:
            dl.quiet()
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result, tl.load(value))


@case("missing-fence")
def flag_overtakes_a_value(world, bug):
    value_and_flag[(1,)](flags(), flags(), torch.zeros(1, dtype=torch.int64), not bug)


@triton.jit
def count_and_reset(count, flag, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        dl.atomic_inc(count, 1)
        if FENCE:
            dl.fence()
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_GE, 1)
        tl.store(count, 0)  # reset_before_the_last_add


@case("missing-fence")
def reset_before_the_last_add(world, bug):
    count_and_reset[(1,)](flags(), flags(), not bug)


@triton.jit
def two_messages(inbox, outbox, flag, result, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.putmem_signal(inbox, outbox, 64, flag, 1, dl.SIGNAL_SET, 1)
        dl.putmem_signal(inbox + 16, outbox, 64, flag + (0 if BUG else 1), 2, dl.SIGNAL_SET, 1)
    else:
        if not BUG:
            dl.signal_wait_until(flag, dl.CMP_GE, 1)
        dl.signal_wait_until(flag + (0 if BUG else 1), dl.CMP_GE, 2)  # one_signal_for_two_messages
        tl.store(result + at, tl.load(inbox + at) + tl.load(inbox + 16 + at))


@case("deadlock", fatal=True)
def one_signal_for_two_messages(world, bug):
    two_messages[(1,)](triton_dist.zeros(32), triton_dist.zeros(16), flags(2), out(), bug)


@triton.jit
def value_by_p(value, flag, result, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        dl.p(value, 7, 1)
        if FENCE:
            dl.fence()
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result, tl.load(value))  # signal_overtakes_p


@case("missing-fence")
def signal_overtakes_p(world, bug):
    result = torch.zeros(1, dtype=torch.int64)
    value_by_p[(1,)](flags(), flags(), result, not bug)
    assert bug or result.item() == 7 * world.pe


@triton.jit
def strided(x, y, flag, result, BLOCKS: tl.constexpr, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        if BLOCKS:
            dl.ibput(x, y, 4, 2, 2, 4, 1)  # signal_overtakes_ibput
        else:
            dl.iput(x, y, 2, 1, 8, 1)  # signal_overtakes_iput
        tl.store(y + tl.arange(0, 16), 5.0)  # the source may be written: neither is non-blocking
        if FENCE:
            dl.fence()
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result + tl.arange(0, 16), tl.load(x + tl.arange(0, 16)))


def _strided(world, blocks, bug):
    x, y, result = triton_dist.zeros(16), triton_dist.full(16, 1.0), out()
    triton_dist.barrier_all()
    strided[(1,)](x, y, flags(), result, blocks, not bug)
    assert bug or not world.pe or result.sum().item() == 8
    triton_dist.barrier_all()
    assert x.sum().item() == 8 * world.pe, x


@case("missing-fence")
def signal_overtakes_iput(world, bug):
    _strided(world, False, bug)


@case("missing-fence")
def signal_overtakes_ibput(world, bug):
    _strided(world, True, bug)


# ---- right programs


@triton.jit
def messages_and_replies(inbox, outbox, message, reply, result, ROUNDS: tl.constexpr):
    """Evidence that a message was read stands for all fences, in both directions."""
    at = tl.arange(0, 16)
    other = 1 - dl.my_pe()
    for i in range(1, ROUNDS + 1):
        dl.putmem_signal(inbox, outbox, 64, message, i, dl.SIGNAL_SET, other)
        dl.signal_wait_until(message, dl.CMP_EQ, i)
        tl.store(result + at, tl.load(inbox + at))
        dl.signal_op(reply, i, dl.SIGNAL_SET, other)
        dl.signal_wait_until(reply, dl.CMP_EQ, i)


@case()
def messages_that_are_acknowledged(world, bug):
    messages_and_replies[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), flags(), out(), 5)


@triton.jit
def adds(flag, total, PROGRAMS: tl.constexpr):
    other = 1 - dl.my_pe()
    for _ in range(4):
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
        dl.atomic_add(total, 2, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 4 * PROGRAMS)
    dl.wait_until(total, dl.CMP_EQ, 8 * PROGRAMS)


@case()
def adds_in_any_order(world, bug):
    adds[(3,)](flags(), flags(), 3)


@triton.jit
def exit_report(inbox, outbox, flag, count):
    """The kernel ends while all of this is in flight."""
    other = 1 - dl.my_pe()
    dl.putmem(inbox, outbox, 64, other)
    dl.signal_op(flag, 5, dl.SIGNAL_SET, other)
    dl.atomic_inc(count, other)


@triton.jit
def barrier_behind(flag, result):
    dl.signal_op(flag, 3, dl.SIGNAL_SET, 1 - dl.my_pe())
    dl.barrier_all()
    tl.store(result, tl.load(flag))


@case()
def what_barriers_complete(world, bug):
    inbox, flag, count = triton_dist.zeros(16), flags(), flags()
    exit_report[(1,)](inbox, triton_dist.full(16, 2.0), flag, count)
    triton_dist.barrier_all()
    assert (inbox.sum().item(), flag.item(), count.item()) == (32.0, 5, 1)
    triton_dist.barrier_all()
    result = torch.zeros(1, dtype=torch.int64)
    barrier_behind[(1,)](flag, result)
    assert result.item() == 3


@triton.jit
def own_counter(count, seen):
    """A fetching atomic is complete when it returns, and a quiet completes those that fetch nothing."""
    other = 1 - dl.my_pe()
    dl.atomic_add(count, 1, other)
    dl.quiet()
    tl.store(seen, dl.atomic_fetch_add(count, 1, other))
    tl.store(seen + 1, dl.atomic_fetch(count, other))


@case()
def what_quiet_completes(world, bug):
    seen = torch.zeros(2, dtype=torch.int64)
    own_counter[(1,)](flags(), seen)
    assert seen.tolist() == [1, 2]


main()
