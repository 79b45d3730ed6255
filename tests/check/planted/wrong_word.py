"""The signal goes to another word than the one that is awaited."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(flags, WORD: tl.constexpr):
    if dl.my_pe() == 0:
        dl.signal_op(flags + 1, 1, dl.SIGNAL_SET, 1)  # named
    else:
        dl.signal_wait_until(flags + WORD, dl.CMP_EQ, 1)  # one


with triton_dist.init() as world:
    flags = triton_dist.zeros(4, dtype=torch.int64)
    kernel[(1,)](flags, 2 if BUG else 1)
    triton_dist.barrier_all()  # other
