"""Device libraries side by side in one run: each kernel gets the state of the one that it was compiled for."""

from __future__ import annotations

import torch
import triton

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, random_bytes
from triton_dist import World, environment
from triton_dist.compiler import transport


@triton.jit(do_not_specialize=["nbytes", "round_"])
def ring(dst, src, nbytes, signal, total, round_):
    following = (dl.my_pe() + 1) % dl.n_pes()
    dl.putmem_signal(dst, src, nbytes, signal, 1, dl.SIGNAL_ADD, following)
    dl.signal_wait_until(signal, dl.CMP_GE, round_)
    dl.barrier_all()
    dl.sum_reduce(dl.TEAM_WORLD, total, total, 64)


@check(gpu_only=True)
def each_transport_in_turn(world: World) -> None:
    nbytes = 100_003
    source = triton_dist.from_tensor(random_bytes(nbytes, world.pe))
    target = triton_dist.zeros(nbytes, dtype=torch.uint8)
    signal = triton_dist.zeros(1, dtype=torch.int64)
    total = triton_dist.zeros(64, dtype=torch.int32)
    assert world.transport in world.transports
    shared = environment.get("TRITON_DIST_ALLOW_SHARED_GPU")
    assert shared or "nvshmem" in world.transports
    for round_, name in enumerate(world.transports * 3, 1):
        target.zero_()
        total.fill_(world.pe + round_)
        triton_dist.barrier_all()
        with transport.using(name):
            ring[(1,)](target, source, nbytes, signal, total, round_)
        triton_dist.barrier_all()
        expect_equal(target, random_bytes(nbytes, (world.pe - 1) % world.n_pes), f"put by {name}")
        expected = sum(pe + round_ for pe in range(world.n_pes))
        expect_equal(total, torch.full((64,), expected, dtype=torch.int32), f"sum by {name}")
    for tensor in (source, target, signal, total):
        triton_dist.free(tensor)
