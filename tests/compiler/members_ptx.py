"""Compile a barrier of all PEs, whose number is a constant, for an H200: with members of a group, and as if there were
no groups. Prints both kernels' PTX as JSON. Started by test_kernels_code.py; why, and ``ptx_of``: kernels_ptx.py."""

from __future__ import annotations

import json

import triton
import triton.language as tl
from kernels_ptx import ptx_of

import triton_dist.language as dl
from triton_dist.compiler import transport
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank


@triton.jit
def of_members(ptr, MEMBERS: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    for i in tl.static_range(1, N_PES):
        tl.store(at_rank(ptr + me, (me + i) % N_PES, MEMBERS), me)


@triton.jit
def of_all(ptr, N_PES: tl.constexpr):
    me = dl.my_pe()
    for i in tl.static_range(1, N_PES):
        tl.store(dl.symm_at(ptr + me, (me + i) % N_PES), me)


if __name__ == "__main__":
    with transport.using("p2p"):
        found = {
            "members of the world": ptx_of(of_members, {"ptr": "*i32", "MEMBERS": (0, 1, 4)}, 4),
            "all": ptx_of(of_all, {"ptr": "*i32", "N_PES": 4}, 4),
            "every other PE": ptx_of(of_members, {"ptr": "*i32", "MEMBERS": (1, 2, 4)}, 4),
        }
        print(json.dumps(found))
