"""A flag made of tl.atomic_* whose scope is one GPU."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(inbox, result, flag, SCOPE: tl.constexpr):
    at = tl.arange(0, 16)
    if dl.my_pe() == 0:
        tl.store(dl.symm_at(inbox, 1) + at, 1.0)  # one
        tl.atomic_xchg(dl.symm_at(flag, 1), 1, sem="release", scope=SCOPE)
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope=SCOPE) == 0:
            pass
        tl.store(result + at, tl.load(inbox + at))  # other


with triton_dist.init() as world:
    inbox, flag = triton_dist.zeros(16), triton_dist.zeros(1, dtype=torch.int32)
    kernel[(1,)](inbox, torch.empty(16), flag, "gpu" if BUG else "sys")
