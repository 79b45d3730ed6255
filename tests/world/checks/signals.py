"""Signals: exact counts, the data before its signal, comparisons of unsigned words."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from harness import by_load_and_store, main, on_pe

import triton_dist
import triton_dist.language as dl


@triton.jit
def add_many(signal, word, times, expected):
    """Every program of every PE adds to PE 0's signal, and atomically to a word of its own kind."""
    there = dl.symm_at(word, 0)
    for _ in range(times):
        dl.signal_op(signal, 3, dl.SIGNAL_ADD, 0)
        tl.atomic_add(there, 1)
    if dl.my_pe() == 0:
        dl.signal_wait_until(signal, dl.CMP_GE, expected)


@by_load_and_store
def check_adds_of_all_count(world: Any) -> None:
    programs, times = 4, 250
    total = programs * times * world.n_pes
    signal, word = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1, dtype=torch.int32)
    add_many[(programs,)](signal, word, times, 3 * total)
    triton_dist.barrier_all()
    assert on_pe(signal, 0).item() == 3 * total
    assert on_pe(word, 0).item() == total


@triton.jit
def add_in_blocks(words, floats, times, N: tl.constexpr):
    """All lanes at one address."""
    same = tl.zeros((N,), dtype=tl.int32)
    for _ in range(times):
        tl.atomic_add(dl.symm_at(words, 0) + same, same + 1)
        tl.atomic_add(dl.symm_at(floats, 0) + same, same.to(tl.float32) + 1)


@by_load_and_store
def check_atomics_of_blocks_count(world: Any) -> None:
    """Triton's own atomics act on memory that other processes change at the same time: 10^4 adds by each PE."""
    words, floats = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1)
    add_in_blocks[(1,)](words, floats, 10, 1024)
    triton_dist.barrier_all()
    if world.pe == 0:
        assert words.item() == floats.item() == world.n_pes * 10240


@triton.jit
def ping_pong(data, signal, out, wrong, rounds, N: tl.constexpr):
    """PE k sends round i to PE k+1 after having it from PE k-1; whoever sees the signal must see all of the data."""
    me = dl.my_pe()
    to = (me + 1) % dl.n_pes()
    at = tl.arange(0, N)
    for i in range(1, rounds + 1):
        if me == 0:
            tl.store(out + at, i + at)
        else:
            dl.signal_wait_until(signal, dl.CMP_GE, i)
            tl.store(out + at, tl.load(data + at) + 1)
        dl.putmem_signal(data, out, N * 4, signal, i, dl.SIGNAL_SET, to)
        if me == 0:
            dl.signal_wait_until(signal, dl.CMP_EQ, i)
            different = tl.load(data + at) != i + at + dl.n_pes() - 1
            tl.store(wrong, tl.load(wrong) + tl.sum(different.to(tl.int32), axis=0))


def check_data_comes_before_its_signal(world: Any) -> None:
    data, signal = triton_dist.zeros(1024, dtype=torch.int32), triton_dist.zeros(1, dtype=torch.int64)
    wrong = torch.zeros(1, dtype=torch.int32)
    ping_pong[(1,)](data, signal, torch.zeros(1024, dtype=torch.int32), wrong, 100, 1024)
    assert signal.item() == 100 and wrong.item() == 0


@triton.jit
def wait_for(signal, out, value, CMP: tl.constexpr):
    tl.store(out, dl.signal_wait_until(signal, CMP, value))


def check_comparisons(world: Any) -> None:
    """Each holds where it should. (That it does not hold elsewhere is what the kernel that waits in vain shows.)"""
    signal, out = triton_dist.full((1,), 5, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for cmp, values in (
        (dl.CMP_EQ, [5]),
        (dl.CMP_NE, [4, 6, -5]),
        (dl.CMP_GT, [4, 0]),
        (dl.CMP_GE, [5, 4]),
        (dl.CMP_LT, [6, -1]),  # -1 is the largest unsigned word
        (dl.CMP_LE, [5, -1]),
    ):
        for value in values:
            out.zero_()
            wait_for[(1,)](signal, out, value, cmp)
            assert out.item() == 5


def check_words_are_unsigned_and_whole(world: Any) -> None:
    for dtype in (torch.int64, torch.uint64):
        signal = triton_dist.zeros(1, dtype=torch.int64).view(dtype)
        out = torch.zeros(1, dtype=torch.int64).view(dtype)
        signal_self[(1,)](signal, -2)
        wait_for[(1,)](signal, out, 1 << 62, dl.CMP_GT)
        assert out.view(torch.int64).item() == -2


@triton.jit
def signal_self(signal, value):
    dl.signal_op(signal, value, dl.SIGNAL_SET, dl.my_pe())


@triton.jit
def queue(slots, filled, emptied, out, n_items, DEPTH: tl.constexpr):
    """PE 0's program 0 produces into a bounded queue on the last PE, whose program 1 consumes."""
    last = dl.n_pes() - 1
    if tl.program_id(0) == 0 and dl.my_pe() == 0:
        for i in range(n_items):
            if i >= DEPTH:
                dl.signal_wait_until(emptied, dl.CMP_GE, i - DEPTH + 1)
            tl.store(dl.symm_at(slots, last) + i % DEPTH, i * i)
            dl.signal_op(filled, 1, dl.SIGNAL_ADD, last)
    if tl.program_id(0) == 1 and dl.my_pe() == last:
        for i in range(n_items):
            token = dl.signal_wait_until(filled, dl.CMP_GE, i + 1)
            tl.store(out + i, tl.load(dl.consume_token(slots, token) + i % DEPTH))
            dl.signal_op(emptied, 1, dl.SIGNAL_ADD, 0)


@by_load_and_store
def check_bounded_queue(world: Any) -> None:
    slots = triton_dist.zeros(4, dtype=torch.int64)
    filled, emptied = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1, dtype=torch.int64)
    out = torch.zeros(200, dtype=torch.int64)
    queue[(2,)](slots, filled, emptied, out, 200, 4)
    if world.pe == world.n_pes - 1:
        assert out.tolist() == [i * i for i in range(200)]


if __name__ == "__main__":
    main(globals())
