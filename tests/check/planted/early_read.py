"""PE 1 reads what PE 0 puts, and does not wait for it."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, outbox, result, arrived, WAITS: tl.constexpr):
    at = tl.arange(0, 64)
    if dl.my_pe() == 0:
        dl.putmem_signal(inbox, outbox, 256, arrived, 1, dl.SIGNAL_SET, 1)  # one
    else:
        if WAITS:
            dl.signal_wait_until(arrived, dl.CMP_EQ, 1)
        tl.store(result + at, tl.load(inbox + at))  # other
        dl.signal_wait_until(arrived, dl.CMP_EQ, 1)


with triton_dist.init() as world:
    inbox, outbox = triton_dist.zeros(64), triton_dist.full((64,), 1.0)
    arrived = triton_dist.zeros(1, dtype=torch.int64)
    kernel[(1,)](inbox, outbox, torch.empty(64), arrived, not BUG)
