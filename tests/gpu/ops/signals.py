"""Signals: counted once per program, compared as unsigned 64-bit words, never seen before what they announce."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, random_floats, rounds
from triton_dist import World

BLOCK = 1024


@triton.jit
def who(out):
    tl.store(out, dl.my_pe())
    tl.store(out + 1, dl.n_pes())


@triton.jit
def add_everywhere(counter, amount):
    for pe in range(dl.n_pes()):
        dl.signal_op(counter, amount, dl.SIGNAL_ADD, pe)


@triton.jit
def set_next(word, value):
    dl.signal_op(word, value, dl.SIGNAL_SET, (dl.my_pe() + 1) % dl.n_pes())


@triton.jit
def set_and_wait(word, value, bound, seen, CMP: tl.constexpr):
    dl.signal_op(word, value, dl.SIGNAL_SET, (dl.my_pe() + 1) % dl.n_pes())
    if CMP == 0:
        token = dl.signal_wait_until(word, dl.CMP_EQ, bound)
    elif CMP == 1:
        token = dl.signal_wait_until(word, dl.CMP_NE, bound)
    elif CMP == 2:
        token = dl.signal_wait_until(word, dl.CMP_GT, bound)
    elif CMP == 3:
        token = dl.signal_wait_until(word, dl.CMP_GE, bound)
    elif CMP == 4:
        token = dl.signal_wait_until(word, dl.CMP_LT, bound)
    else:
        token = dl.signal_wait_until(word, dl.CMP_LE, bound)
    tl.store(seen, token)


@triton.jit
def put_with_signal(inbox, outbox, arrived, turn, out, NBI: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    start = block * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    pe = (dl.my_pe() + 1) % dl.n_pes()
    if NBI:
        if ADD:
            dl.putmem_signal_nbi(inbox + start, outbox + start, BLOCK * 4, arrived + block, 1, dl.SIGNAL_ADD, pe)
        else:
            dl.putmem_signal_nbi(inbox + start, outbox + start, BLOCK * 4, arrived + block, turn, dl.SIGNAL_SET, pe)
    else:
        if ADD:
            dl.putmem_signal(inbox + start, outbox + start, BLOCK * 4, arrived + block, 1, dl.SIGNAL_ADD, pe)
        else:
            dl.putmem_signal(inbox + start, outbox + start, BLOCK * 4, arrived + block, turn, dl.SIGNAL_SET, pe)
    token = dl.signal_wait_until(arrived + block, dl.CMP_GE, turn)
    tl.store(out + offsets, tl.load(dl.consume_token(inbox, token) + offsets))


@check
def my_pe_and_n_pes(world: World) -> None:
    out = torch.zeros(2, dtype=torch.int32, device=world.device)
    who[(1,)](out)
    expect_equal(out, torch.tensor([world.pe, world.n_pes], dtype=torch.int32), "my_pe, n_pes")


@check
def signal_add_counts_once_per_program(world: World) -> None:
    for dtype in (torch.int64, torch.uint64):
        for warps in (1, 4, 8):
            programs = rounds(500, 5)
            counter = triton_dist.zeros(1, dtype=torch.int64).view(dtype)
            for _ in range(2):
                add_everywhere[(programs,)](counter, 3, num_warps=warps)
            triton_dist.barrier_all()
            expected = 2 * 3 * programs * world.n_pes
            expect_equal(counter.view(torch.int64), torch.tensor([expected]), f"{programs} programs of {warps} warps")
            triton_dist.free(counter)


@check
def signal_set_keeps_all_64_bits(world: World) -> None:
    for value in (1, -1, (1 << 40) + 3, -(1 << 63), (1 << 63) - 1):
        words = triton_dist.full(3, 5, dtype=torch.int64)
        set_next[(1,)](words[1:], value)
        triton_dist.barrier_all()
        expect_equal(words, torch.tensor([5, value, 5]), f"word set to {value}")
        triton_dist.free(words)


@check
def waits_compare(world: World) -> None:
    cases = [
        # cmp, at first, set to, bound: EQ, NE, GT, GE, LT, LE
        (0, 5, 7, 7),
        (1, 5, 6, 5),
        (2, 5, 9, 8),
        (3, 5, 9, 9),
        (4, 5, 2, 3),
        (5, 5, 3, 3),
        (2, 5, -1, 1 << 62),  # as uint64 the largest
        (4, -1, 5, 6),
    ]
    for warps in (1, 4):
        for cmp, first, value, bound in cases:
            word = triton_dist.full(1, first, dtype=torch.int64)
            seen = torch.zeros(1, dtype=torch.int64, device=world.device)
            set_and_wait[(1,)](word, value, bound, seen, CMP=cmp, num_warps=warps)
            triton_dist.barrier_all()
            expect_equal(seen, torch.tensor([value]), f"value seen with comparison {cmp}, {first} -> {value}")
            triton_dist.free(word)


def _check_put_with_signal(world: World, nbi: bool, add: bool) -> None:
    programs, turns = rounds(64, 4), rounds(50, 3)
    inbox = triton_dist.zeros(programs * BLOCK)
    outbox = triton_dist.zeros(programs * BLOCK)
    arrived = triton_dist.zeros(programs, dtype=torch.int64)
    out = torch.zeros(programs * BLOCK, device=world.device)
    previous = (world.pe - 1) % world.n_pes
    for turn in range(1, turns + 1):
        outbox.copy_(random_floats(programs * BLOCK, seed=turn + 1000 * world.pe))
        triton_dist.barrier_all()
        put_with_signal[(programs,)](inbox, outbox, arrived, turn, out, NBI=nbi, ADD=add, BLOCK=BLOCK)
        expect_equal(out, random_floats(programs * BLOCK, seed=turn + 1000 * previous), f"turn {turn}")
        triton_dist.barrier_all()
    expect_equal(arrived, torch.full((programs,), turns), "signals")
    for tensor in (inbox, outbox, arrived):
        triton_dist.free(tensor)


@check
def putmem_signal_set(world: World) -> None:
    _check_put_with_signal(world, nbi=False, add=False)


@check
def putmem_signal_add(world: World) -> None:
    _check_put_with_signal(world, nbi=False, add=True)


@check
def putmem_signal_nbi_set(world: World) -> None:
    _check_put_with_signal(world, nbi=True, add=False)


@check
def putmem_signal_nbi_add(world: World) -> None:
    _check_put_with_signal(world, nbi=True, add=True)
