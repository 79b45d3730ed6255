"""The hosts meet in torch.distributed, or do not, between a kernel that stores to a peer and one that reads."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def scatter(tensor):
    tl.store(dl.symm_at(tensor, 1 - dl.my_pe()) + tl.arange(0, 32), 1.0)  # one


@triton.jit
def use(tensor, result):
    at = tl.arange(0, 32)
    tl.store(result + at, tl.load(tensor + at))  # other


dist.init_process_group("gloo")
with triton_dist.init() as world:
    tensor = triton_dist.zeros(32)
    scatter[(1,)](tensor)
    if not BUG:
        dist.barrier()
    use[(1,)](tensor, torch.empty(32))
dist.destroy_process_group()
