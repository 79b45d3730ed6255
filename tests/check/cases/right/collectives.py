"""Collectives and operations of the host, and memory that is freed between them."""

from __future__ import annotations

import triton
from harness import case, out
from right.common import pair, use

import triton_dist
import triton_dist.language as dl


@triton.jit
def collectives(x, y, z, result):
    for _ in range(2):
        dl.fcollect(dl.TEAM_WORLD, x, y, 8)
        dl.sum_reduce(dl.TEAM_WORLD, y, y, 8)
        dl.fcollect(dl.TEAM_WORLD, z, z + dl.my_pe() * 8, 8)
        dl.broadcast(dl.TEAM_WORLD, y, y, 8, 1)
        use(result, x)
        dl.barrier_all()


@case()
def collectives_in_turn(world, bug):
    collectives[(1,)](triton_dist.zeros(16), triton_dist.zeros(16), triton_dist.zeros(16), out())


@triton.jit
def to_all(x, n):
    for pe in range(dl.n_pes()):
        dl.putmem(x + dl.my_pe() * 16, x + dl.my_pe() * 16, 64, pe)
    dl.barrier_all()


@case()
def in_place_all_gather(world, bug):
    to_all[(1,)](triton_dist.zeros(32), 2)


@case()
def freed_and_taken_again(world, bug):
    for _ in range(3):
        x, y = pair()
        put_only[(1,)](x, y)
        triton_dist.barrier_all()
        x.sum()
        triton_dist.free(x)
        triton_dist.free(y)


@triton.jit
def put_only(x, y):
    dl.putmem_nbi(x, y, 64, 1 - dl.my_pe())


@case()
def host_operations(world, bug):
    x, y = pair()
    other = 1 - world.pe
    for _ in range(2):
        triton_dist.put(x, y, other)
        triton_dist.barrier()
        y.copy_(x)
        triton_dist.barrier()
        triton_dist.get(x, y, other)
        triton_dist.barrier()
        triton_dist.reduce(x, y, "sum")
        triton_dist.barrier()
