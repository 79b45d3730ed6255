"""Two puts to one place, and a put that a signal overtakes: what PE 1 finds tells in which order they have arrived.

late_puts.py OP HOW    # "fence" or "no fence"
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton.jit
def put(data, values, OP: tl.constexpr):
    """Put a value to the first and the third element. The source is overwritten at once, since the put has read it."""
    if OP == "putmem":
        dl.putmem(data, values, 12, 1)
    elif OP == "p":
        dl.p(data, tl.load(values), 1)
        dl.p(data + 2, tl.load(values), 1)
    elif OP == "iput":
        dl.iput(data, values, 2, 1, 2, 1)
    else:
        dl.ibput(data, values, 2, 1, 1, 2, 1)
    tl.store(values + tl.arange(0, 4), 9)


@triton.jit
def kernel(data, first, second, seen, signal, OP: tl.constexpr, FENCE: tl.constexpr):
    if dl.my_pe() == 0:
        put(data, first, OP)
        if FENCE:
            dl.fence()
        put(data, second, OP)
        if FENCE:
            dl.fence()
        dl.signal_op(signal, 1, dl.SIGNAL_SET, 1)
    else:
        dl.signal_wait_until(signal, dl.CMP_EQ, 1)
        tl.store(seen, tl.load(data))
        tl.store(seen + 1, tl.load(data + 2))


with triton_dist.init() as world:
    data, signal = triton_dist.zeros(4, dtype=torch.int32), triton_dist.zeros(1, dtype=torch.int64)
    seen = torch.zeros(2, dtype=torch.int32)
    values = (torch.full((4,), value, dtype=torch.int32) for value in (1, 2))
    kernel[(1,)](data, *values, seen, signal, sys.argv[1], sys.argv[2] == "fence")
    triton_dist.barrier_all()
    if world.pe == 1:
        print(f"behind the signal {seen.tolist()}, at the end {data[::2].tolist()}", flush=True)
