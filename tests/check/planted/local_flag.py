"""A program reads what another one of the same grid stores, by a flag that orders nothing."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(tensor, flag, result, SEM: tl.constexpr):
    at = tl.arange(0, 16)
    if tl.program_id(0) == 0:
        tl.store(tensor + at, 1.0)  # one
        tl.atomic_xchg(flag, 1, sem=SEM, scope="gpu")
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") == 0:
            pass
        tl.store(result + at, tl.load(tensor + at))  # other


with triton_dist.init() as world:
    tensor = triton_dist.zeros(16)
    kernel[(2,)](tensor, torch.zeros(1, dtype=torch.int32), torch.empty(16), "relaxed" if BUG else "release")
