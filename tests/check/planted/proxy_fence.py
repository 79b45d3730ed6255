"""A descriptor load behind an acquire of Triton's own, which holds for ordinary loads."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, result, arrived, FENCE: tl.constexpr):
    at = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)
    if dl.my_pe() == 0:
        dl.store(inbox + at, 1.0, 1)  # one
        dl.signal_op(arrived, 1, dl.SIGNAL_SET, 1)
    else:
        while tl.atomic_add(arrived, 0, sem="acquire", scope="sys") == 0:
            pass
        if FENCE:
            dl.fence()
        block = tl.make_tensor_descriptor(inbox, [8, 16], [16, 1], [8, 16])
        tl.store(result + at, block.load([0, 0]))  # other


with triton_dist.init() as world:
    inbox, arrived = triton_dist.zeros(8, 16), triton_dist.zeros(1, dtype=torch.int64)
    kernel[(1,)](inbox, torch.empty(8, 16), arrived, not BUG)
