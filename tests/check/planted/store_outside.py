"""A block of stores through symm_at, and no mask."""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(tensor, n, MASKED: tl.constexpr):
    at = tl.arange(0, 64)
    there = dl.symm_at(tensor, 1 - dl.my_pe())
    tl.store(there + at, 1.0, mask=(at < n) if MASKED else None)  # one


with triton_dist.init() as world:
    tensor = triton_dist.zeros(50)  # other
    kernel[(1,)](tensor, 50, not BUG)
    triton_dist.barrier_all()
