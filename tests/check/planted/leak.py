"""A tensor is dropped on one PE only, so that its memory can never be used again."""

from __future__ import annotations

import sys

import triton_dist

BUG = sys.argv[1] == "bug"

with triton_dist.init() as world:
    kept = []
    for _ in range(3):
        tensor = triton_dist.zeros(64)  # one
        if BUG and world.pe == 0:
            kept.append(tensor)
    del tensor
    triton_dist.barrier_all()
