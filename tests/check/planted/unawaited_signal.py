"""PE 1 forgets to wait, and uses nothing that would tell."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(arrived, WAITS: tl.constexpr):
    dl.signal_op(arrived, 1, dl.SIGNAL_SET, 1 - dl.my_pe())  # one
    if WAITS:
        dl.signal_wait_until(arrived, dl.CMP_EQ, 1)


with triton_dist.init() as world:
    arrived = triton_dist.zeros(1, dtype=torch.int64)
    kernel[(1,)](arrived, not BUG)
