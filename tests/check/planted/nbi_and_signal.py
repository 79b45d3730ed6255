"""A signal behind a non-blocking put, without quiet: it may be there first."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, outbox, result, arrived, QUIET: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.putmem_nbi(inbox, outbox, 64, 1)  # one
        if QUIET:
            dl.quiet()
        dl.signal_op(arrived, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(arrived, dl.CMP_EQ, 1)
        tl.store(result + at, tl.load(inbox + at))  # other


with triton_dist.init() as world:
    inbox, outbox = triton_dist.zeros(16), triton_dist.zeros(16)
    arrived = triton_dist.zeros(1, dtype=torch.int64)
    kernel[(1,)](inbox, outbox, torch.empty(16), arrived, not BUG)
