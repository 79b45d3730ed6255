"""PE 1's kernel waits for what never comes; PE 0 waits for PE 1."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton.jit
def wait(signals):
    dl.signal_wait_until(signals + tl.program_id(0), dl.CMP_GE, 9)


with triton_dist.init() as world:
    signals = triton_dist.full((4,), 3, dtype=torch.int64)
    if world.pe == 1:
        wait[(2,)](signals)
    triton_dist.barrier_all()
