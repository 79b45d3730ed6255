"""Right programs that are hard to see through: whatever orders the accesses of PEs without looking like it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def use(result, data):
    at = tl.arange(0, 16)
    tl.store(result + at, tl.load(data + at))


def pair():
    return triton_dist.zeros(16), triton_dist.zeros(16)


@triton.jit
def completed_relaxed(x, y, flag, result, QUIET: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem_nbi(x, y, 64, other)
    if QUIET:
        dl.quiet()
    else:
        dl.fence()
        dl.pe_quiet(other)
    dl.atomic_inc(flag, other, sem="relaxed")
    dl.wait_until(flag, dl.CMP_GE, 1)
    use(result, x)


@case()
def quiet_relaxed_atomic(world, bug):
    completed_relaxed[(1,)](*pair(), flags(), out(), True)


@case()
def pe_quiet_relaxed_atomic(world, bug):
    completed_relaxed[(1,)](*pair(), flags(1, torch.int32), out(), False)


@triton.jit
def p_behind_fence(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.pe_fence(other)
    dl.p(flag, 1, other)
    dl.wait_until(flag, dl.CMP_NE, 0)
    use(result, x)


@case()
def fence_and_p(world, bug):
    p_behind_fence[(1,)](triton_dist.zeros(16), flags(1, torch.int32), out())


@triton.jit
def stored_flag(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.fence()
    dl.store(flag, 1, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case()
def fence_and_store(world, bug):
    stored_flag[(1,)](triton_dist.zeros(16), flags(), out())


@triton.jit
def put_flag(x, y, flag, one, result):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)
    dl.fence()
    dl.putmem(flag, one, 8, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case()
def fence_and_put(world, bug):
    put_flag[(1,)](*pair(), flags(), torch.ones(1, dtype=torch.int64), out())


@triton.jit
def relaxed_poll_then_quiet(x, flag, result):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    while dl.atomic_fetch(flag, dl.my_pe(), sem="relaxed") == 0:
        pass
    dl.quiet()
    use(result, x)


@case()
def relaxed_poll(world, bug):
    relaxed_poll_then_quiet[(1,)](triton_dist.zeros(16), flags(), out())


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
def some(x, y, flag, indices, status, result):
    if dl.my_pe() == 0:
        for i in range(4):
            dl.putmem_signal(x + i * 16, y, 64, flag + i, 1, dl.SIGNAL_SET, 1)
    else:
        left = 4
        while left > 0:
            n = dl.wait_until_some(flag, 4, indices, status, dl.CMP_EQ, 1)
            for i in range(n):
                which = tl.load(indices + i)
                use(result, x + which * 16)
                tl.store(status + which, 1)
            left -= n


@case()
def wait_for_some(world, bug):
    x, status = triton_dist.zeros(64), torch.zeros(4, dtype=torch.int32)
    some[(1,)](x, triton_dist.zeros(16), flags(4), torch.zeros(4, dtype=torch.int64), status, out())


@triton.jit
def any_of(x, y, flag, status, result):
    if dl.my_pe() == 0:
        for i in range(3):
            dl.putmem_signal(x + i * 16, y, 64, flag + i, 1, dl.SIGNAL_SET, 1)
    else:
        for _ in range(3):
            which = dl.wait_until_any(flag, 3, status, dl.CMP_EQ, 1)
            use(result, x + which * 16)
            tl.store(status + which, 1)


@case()
def wait_for_any(world, bug):
    any_of[(1,)](
        triton_dist.zeros(48), triton_dist.zeros(16), flags(3), torch.zeros(3, dtype=torch.int32), out()
    )  # fmt: skip


@triton.jit
def test_loop(x, y, flag, result):
    other = 1 - dl.my_pe()
    dl.putmem_signal(x, y, 64, flag, 1, dl.SIGNAL_SET, other)
    while dl.test(flag, dl.CMP_EQ, 1) == 0:
        pass
    use(result, x)


@case()
def loop_of_tests(world, bug):
    test_loop[(1,)](*pair(), flags(), out())


@triton.jit
def arrive(x, flag, epoch):
    dl.store(x + tl.arange(0, 16), 1.0, 1 - dl.my_pe())
    dl.signal_op(flag, epoch, dl.SIGNAL_SET, 1 - dl.my_pe())


@triton.jit
def wait(x, flag, epoch, result, done):
    dl.signal_wait_until(flag, dl.CMP_GE, epoch)
    use(result, x)
    dl.signal_op(done, epoch, dl.SIGNAL_SET, 1 - dl.my_pe())
    dl.signal_wait_until(done, dl.CMP_GE, epoch)


@case()
def split_arrive_and_wait(world, bug):
    x, flag, done = triton_dist.zeros(16), flags(), flags()
    for epoch in range(1, 4):
        arrive[(1,)](x, flag, epoch)
        wait[(1,)](x, flag, epoch, out(), done)


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
def collectives(x, y, z, result):
    for _ in range(2):
        dl.fcollect(dl.TEAM_WORLD, x, y, 8)
        dl.sum_reduce(dl.TEAM_WORLD, y, y, 8)
        dl.fcollect(dl.TEAM_WORLD, z, z + dl.my_pe() * 8, 8)
        dl.broadcast(dl.TEAM_WORLD, y, y, 8, 1)
        use(result, x)
        dl.barrier_all()


@case()
def collectives_in_turn(world, bug):
    collectives[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), triton_dist.zeros(16), out())


@triton.jit
def to_all(x, n):
    for pe in range(dl.n_pes()):
        dl.putmem(x + dl.my_pe() * 16, x + dl.my_pe() * 16, 64, pe)
    dl.barrier_all()


@case()
def in_place_all_gather(world, bug):
    to_all[(1,)](triton_dist.zeros(32), 2)


@case()
def freed_and_taken_again(world, bug):
    for _ in range(3):
        x, y = pair()
        put_only[(1,)](x, y)
        triton_dist.barrier_all()
        x.sum()
        triton_dist.free(x)
        triton_dist.free(y)


@triton.jit
def put_only(x, y):
    dl.putmem_nbi(x, y, 64, 1 - dl.my_pe())


@triton.jit
def descriptors(x, flag, result):
    other = 1 - dl.my_pe()
    there = tl.make_tensor_descriptor(dl.symm_at(x, other), [8, 16], [16, 1], [8, 16])
    there.store([0, 0], tl.full((8, 16), 3.0, tl.float32))
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    here = tl.make_tensor_descriptor(x, [8, 16], [16, 1], [8, 16])
    tl.store(result + tl.arange(0, 16), tl.sum(here.load([0, 0]), 0))


@case()
def tensor_descriptors(world, bug):
    descriptors[(1,)](triton_dist.zeros(8, 16), flags(), out())


@triton.jit
def strided(x, y, flag, result):
    other = 1 - dl.my_pe()
    dl.iput(x, y, 2, 1, 8, other)
    dl.iput(x + 1, y, 2, 1, 8, other)
    dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_NE, 0)
    dl.iget(result, x, 1, 2, 8, dl.my_pe())


@case()
def interleaved_elements(world, bug):
    strided[(1,)](*pair(), flags(), out())


@triton.jit
def tiles(x, y, flag, result):
    other = 1 - dl.my_pe()
    dl.ibput(x, y, 4, 1, 2, 4, other)
    dl.ibput(x + 2, y, 4, 1, 2, 4, other)
    dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_NE, 0)
    dl.ibget(result, x, 2, 4, 2, 4, dl.my_pe())


@case()
def interleaved_blocks(world, bug):
    tiles[(1,)](*pair(), flags(), out())


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


@triton.jit
def notified(x, flag, result):
    other = 1 - dl.rank()
    tl.store(dl.symm_at(x, other) + tl.arange(0, 16), 1.0)
    dl.notify(flag, other, signal=1, sig_op="add", comm_scope="intra_node")
    token = dl.wait(flag, 1, "sys", "acquire")
    use(result, dl.consume_token(x, token))


@case()
def notify_and_wait(world, bug):
    notified[(1,)](triton_dist.zeros(16), flags(), out())


@case()
def host_operations(world, bug):
    x, y = pair()
    other = 1 - world.pe
    for _ in range(2):
        triton_dist.put(x, y, other)
        triton_dist.barrier()
        y.copy_(x)
        triton_dist.barrier()
        triton_dist.get(x, y, other)
        triton_dist.barrier()
        triton_dist.reduce(x, y, "sum")
        triton_dist.barrier()


@triton.jit
def relay(x, y, flag, result):
    """PE 0 signals its own second program through PE 1: order is handed on."""
    if dl.my_pe() == 0:
        if tl.program_id(0) == 0:
            tl.store(x + tl.arange(0, 16), 1.0)
            dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
        else:
            dl.signal_wait_until(flag, dl.CMP_EQ, 2)
            use(result, x)
    elif tl.program_id(0) == 0:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        dl.signal_op(flag, 2, dl.SIGNAL_SET, 0)


@case()
def order_by_a_third(world, bug):
    relay[(2,)](*pair(), flags(), out())


main()
