"""Not all PEs enter the barrier."""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(EVERYBODY: tl.constexpr):
    if EVERYBODY or dl.my_pe() == 0:
        dl.barrier_all()  # one


with triton_dist.init() as world:
    kernel[(1,)](not BUG)
    triton_dist.barrier_all()  # other
