"""Two puts to one place, and a put that a signal overtakes: what PE 1 finds tells in which order they have arrived."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton.jit
def kernel(data, values, seen, signal, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        dl.putmem(data, values, 4, 1)
        if FENCE:
            dl.fence()
        dl.putmem(data, values + 1, 4, 1)
        if FENCE:
            dl.fence()
        dl.signal_op(signal, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(signal, dl.CMP_EQ, 1)
        tl.store(seen, tl.load(data))


with triton_dist.init() as world:
    data, signal = triton_dist.zeros(1, dtype=torch.int32), triton_dist.zeros(1, dtype=torch.int64)
    seen = torch.zeros(1, dtype=torch.int32)
    kernel[(1,)](data, torch.tensor([1, 2], dtype=torch.int32), seen, signal, sys.argv[1] == "fence")
    triton_dist.barrier_all()
    if world.pe == 1:
        print(f"behind the signal {seen.item()}, at the end {data.item()}", flush=True)
