"""symm_at: loads, stores and atomics straight into a peer's memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, random_floats, rounds
from triton_dist import World


@triton.jit
def store_to_all(table, mine, BLOCK: tl.constexpr):
    me = dl.my_pe()
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(mine + offsets)
    width = tl.num_programs(0) * BLOCK
    for i in range(dl.n_pes()):
        there = dl.symm_at(table, (me + i) % dl.n_pes())
        tl.store(there + me * width + offsets, values)


@triton.jit
def load_from_all(out, mine, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    width = tl.num_programs(0) * BLOCK
    for pe in range(dl.n_pes()):
        tl.store(out + pe * width + offsets, tl.load(dl.symm_at(mine, pe) + offsets))


@triton.jit
def add_to_all(integers, floats, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for pe in range(dl.n_pes()):
        tl.atomic_add(dl.symm_at(integers, pe) + offsets, offsets + 1, scope="sys")
        tl.atomic_add(dl.symm_at(floats, pe) + offsets, (offsets + 1).to(tl.float32), scope="sys")


@triton.jit
def addresses(out, pointer):
    for pe in range(dl.n_pes()):
        tl.store(out + pe, dl.symm_at(pointer, pe).to(tl.int64))


@check(maps_all=True)
def symm_at_store(world: World) -> None:
    programs, block = rounds(32, 3), 256
    n = programs * block
    mine = random_floats(n, seed=world.pe).to(world.device)
    table = triton_dist.zeros(world.n_pes, n)
    store_to_all[(programs,)](table, mine, BLOCK=block)
    triton_dist.barrier_all()
    expect_equal(table, torch.stack([random_floats(n, seed=pe) for pe in range(world.n_pes)]), "rows from all PEs")
    triton_dist.free(table)


@check(maps_all=True)
def symm_at_load(world: World) -> None:
    programs, block = rounds(32, 3), 256
    n = programs * block
    mine = triton_dist.from_tensor(random_floats(n, seed=world.pe))
    out = torch.zeros(world.n_pes, n, device=world.device)
    load_from_all[(programs,)](out, mine, BLOCK=block)
    expect_equal(out, torch.stack([random_floats(n, seed=pe) for pe in range(world.n_pes)]), "rows of all PEs")
    triton_dist.barrier_all()
    triton_dist.free(mine)


@check(maps_all=True)
def symm_at_atomic_add(world: World) -> None:
    programs, block = rounds(100, 4), 64
    integers = triton_dist.zeros(block, dtype=torch.int32)
    floats = triton_dist.zeros(block)
    add_to_all[(programs,)](integers, floats, BLOCK=block)
    triton_dist.barrier_all()
    expected = programs * world.n_pes * torch.arange(1, block + 1)
    expect_equal(integers, expected.int(), "int32 sums")
    expect_equal(floats, expected.float(), "float32 sums")
    triton_dist.free(integers)
    triton_dist.free(floats)


@check(maps_all=True)
def symm_at_agrees_with_peer(world: World) -> None:
    tensor = triton_dist.zeros(40)
    out = torch.zeros(world.n_pes, dtype=torch.int64, device=world.device)
    addresses[(1,)](out, tensor[8:])
    triton_dist.barrier_all()
    views = [triton_dist.peer(tensor[8:], pe).data_ptr() for pe in range(world.n_pes)]
    expect_equal(out, torch.tensor(views), "addresses in a kernel, against the host's views")
    triton_dist.free(tensor)
