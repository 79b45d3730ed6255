"""A flag that a plain store raises, with the data before it in the same launch: nothing says which arrives first."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BUG = sys.argv[1] == "bug"


@triton.jit
def send(data, flag, DATA: tl.constexpr, FLAG: tl.constexpr):
    if DATA:
        tl.store(dl.symm_at(data, 1) + tl.arange(0, 16), 1.0)  # one
    if FLAG:
        tl.store(dl.symm_at(flag, 1), 1)


@triton.jit
def wait(flag):
    while tl.load(flag, volatile=True) == 0:
        pass


@triton.jit
def copy(data, result):
    at = tl.arange(0, 16)
    tl.store(result + at, tl.load(data + at))  # other


with triton_dist.init() as world:
    data, flag, result = triton_dist.zeros(16), triton_dist.zeros(1, dtype=torch.int32), torch.empty(16)
    if world.pe == 1:
        wait[(1,)](flag)
        copy[(1,)](data, result)
    elif BUG:
        send[(1,)](data, flag, True, True)
    else:  # between two launches is a fence
        send[(1,)](data, flag, True, False)
        send[(1,)](data, flag, False, True)
