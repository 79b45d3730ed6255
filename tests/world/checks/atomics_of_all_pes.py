"""Atomic operations of all PEs on one element: none is lost."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from harness import on_pe

import triton_dist
import triton_dist.language as dl


@triton.jit
def count_together(words, floats, tickets, times):
    for i in range(times):
        ticket = dl.atomic_fetch_inc(words, 0)
        tl.store(tickets + tl.program_id(0) * times + i, ticket)
        dl.atomic_add(words + 1, 3, 0)
        dl.atomic_inc(words + 2, 0, sem="relaxed")
        dl.atomic_fetch_add(words + 3, -1, 0)
        dl.atomic_add(floats, 0.5, 0)


def check_counts_are_exact(world: Any) -> None:
    programs, times = 3, 100
    total = programs * times * world.n_pes
    for dtype, kind in ((torch.int32, torch.float32), (torch.uint64, torch.float64)):
        words, floats = triton_dist.zeros(4, dtype=dtype), triton_dist.zeros(1, dtype=kind)
        tickets = triton_dist.zeros(programs * times, dtype=torch.int64)
        count_together[(programs,)](words, floats, tickets, times)
        triton_dist.barrier_all()
        if world.pe == 0:
            assert words.tolist() == [total, 3 * total, total, -total % (1 << 64) if dtype == torch.uint64 else -total]
            assert floats.item() == total / 2
            drawn = torch.cat([on_pe(tickets, pe) for pe in range(world.n_pes)])
            assert sorted(drawn.tolist()) == list(range(total)), "each ticket is drawn once"
        triton_dist.barrier_all()


@triton.jit
def own_bits(words, times):
    mine = 1 << dl.my_pe()
    for i in range(times):
        dl.atomic_or(words, mine, 0)
        dl.atomic_and(words + 1, -1 - mine, 0)
        dl.atomic_xor(words + 2, mine, 0)
        seen = dl.atomic_fetch_xor(words + 3, mine, 0)
        tl.device_assert((seen & mine) == (i % 2) * mine, "another PE changed my bit")


def check_bits_of_all_pes(world: Any) -> None:
    words = triton_dist.zeros(4, dtype=torch.int64)
    words[1] = -1
    triton_dist.barrier_all()
    own_bits[(1,)](words, 101)
    triton_dist.barrier_all()
    every = (1 << world.n_pes) - 1
    if world.pe == 0:
        assert words.tolist() == [every, ~every, every, every]


@triton.jit
def swap_many(word, got, times):
    for i in range(times):
        tl.store(got + i, dl.atomic_swap(word, dl.my_pe() * times + i + 1, 0))


def check_swaps_lose_nothing(world: Any) -> None:
    times = 200
    word, got = triton_dist.zeros(1, dtype=torch.int32), triton_dist.zeros(times, dtype=torch.int32)
    swap_many[(1,)](word, got, times)
    triton_dist.barrier_all()
    if world.pe == 0:
        everything = torch.cat([word, *(on_pe(got, pe) for pe in range(world.n_pes))])
        assert sorted(everything.tolist()) == list(range(world.n_pes * times + 1))
    triton_dist.barrier_all()


@triton.jit
def count_under_a_lock(lock, counter, times, SWAP: tl.constexpr):
    for _ in range(times):
        if SWAP:
            while dl.atomic_swap(lock, 1, 0) == 1:
                pass
        else:
            while dl.atomic_compare_swap(lock, 0, 1, 0) == 1:
                pass
        dl.p(counter, dl.g(counter, 0) + 1, 0)
        dl.quiet()
        dl.atomic_set(lock, 0, 0)


def check_locks(world: Any) -> None:
    """Several programs of each PE, so that one which spins must let the lock's holder go on."""
    for swap in (False, True):
        lock, counter = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1, dtype=torch.int32)
        count_under_a_lock[(3,)](lock, counter, 20, swap)
        triton_dist.barrier_all()
        assert on_pe(counter, 0).item() == 60 * world.n_pes
