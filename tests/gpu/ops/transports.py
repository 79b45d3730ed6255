"""Device libraries side by side in one run: each kernel gets the state of the one that it was compiled for."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import GPU, check, expect_equal, random_bytes, random_floats
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


@triton.jit(do_not_specialize=["n"])
def store_or_put(target, source, signals, addresses, n, ON_GPU: tl.constexpr):
    """To every PE by what reaches it: program i stores to PE i, or puts."""
    me, pe = dl.my_pe(), tl.program_id(0)
    at = tl.arange(0, 1024)
    if dl.is_reachable(pe):
        there = dl.symm_at(target, pe) + me * n
        for begin in range(0, n, 1024):
            inside = begin + at < n
            tl.store(there + begin + at, tl.load(source + begin + at, mask=inside), mask=inside)
        dl.signal_op(signals + me, 1, dl.SIGNAL_ADD, pe)
    else:
        if ON_GPU:
            tl.store(addresses + pe, dl.symm_at(target, pe).to(tl.int64))
        dl.putmem_signal_nbi(target + me * n, source, n * 4, signals + me, 1, dl.SIGNAL_ADD, pe)
    dl.signal_wait_until(signals + pe, dl.CMP_GE, 1)
    dl.quiet()


@check
def each_pe_by_what_reaches_it(world: World) -> None:
    """Load and store inside hosts and calls of the transport between them, in one kernel."""
    n = 5000 if GPU else 1500
    source = triton_dist.from_tensor(random_floats(n, seed=world.pe).to(world.device))
    target = triton_dist.zeros(world.n_pes * n)
    signals = triton_dist.zeros(world.n_pes, dtype=torch.int64)
    addresses = torch.full((world.n_pes,), -1, dtype=torch.int64, device=world.device)
    for name in world.transports if GPU else ("cpu",):
        target.zero_()
        signals.zero_()
        addresses.zero_()
        triton_dist.barrier_all()
        with transport.using(name) if GPU else nullcontext():
            store_or_put[(world.n_pes,)](target, source, signals, addresses, n, GPU)
        triton_dist.barrier_all()
        expected = torch.cat([random_floats(n, seed=pe) for pe in range(world.n_pes)])
        expect_equal(target, expected, f"by {name}")
        expect_equal(addresses, torch.zeros(world.n_pes, dtype=torch.int64), f"addresses of far PEs by {name}")
    for tensor in (source, target, signals):
        triton_dist.free(tensor)
