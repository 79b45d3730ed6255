"""Each PE waits for the other one before it signals."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(flag, WAITS_FIRST: tl.constexpr):
    if WAITS_FIRST:
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)  # one  # other
    dl.signal_op(flag, 1, dl.SIGNAL_SET, 1 - dl.my_pe())
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)


with triton_dist.init() as world:
    flag = triton_dist.zeros(1, dtype=torch.int64)
    kernel[(1,)](flag, BUG)
