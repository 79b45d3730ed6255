"""Data and the signal that it has come: every way to have the signal be there first."""

from __future__ import annotations

import triton
import triton.language as tl
from harness import case, flags, main, out

import triton_dist
import triton_dist.language as dl


@triton.jit
def use(result, data):
    at = tl.arange(0, 16)
    tl.store(result + at, tl.load(data + at))


@triton.jit
def p_flag(x, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)  # store_then_p
    if not BUG:
        dl.fence()
    dl.p(flag, 1, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("early-read")
def store_then_p(world, bug):
    p_flag[(1,)](triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def relaxed_set(x, flag, result, SEM: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 1.0, other)  # store_then_relaxed
    dl.atomic_set(flag, 1, other, sem=SEM)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("early-read")
def store_then_relaxed(world, bug):
    relaxed_set[(1,)](triton_dist.zeros(16), flags(), out(), "relaxed" if bug else "release")


@triton.jit
def relaxed_add(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)  # put_then_relaxed
    if not BUG:
        dl.fence()
    dl.atomic_add(flag, 1, other, sem="relaxed")
    dl.wait_until(flag, dl.CMP_GE, 1)
    use(result, x)


@case("early-read", "missing-fence")
def put_then_relaxed(world, bug):
    relaxed_add[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def put_p(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)  # put_then_p
    if not BUG:
        dl.fence()
    dl.p(flag, 1, other)
    dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("early-read", "missing-fence")
def put_then_p(world, bug):
    put_p[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def fence_of(x, y, flag, result, pe):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)  # fence_of_another_pe
    dl.pe_fence(pe)
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("missing-fence")
def fence_of_another_pe(world, bug):
    pe = world.pe if bug else 1 - world.pe
    fence_of[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), pe)


@triton.jit
def late_fence(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)  # fence_behind_the_signal
    if not BUG:
        dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.fence()
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("missing-fence")
def fence_behind_the_signal(world, bug):
    late_fence[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def strided(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.iput(x, y, 2, 1, 8, other)  # iput_and_signal
    if not BUG:
        dl.quiet()
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("missing-fence")
def iput_and_signal(world, bug):
    strided[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def nbi_source(x, y, flag, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem_signal_nbi(x, y, 64, flag, 1, dl.SIGNAL_SET, other)
    if not BUG:
        dl.quiet()
    tl.store(y + tl.arange(0, 16), 2.0)  # source_of_signal_nbi
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    dl.quiet()


@case("missing-quiet")
def source_of_signal_nbi(world, bug):
    nbi_source[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), bug)


@triton.jit
def get_fence(x, y, result, BUG: tl.constexpr):
    dl.getmem_nbi(x, y, 64, 1 - dl.my_pe())  # get_then_fence
    if BUG:
        dl.fence()
    else:
        dl.quiet()
    use(result, x)
    dl.quiet()


@case("missing-quiet")
def get_then_fence(world, bug):
    get_fence[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), out(), bug)


@triton.jit
def twice(x, y, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)
    if not BUG:
        dl.fence()
    dl.putmem(x, y, 32, other)  # two_puts
    dl.quiet()


@case("missing-fence")
def two_puts(world, bug):
    twice[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), bug)


@triton.jit
def back(x, y, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem(x, y, 64, other)  # put_and_get_back
    if not BUG:
        dl.quiet()
    dl.getmem(result, x, 64, other)
    dl.quiet()


@case("missing-quiet")
def put_and_get_back(world, bug):
    back[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), out(), bug)


@triton.jit
def relaxed_poll(x, flag, result, SEM: tl.constexpr):
    dl.store(x + tl.arange(0, 16), 1.0, 1 - dl.my_pe())  # relaxed_wait
    dl.signal_op(flag, 1, dl.SIGNAL_SET, 1 - dl.my_pe())
    while dl.atomic_fetch(flag, dl.my_pe(), sem=SEM) == 0:
        pass
    use(result, x)


@case("early-read")
def relaxed_wait(world, bug):
    relaxed_poll[(1,)](triton_dist.zeros(16), flags(), out(), "relaxed" if bug else "acquire")


@triton.jit
def p_data(x, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.p(x, 1.0, other)  # p_and_signal
    if not BUG:
        dl.fence()
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("missing-fence")
def p_and_signal(world, bug):
    p_data[(1,)](triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def two_elements(x, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.p(x, 1.0, 1)
        if not BUG:
            dl.fence()
        dl.p(x, 2.0, 1)  # p_and_p


@case("missing-fence")
def p_and_p(world, bug):
    two_elements[(1,)](triton_dist.zeros(16), bug)


@triton.jit
def elements_of_two(x, BUG: tl.constexpr):
    dl.p(x + (0 if BUG else dl.my_pe()), 1.0 + dl.my_pe(), 0)  # ps_of_two


@case("race")
def ps_of_two(world, bug):
    elements_of_two[(1,)](triton_dist.zeros(16), bug)


@triton.jit
def there_and_back(x, result, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.p(x, 1.0, 1)
        if not BUG:
            dl.quiet()
        tl.store(result, dl.g(x, 1))  # p_and_g


@case("missing-quiet")
def p_and_g(world, bug):
    there_and_back[(1,)](triton_dist.zeros(16), out(), bug)


@triton.jit
def signalled(x, flag, result, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.p(x, 1.0, 0)
        if not BUG:
            dl.quiet()
        dl.signal_op(flag, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        tl.store(result, dl.g(x, 0))  # p_signal_g


@case("missing-fence", "missing-quiet")
def p_signal_g(world, bug):
    signalled[(1,)](triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def counted(count, lock, BUG: tl.constexpr):
    for _ in range(3):
        while dl.atomic_compare_swap(lock, 0, 1, 0) != 0:
            pass
        dl.p(count, dl.g(count, 0) + 1, 0)  # count_in_a_lock
        if not BUG:
            dl.quiet()
        dl.atomic_set(lock, 0, 0)


@case("missing-fence", "missing-quiet", "race")
def count_in_a_lock(world, bug):
    counted[(1,)](flags(), flags(), bug)


@triton.jit
def polled_element(flag, result):
    if dl.my_pe() == 0:
        dl.p(flag, 1, 1)
    else:
        while dl.g(flag, 1) == 0:
            pass


@case()
def p_is_polled(world, bug):
    polled_element[(1,)](flags(), out())


@triton.jit
def g_poll(x, flag, result, BUG: tl.constexpr):
    dl.store(x + tl.arange(0, 16), 1.0, 1 - dl.my_pe())  # g_as_wait
    dl.signal_op(flag, 1, dl.SIGNAL_SET, 1 - dl.my_pe())
    if BUG:
        while dl.g(flag, dl.my_pe()) == 0:
            pass
    else:
        dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("early-read")
def g_as_wait(world, bug):
    g_poll[(1,)](triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def handed_on(x, flag, done, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    if tl.program_id(0) == 0:
        dl.store(x + tl.arange(0, 16), 1.0, other)  # another_program_signals
        tl.atomic_add(done, 1, sem="release", scope="gpu")
    else:
        if not BUG:
            while tl.atomic_add(done, 0, sem="acquire", scope="gpu") == 0:
                pass
        dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
        use(result, x)


@case("early-read", "reuse")
def another_program_signals(world, bug):
    handed_on[(2,)](triton_dist.zeros(16), flags(), flags(), out(), bug)


@triton.jit
def inverted(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    if BUG:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.putmem(x, y, 64, other)  # signal_first
    dl.fence()
    if not BUG:
        dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("early-read")
def signal_first(world, bug):
    inverted[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def tma(x, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    there = tl.make_tensor_descriptor(dl.symm_at(x, other), [16, 16], [16, 1], [8, 16])
    there.store([0, 0], tl.full((8, 16), 3.0, tl.float32))  # descriptors
    dl.signal_op(flag, 1, dl.SIGNAL_SET, other)
    if not BUG:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    here = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [8, 16])
    tl.store(result + tl.arange(0, 16), tl.sum(here.load([0, 0]), 0))
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)


@case("early-read")
def descriptors(world, bug):
    tma[(1,)](triton_dist.zeros(16, 16), flags(), out(), bug)


@triton.jit
def tma_and_atomic(x, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    there = tl.make_tensor_descriptor(dl.symm_at(x, other), [16, 16], [16, 1], [8, 16])
    there.store([0, 0], tl.full((8, 16), 3.0, tl.float32))  # atomic_behind_a_descriptor_store
    if BUG:
        tl.atomic_add(dl.symm_at(flag, other), 1, sem="release", scope="sys")
    else:
        dl.signal_op(flag, 1, dl.SIGNAL_ADD, other)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)


@case("missing-fence")
def atomic_behind_a_descriptor_store(world, bug):
    tma_and_atomic[(1,)](triton_dist.zeros(16, 16), flags(), out(), bug)


@triton.jit
def tma_of_own_stores(x, result, BUG: tl.constexpr):
    block = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [1, 16])
    tl.store(x + tl.arange(0, 16), 3.0)  # own_store_and_descriptor_load
    if not BUG:
        dl.fence()
    tl.store(result + tl.arange(0, 16), tl.sum(block.load([0, 0]), 0))
    block.store([0, 0], tl.full((1, 16), 4.0, tl.float32))
    block.store([0, 0], tl.full((1, 16), 5.0, tl.float32))
    dl.fence()
    use(result, x)


@case("missing-proxy-fence")
def own_store_and_descriptor_load(world, bug):
    tma_of_own_stores[(1,)](triton_dist.zeros(16, 16), out(), bug)


@triton.jit
def tma_read_back(x, result, BUG: tl.constexpr):
    block = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [1, 16])
    block.store([0, 0], tl.full((1, 16), 4.0, tl.float32))  # descriptor_store_read_back
    if not BUG:
        dl.quiet()
    tl.store(result + tl.arange(0, 16), tl.sum(block.load([0, 0]), 0))


@case("missing-fence")
def descriptor_store_read_back(world, bug):
    tma_read_back[(1,)](triton_dist.zeros(16, 16), out(), bug)


@triton.jit
def atomics_and_tma(x, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.store(x + tl.arange(0, 16), 3.0, other)  # acquired_by_a_relaxed_atomic
    dl.atomic_add(flag, 1, other, sem="release")
    while dl.atomic_fetch(flag, dl.my_pe(), sem="relaxed" if BUG else "acquire") == 0:
        pass
    if BUG:  # an acquire, but none of the ops'
        tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    block = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [1, 16])
    tl.store(result + tl.arange(0, 16), tl.sum(block.load([0, 0]), 0))


@case("missing-proxy-fence")
def acquired_by_a_relaxed_atomic(world, bug):
    atomics_and_tma[(1,)](triton_dist.zeros(16, 16), flags(), out(), bug)


@triton.jit
def tma_behind_ops(x, y, there, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    block = tl.make_tensor_descriptor(x, [16, 16], [16, 1], [1, 16])
    dl.broadcast(dl.TEAM_WORLD, x, y, 16, 0)
    tl.store(result + tl.arange(0, 16), tl.sum(block.load([0, 0]), 0))
    block.store([1, 0], tl.full((1, 16), 4.0, tl.float32))
    tl.store(result, dl.g(there, other) + tl.load(x + 16))
    block.store([2, 0], tl.full((1, 16), 4.0, tl.float32))
    tl.store(result, dl.atomic_fetch(there, other) + tl.load(x + 32))
    tl.store(x + 48, 1.0)  # own_store_behind_ops
    if not BUG:
        dl.p(there + 1, 1.0, other)
    tl.store(result + tl.arange(0, 16), tl.sum(block.load([3, 0]), 0))


@case("missing-proxy-fence")
def own_store_behind_ops(world, bug):
    tma_behind_ops[(1,)](triton_dist.zeros(16, 16), triton_dist.zeros(16), triton_dist.zeros(2), out(), bug)


@triton.jit
def synced(x, y, result, BUG: tl.constexpr):
    dl.putmem(x, y, 64, 1 - dl.my_pe())  # sync_for_barrier
    if BUG:
        dl.sync_all()
    else:
        dl.barrier_all()
    use(result, x)


@case("missing-fence")
def sync_for_barrier(world, bug):
    synced[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), out(), bug)


@triton.jit
def tested(x, y, flag, result, BUG: tl.constexpr):
    other = 1 - dl.my_pe()
    dl.putmem_signal(x, y, 64, flag, 1, dl.SIGNAL_SET, other)  # test_for_wait
    if BUG:
        dl.test(flag, dl.CMP_EQ, 1)
    else:
        dl.wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)
    dl.wait_until(flag, dl.CMP_EQ, 1)


@case("early-read")
def test_for_wait(world, bug):
    tested[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), out(), bug)


@triton.jit
def any_of(x, y, flag, result, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        dl.putmem_signal(x, y, 32, flag, 1, dl.SIGNAL_SET, 1)
        dl.putmem_signal(x + 8, y, 32, flag + 1, 1, dl.SIGNAL_SET, 1)  # any_for_all
    else:
        if BUG:
            dl.wait_until_any(flag, 2, None, dl.CMP_EQ, 1)
        else:
            dl.wait_until_all(flag, 2, None, dl.CMP_EQ, 1)
        use(result, x)
        dl.wait_until_all(flag, 2, None, dl.CMP_EQ, 1)


@case("early-read", schedule="eager")
def any_for_all(world, bug):
    any_of[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(2), out(), bug)


@triton.jit
def two_slots(x, y, flag, result, WORD: tl.constexpr):
    if dl.my_pe() == 0:
        for i in range(2):
            dl.putmem_signal(x + i * 16, y, 64, flag + i, 1, dl.SIGNAL_SET, 1)  # wrong_slot
    else:
        dl.signal_wait_until(flag + WORD, dl.CMP_EQ, 1)
        use(result, x + 16)
        dl.wait_until_all(flag, 2, None, dl.CMP_EQ, 1)


@case("early-read")
def wrong_slot(world, bug):
    two_slots[(1,)](triton_dist.zeros(32), triton_dist.zeros(16), flags(2), out(), 0 if bug else 1)


@triton.jit
def epochs(x, y, flag, ack, result, BUG: tl.constexpr):
    if dl.my_pe() == 0:
        for i in range(3):
            dl.signal_wait_until(ack, dl.CMP_GE, i)
            dl.putmem_signal(x, y, 64, flag, i + 1, dl.SIGNAL_SET, 1)  # stale_epoch
    else:
        for i in range(3):
            dl.signal_wait_until(flag, dl.CMP_GE, 1 if BUG else i + 1)
            use(result, x)
            dl.signal_op(ack, 1, dl.SIGNAL_ADD, 0)


@case("missing-fence")
def stale_epoch(world, bug):
    epochs[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), flags(), flags(), out(), bug)


@triton.jit
def launch_signal(x, flag):
    dl.store(x + tl.arange(0, 16), 1.0, 1 - dl.my_pe())  # wait_in_a_later_launch
    dl.signal_op(flag, 1, dl.SIGNAL_SET, 1 - dl.my_pe())


@triton.jit
def launch_use(x, flag, result, WAITS: tl.constexpr):
    if WAITS:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    use(result, x)
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)


@case("early-read")
def wait_in_a_later_launch(world, bug):
    x, flag = triton_dist.zeros(16), flags()
    launch_signal[(1,)](x, flag)
    launch_use[(1,)](x, flag, out(), not bug)


@triton.jit
def volatile_data(x, flag, result, BUG: tl.constexpr):
    at = tl.arange(0, 16)
    dl.store(x + at, 1.0, 1 - dl.my_pe())  # volatile_flag
    tl.atomic_xchg(dl.symm_at(flag, 1 - dl.my_pe()), 1, sem="release", scope="sys")
    if BUG:
        while tl.load(flag, volatile=True) == 0:
            pass
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope="sys") == 0:
            pass
    use(result, x)


@case("early-read")
def volatile_flag(world, bug):
    volatile_data[(1,)](triton_dist.zeros(16), flags(), out(), bug)


main()
