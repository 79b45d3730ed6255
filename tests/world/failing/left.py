"""PE 0's kernel waits for what never comes; PE 1 has ended without finalize(), and PE 2 waits for PE 0."""

from __future__ import annotations

import torch
import triton

import triton_dist
import triton_dist.language as dl


@triton.jit
def wait(signals):
    dl.signal_wait_until(signals, dl.CMP_GE, 9)


world = triton_dist.init()
even = world.team_world.split_strided(0, 2, (world.n_pes + 1) // 2)
signals = triton_dist.zeros(1, dtype=torch.int64)
if world.pe == 0:
    wait[(1,)](signals)
elif world.pe == 2:
    triton_dist.barrier(even)
