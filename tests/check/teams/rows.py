"""Two teams of two PEs: a row's PEs meet in kernels and on the host, and read what the other one put before."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def put(dst, src, pe):
    dl.putmem(dst, src, 32, pe)  # one


@triton.jit
def read(result, src):
    at = tl.arange(0, 8)
    tl.store(result + at, tl.load(src + at))  # other


@triton.jit
def put_and_meet(dst, src, pe, team, result):
    dl.putmem(dst, src, 32, pe)
    dl.barrier(team)
    at = tl.arange(0, 8)
    tl.store(result + at, tl.load(dst + at))
    dl.sync(team)
    dl.sum_reduce(team, dst, src, 8)


with triton_dist.init() as world:
    row, column = world.team_world.split_2d(2)
    x, y, result = triton_dist.zeros(8), triton_dist.full(8, 1.0), torch.empty(8)
    put[(1,)](x, y, row.pes[1 - row.my_pe])
    if not BUG:
        row.barrier()
    read[(1,)](result, x)
    row.barrier()
    put_and_meet[(1,)](x, y, row.pes[1 - row.my_pe], row.handle, result)
    row.barrier()
    triton_dist.broadcast(x, y, team=column)
    column.destroy()
