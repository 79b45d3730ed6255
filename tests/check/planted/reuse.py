"""PE 0 fills the only slot again before PE 1 has read it."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def produce(slot, items, filled, drained, WAITS: tl.constexpr):
    for i in range(2):
        if WAITS:
            dl.signal_wait_until(drained, dl.CMP_GE, i)
        dl.putmem_signal(slot, items + i * 16, 64, filled, 1, dl.SIGNAL_ADD, 1)  # one
        dl.fence()


@triton.jit
def consume(slot, result, filled, drained):
    at = tl.arange(0, 16)
    for i in range(2):
        dl.signal_wait_until(filled, dl.CMP_GE, i + 1)
        tl.store(result + i * 16 + at, tl.load(slot + at))  # other
        dl.signal_op(drained, 1, dl.SIGNAL_ADD, 0)


@triton.jit
def kernel(slot, items, result, filled, drained, WAITS: tl.constexpr):
    if dl.my_pe() == 0:
        produce(slot, items, filled, drained, WAITS)
        dl.signal_wait_until(drained, dl.CMP_GE, 2)
    else:
        consume(slot, result, filled, drained)


with triton_dist.init() as world:
    slot, items = triton_dist.zeros(16), triton_dist.zeros(32)
    filled, drained = (triton_dist.zeros(1, dtype=torch.int64) for _ in range(2))
    kernel[(1,)](slot, items, torch.empty(32), filled, drained, not BUG)
