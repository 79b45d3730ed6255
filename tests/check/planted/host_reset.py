"""The host resets a tensor that a peer may already be storing to."""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(tensor):
    tl.store(dl.symm_at(tensor, 1 - dl.my_pe()) + tl.arange(0, 16), 1.0)  # one


with triton_dist.init() as world:
    tensor = triton_dist.empty(16)
    tensor.zero_()  # other
    if not BUG:
        triton_dist.barrier_all()
    kernel[(1,)](tensor)
    triton_dist.barrier_all()
    assert BUG or tensor.sum() == 16
