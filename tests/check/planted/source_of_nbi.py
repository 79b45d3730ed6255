"""The source of a non-blocking put is written before quiet. It is no symmetric memory."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, outbox, QUIET: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        tl.store(outbox + at, 1.0)
        dl.putmem_nbi(inbox, outbox, 64, 1)  # one
        if QUIET:
            dl.quiet()
        tl.store(outbox + at, 2.0)  # other
        dl.quiet()


with triton_dist.init() as world:
    inbox = triton_dist.zeros(16)
    kernel[(1,)](inbox, torch.empty(16), not BUG)
