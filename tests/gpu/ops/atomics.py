"""Atomics: what each does to an element and returns, exact under contention, and that they order what they say."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.element_types import WORDS, expect_bits, integers, numbers, random_values
from ops.harness import GPU, check, expect_equal, rounds
from triton_dist import World
from triton_dist.compiler import transport
from triton_dist.compiler.hooks import ShmemCompilationError

OLD = 0b1100_0101
# What becomes of an element, in the order of the ops in the kernel below; the fetching ones come first.
OPERATIONS: list[tuple[str, Callable[[int, int], int]]] = [
    ("fetch", lambda old, value: old),
    ("swap", lambda old, value: value),
    ("compare_swap with its condition met", lambda old, value: value),
    ("compare_swap without", lambda old, value: old),
    ("fetch_inc", lambda old, value: old + 1),
    ("fetch_add", lambda old, value: old + value),
    ("fetch_and", lambda old, value: old & value),
    ("fetch_or", lambda old, value: old | value),
    ("fetch_xor", lambda old, value: old ^ value),
    ("set", lambda old, value: value),
    ("inc", lambda old, value: old + 1),
    ("add", lambda old, value: old + value),
    ("and", lambda old, value: old & value),
    ("or", lambda old, value: old | value),
    ("xor", lambda old, value: old ^ value),
]
FETCHING = 9


@triton.jit
def one_of_each(words, fetched, operands):
    """Element ``i`` on the next PE takes operation ``i``."""
    pe = (dl.my_pe() + 1) % dl.n_pes()
    value = tl.load(operands)
    old = tl.load(operands + 1)
    tl.store(fetched + 0, dl.atomic_fetch(words + 0, pe))
    tl.store(fetched + 1, dl.atomic_swap(words + 1, value, pe))
    tl.store(fetched + 2, dl.atomic_compare_swap(words + 2, old, value, pe))
    tl.store(fetched + 3, dl.atomic_compare_swap(words + 3, old + 1, value, pe))
    tl.store(fetched + 4, dl.atomic_fetch_inc(words + 4, pe))
    tl.store(fetched + 5, dl.atomic_fetch_add(words + 5, value, pe))
    tl.store(fetched + 6, dl.atomic_fetch_and(words + 6, value, pe))
    tl.store(fetched + 7, dl.atomic_fetch_or(words + 7, value, pe))
    tl.store(fetched + 8, dl.atomic_fetch_xor(words + 8, value, pe))
    dl.atomic_set(words + 9, value, pe)
    dl.atomic_inc(words + 10, pe)
    dl.atomic_add(words + 11, value, pe)
    dl.atomic_and(words + 12, value, pe)
    dl.atomic_or(words + 13, value, pe)
    dl.atomic_xor(words + 14, value, pe)


@triton.jit
def contend(words, tickets, turns):
    """All programs of all PEs at the elements of PE 0; ``tickets`` holds what each fetch returned."""
    program = tl.program_id(0)
    everyone = dl.n_pes() * tl.num_programs(0)
    who = dl.my_pe() * tl.num_programs(0) + program
    for turn in range(turns):
        dl.atomic_inc(words + 0, 0)
        dl.atomic_add(words + 1, 3, 0)
        tl.store(tickets + program * turns + turn, dl.atomic_fetch_inc(words + 2, 0))
        dl.atomic_fetch_add(words + 3, who, 0)
        dl.atomic_xor(words + 4, 1 << (who % 31), 0)
        dl.atomic_fetch_xor(words + 5, 1 << (who % 31), 0)
        old = dl.atomic_fetch(words + 6, 0)
        while dl.atomic_compare_swap(words + 6, old, old + 1, 0) != old:
            old = dl.atomic_fetch(words + 6, 0)
    dl.atomic_or(words + 7, 1 << (who % 31), 0)
    dl.atomic_and(words + 8, ~(1 << (who % 31)), 0)
    # A chain of swaps: what one leaves another takes, so the sum of all values is kept.
    dl.atomic_fetch_add(words + 9, dl.atomic_swap(words + 10, who + 1, 0), 0)
    tl.store(tickets + tl.num_programs(0) * turns, everyone)


@triton.jit
def every_order(word):
    """Each ``sem`` and each ``scope`` once."""
    pe = (dl.my_pe() + 1) % dl.n_pes()
    dl.atomic_add(word, 1, pe, sem="relaxed")
    dl.atomic_add(word, 1, pe, sem="acquire")
    dl.atomic_add(word, 1, pe, sem="release")
    dl.atomic_add(word, 1, pe, sem="acq_rel")
    dl.atomic_fetch_add(word, 1, pe, sem="relaxed", scope="cta")
    dl.atomic_fetch_add(word, 1, pe, sem="acquire", scope="gpu")
    dl.atomic_fetch_add(word, 1, pe, sem="release", scope="sys")
    dl.atomic_fetch_add(word, 1, pe, scope="cta")
    dl.atomic_fetch_add(word, 1, pe, scope="gpu")
    dl.atomic_inc(word, pe, sem="relaxed", scope="gpu")


@triton.jit
def count_under_a_lock(lock, counters, turns, BLOCK: tl.constexpr):
    """Plain loads and stores of a block on PE 0, by whoever holds the lock there."""
    offsets = tl.arange(0, BLOCK)
    there = dl.symm_at(counters, 0) + offsets
    for _ in range(turns):
        while dl.atomic_compare_swap(lock, 0, 1, 0, sem="acquire") != 0:
            pass
        tl.store(there, tl.load(there) + 1)
        dl.atomic_set(lock, 0, 0, sem="release")


@triton.jit
def floats_one_of_each(words, fetched, operands):
    pe = (dl.my_pe() + 1) % dl.n_pes()
    value = tl.load(operands)
    tl.store(fetched + 0, dl.atomic_fetch(words + 0, pe))
    tl.store(fetched + 1, dl.atomic_swap(words + 1, value, pe))
    dl.atomic_set(words + 2, value, pe)


@triton.jit
def add_floats(words, fetched, turns):
    for turn in range(turns):
        dl.atomic_add(words, 0.5, 0)
        tl.store(fetched + turn, dl.atomic_fetch_add(words + 1, 2.0, 0))


@check
def every_atomic_on_every_type(world: World) -> None:
    for dtype in WORDS:
        for value in (0b1010_0110, -1, -(1 << 31) + 5, (1 << 62) + (1 << 30) + 9):
            words = triton_dist.from_tensor(integers([OLD] * (len(OPERATIONS) + 1), dtype))
            fetched = torch.zeros(FETCHING, dtype=dtype, device=world.device)
            one_of_each[(1,)](words, fetched, integers([value, OLD], dtype).to(world.device))
            triton_dist.barrier_all()
            expect_bits(fetched, integers([OLD] * FETCHING, dtype), f"what was fetched from {dtype}")
            *found, behind = numbers(words)
            assert behind == OLD, "the element behind them was written"
            for (name, after), now in zip(OPERATIONS, found, strict=True):
                expected = numbers(integers([after(OLD, value)], dtype))
                assert [now] == expected, f"atomic {name} of {value} on {dtype}: {now}, expected {expected}"
            triton_dist.free(words)


@check(maps_all=True)
def atomics_under_contention(world: World) -> None:
    programs, turns = rounds(128, 3), rounds(100, 4)
    everyone = world.n_pes * programs
    marks = [1 << (who % 31) for who in range(everyone)]
    parity = 0
    for mark in marks * (turns % 2):
        parity ^= mark
    union = sum(set(marks))
    for dtype in WORDS:
        words = triton_dist.from_tensor(integers([0] * 8 + [(1 << 31) - 1] + [0] * 2, dtype))
        tickets = triton_dist.zeros(programs * turns + 1, dtype=dtype)
        contend[(programs,)](words, tickets, turns)
        triton_dist.barrier_all()
        found = numbers(triton_dist.peer(words, 0))
        turns_of_all = everyone * turns
        assert found[0] == turns_of_all, f"inc of {dtype}: {found[0]}, expected {turns_of_all}"
        assert found[1] == 3 * turns_of_all, f"add to {dtype}: {found[1]}, expected {3 * turns_of_all}"
        assert found[2] == turns_of_all, f"fetch_inc of {dtype}: {found[2]}, expected {turns_of_all}"
        by_number = turns * everyone * (everyone - 1) // 2
        assert found[3] == by_number, f"fetch_add to {dtype}: {found[3]}, expected {by_number}"
        assert found[4:6] == [parity] * 2, f"xor, fetch_xor of {dtype}: {found[4:6]}, expected {parity}"
        assert found[6] == turns_of_all, f"compare_swap of {dtype}: {found[6]}, expected {turns_of_all}"
        assert found[7] == union, f"or into {dtype}: {found[7]}, expected {union}"
        assert found[8] == (1 << 31) - 1 - union, f"and into {dtype}: {found[8]}"
        swapped = everyone * (everyone + 1) // 2
        assert found[9] + found[10] == swapped, f"swap of {dtype}: {found[9]} and {found[10]}, expected {swapped}"
        drawn = sorted(n for pe in range(world.n_pes) for n in numbers(triton_dist.peer(tickets, pe))[:-1])
        assert drawn == list(range(turns_of_all)), f"fetch_inc of {dtype} gave a number twice or not at all"
        triton_dist.barrier_all()
        triton_dist.free(words)
        triton_dist.free(tickets)


@check
def atomics_of_every_order(world: World) -> None:
    word = triton_dist.zeros(1, dtype=torch.int32)
    programs = rounds(100, 3)
    every_order[(programs,)](word)
    triton_dist.barrier_all()
    expect_equal(word, torch.tensor([10 * programs], dtype=torch.int32), "additions")
    triton_dist.free(word)


@check(maps_all=True)
def a_lock_made_of_compare_swap(world: World) -> None:
    programs, turns, block = rounds(8, 2), rounds(200, 3), 128
    for dtype in (torch.int32, torch.int64):
        for warps in (1, 4):
            lock = triton_dist.zeros(1, dtype=dtype)
            counters = triton_dist.zeros(block, dtype=torch.int32)
            count_under_a_lock[(programs,)](lock, counters, turns, BLOCK=block, num_warps=warps)
            triton_dist.barrier_all()
            expected = torch.full((block,), world.n_pes * programs * turns, dtype=torch.int32)
            expect_equal(triton_dist.peer(counters, 0), expected, f"turns with {warps} warps under a lock of {dtype}")
            triton_dist.barrier_all()
            triton_dist.free(lock)
            triton_dist.free(counters)


@check
def atomics_on_floats(world: World) -> None:
    for dtype in (torch.float32, torch.float64):
        old = random_values(4, dtype, 1)
        words = triton_dist.from_tensor(old)
        fetched = torch.zeros(2, dtype=dtype, device=world.device)
        value = random_values(1, dtype, 2)
        floats_one_of_each[(1,)](words, fetched, value.to(world.device))
        triton_dist.barrier_all()
        expect_bits(fetched, old[:2], f"what was fetched from {dtype}")
        expect_bits(words, torch.cat([old[:1], value, value, old[3:]]), f"fetch, swap and set of {dtype}")
        triton_dist.free(words)


@check(maps_all=True)
def additions_to_floats(world: World) -> None:
    programs, turns = rounds(64, 3), rounds(50, 4)
    for dtype in (torch.float32, torch.float64):
        words = triton_dist.zeros(3, dtype=dtype)
        fetched = torch.zeros(turns, dtype=dtype, device=world.device)
        if GPU and transport.current() == "nvshmem":
            _expect_no_float_additions(words, fetched)
        else:
            add_floats[(programs,)](words, fetched, turns)
            triton_dist.barrier_all()
            n = world.n_pes * programs * turns
            expect_equal(triton_dist.peer(words, 0), torch.tensor([0.5 * n, 2.0 * n, 0]).to(dtype), f"sums of {dtype}")
            assert 0 <= fetched.min() <= fetched.max() <= 2 * n - 2, f"fetched {fetched}"
        triton_dist.barrier_all()
        triton_dist.free(words)


def _expect_no_float_additions(words: torch.Tensor, fetched: torch.Tensor) -> None:
    """NVSHMEM has none up to 3.4, and says so when the kernel is compiled."""
    message = ""
    try:
        add_floats[(1,)](words, fetched, 1)
    except ShmemCompilationError as error:
        message = str(error)
    assert "atomic_add" in message and "nvshmem" in message, message or "it was compiled"
