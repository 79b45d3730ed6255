"""Waits of all kinds, and order that a third one hands on."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from harness import case, flags, out
from right.common import pair, use

import triton_dist
import triton_dist.language as dl


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
def notified(x, flag, result):
    other = 1 - dl.rank()
    tl.store(dl.symm_at(x, other) + tl.arange(0, 16), 1.0)
    dl.notify(flag, other, signal=1, sig_op="add", comm_scope="intra_node")
    token = dl.wait(flag, 1, "sys", "acquire")
    use(result, dl.consume_token(x, token))


@case()
def notify_and_wait(world, bug):
    notified[(1,)](triton_dist.zeros(16), flags(), out())


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
