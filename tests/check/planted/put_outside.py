"""A put runs past the end of its destination."""

from __future__ import annotations

import sys

import triton

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, outbox, nbytes):
    if dl.my_pe() == 0:
        dl.putmem(inbox, outbox, nbytes, 1)  # one
    dl.quiet()


with triton_dist.init() as world:
    inbox = triton_dist.zeros(60)  # other
    outbox = triton_dist.zeros(64)
    kernel[(1,)](inbox, outbox, 256 if BUG else 240)
