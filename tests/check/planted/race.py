"""All PEs store to the same place of PE 0."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def kernel(tensor, OWN_PLACE: tl.constexpr):
    place = dl.my_pe() * OWN_PLACE
    tl.store(dl.symm_at(tensor, 0) + place, dl.my_pe())  # one  # other


with triton_dist.init() as world:
    tensor = triton_dist.zeros(2, dtype=torch.int32)
    kernel[(1,)](tensor, 0 if BUG else 1)
    triton_dist.barrier_all()
    assert "and fail" not in sys.argv, "and fail"
