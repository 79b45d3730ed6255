"""What a non-blocking get fetches is used before quiet."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(here, there, result, QUIET: tl.constexpr):
    at = tl.arange(0, 16)
    dl.getmem_nbi(here, there, 64, 1 - dl.my_pe())  # one
    if QUIET:
        dl.quiet()
    tl.store(result + at, tl.load(here + at))  # other
    dl.quiet()


with triton_dist.init() as world:
    here, there = triton_dist.zeros(16), triton_dist.zeros(16)
    kernel[(1,)](here, there, torch.empty(16), not BUG)
