"""PE 1 fails inside the world while the others wait for it in a kernel: nothing may hang."""

from __future__ import annotations

import torch
import triton

import triton_dist
import triton_dist.language as dl


@triton.jit
def wait_for_one(flag):
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)


with triton_dist.init() as world:
    flag = triton_dist.zeros(1, dtype=torch.int64)
    if world.pe == 1:
        raise SystemExit("PE 1 gives up")
    wait_for_one[(1,)](flag)
    triton_dist.barrier_all()
