"""Kernels with and without shmem ops in one process; autotuning; CUDA graphs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, random_floats, rounds
from triton_dist import World
from triton_dist.compiler import transport


@triton.jit
def plus_one(x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) + 1)


@triton.jit
def put_next(dst, src, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    dl.putmem(dst + start, src + start, BLOCK * 4, (dl.my_pe() + 1) % dl.n_pes())


@triton.jit
def put_next_and_count(dst, src, counter, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    to = (dl.my_pe() + 1) % dl.n_pes()
    dl.putmem_signal(dst + start, src + start, BLOCK * 4, counter, 1, dl.SIGNAL_ADD, to)


@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
@triton.jit
def tuned_put(dst, src, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    to = (dl.my_pe() + 1) % dl.n_pes()
    dl.putmem(dst + start, src + start, BLOCK * 4, to)
    tl.store(dl.symm_at(dst, to) + n + offsets, tl.load(src + offsets))


@check
def plain_kernels_beside_shmem_kernels(world: World) -> None:
    block, programs = 256, rounds(16, 2)
    n = block * programs
    source = triton_dist.from_tensor(random_floats(n, seed=world.pe))
    target = triton_dist.zeros(n)
    expected = random_floats(n, seed=(world.pe - 1) % world.n_pes)
    for turn in range(1, 4):
        plus_one[(programs,)](source, BLOCK=block)
        put_next[(programs,)](target, source, BLOCK=block)
        triton_dist.barrier_all()
        expected = expected + 1
        expect_equal(target, expected, f"turn {turn}")
        triton_dist.barrier_all()
    triton_dist.free(source)
    triton_dist.free(target)


@check(gpu_only=True)
def only_shmem_kernels_carry_the_library(world: World) -> None:
    x = torch.zeros(256, device=world.device)
    target = triton_dist.zeros(256)
    plain = plus_one[(1,)](x, BLOCK=256)
    shmem = put_next[(1,)](target, target, BLOCK=256)
    triton_dist.barrier_all()
    state = {"nvshmem": "nvshmemi_device_state_d", "p2p": "triton_dist_p2p_state"}[transport.current()]
    assert state not in plain.asm["ptx"], "a kernel without shmem ops was linked with a device library"
    assert state in shmem.asm["ptx"], "a kernel with shmem ops was not linked with the device library"
    triton_dist.free(target)


@check(gpu_only=True)
def autotuned_kernels(world: World) -> None:
    n = 1 << 16
    source = triton_dist.from_tensor(random_floats(n, seed=world.pe))
    target = triton_dist.zeros(2 * n)
    tuned_put[lambda meta: (n // meta["BLOCK"],)](target, source, n)
    triton_dist.barrier_all()
    expected = random_floats(n, seed=(world.pe - 1) % world.n_pes)
    expect_equal(target, torch.cat([expected, expected]), f"put by {tuned_put.best_config}")
    assert len(tuned_put.cache) == 1, "the two configurations were not tried"
    triton_dist.free(source)
    triton_dist.free(target)


@check(gpu_only=True)
def cuda_graph_replays(world: World) -> None:
    block, programs, replays = 512, 8, 5
    n = block * programs
    source = triton_dist.from_tensor(random_floats(n, seed=world.pe))
    target = triton_dist.zeros(n)
    counter = triton_dist.zeros(1, dtype=torch.int64)

    def step() -> None:
        plus_one[(programs,)](source, BLOCK=block)
        put_next_and_count[(programs,)](target, source, counter, BLOCK=block)

    step()  # loads the modules, which a capture must not do
    triton_dist.barrier_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(replays):
        graph.replay()
    triton_dist.barrier_all()
    expected = random_floats(n, seed=(world.pe - 1) % world.n_pes)
    for _ in range(1 + replays):
        expected = expected + 1
    expect_equal(target, expected, f"data after {replays} replays")
    expect_equal(counter, torch.tensor([programs * (1 + replays)]), "signals counted")
    for tensor in (source, target, counter):
        triton_dist.free(tensor)


@check(gpu_only=True)
def kernels_on_two_streams(world: World) -> None:
    n = 1 << 20
    sources = [triton_dist.from_tensor(random_floats(n, seed=world.pe + 50 * i)) for i in range(2)]
    targets = [triton_dist.zeros(n) for _ in range(2)]
    for source, target in zip(sources, targets, strict=True):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                put_next[(n // 1024,)](target, source, BLOCK=1024)
    triton_dist.barrier_all()
    for i, target in enumerate(targets):
        expect_equal(target, random_floats(n, seed=(world.pe - 1) % world.n_pes + 50 * i), f"stream {i}")
    for tensor in (*sources, *targets):
        triton_dist.free(tensor)
