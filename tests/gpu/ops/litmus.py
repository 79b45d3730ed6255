"""Litmus tests: small races, very often, whose outcome the promised orderings forbid.

Sequential consistency is not promised, so only what release and acquire, ``fence``, ``quiet`` and barriers forbid is
counted as wrong.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.harness import check, expect_equal, rounds
from triton_dist import World

ROUNDS = rounds(100_000, 10)
LANES = rounds(8, 2)
BLOCK = 32
STORE_SIGNAL, STORE_ATOMIC, PUT_FENCE_SIGNAL, PUT_SIGNAL, P_FENCE_SIGNAL, ATOMICS = range(6)


@triton.jit
def pass_messages(boxes, drafts, sent, taken, wrong, n_rounds, HOW: tl.constexpr, BLOCK: tl.constexpr):
    """Message passing in many lanes: even programs write and then say so, odd ones see it said and then read.

    No reader may find data of an earlier round than the one it was told of.
    """
    lane = tl.program_id(0) // 2
    me = dl.my_pe()
    n_pes = dl.n_pes()
    box = boxes + lane * BLOCK
    draft = drafts + lane * BLOCK
    flag = sent + lane
    thanks = taken + lane
    offsets = tl.arange(0, BLOCK)
    if tl.program_id(0) % 2 == 0:
        to = (me + 1) % n_pes
        for i in range(1, n_rounds + 1):
            if HOW == 0:
                tl.store(dl.symm_at(box, to) + offsets, i + offsets)
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            elif HOW == 1:
                tl.store(dl.symm_at(box, to) + offsets, i + offsets)
                dl.atomic_set(flag, i, to, sem="release")
            elif HOW == 2:
                tl.store(draft + offsets, i + offsets)
                dl.putmem(box, draft, BLOCK * 4, to)
                dl.fence()
                dl.signal_op(flag, 1, dl.SIGNAL_ADD, to)
            elif HOW == 3:
                tl.store(draft + offsets, i + offsets)
                dl.putmem_signal(box, draft, BLOCK * 4, flag, i, dl.SIGNAL_SET, to)
            elif HOW == 4:
                dl.p(box, i, to)
                dl.fence()
                dl.signal_op(flag, i, dl.SIGNAL_SET, to)
            else:
                dl.atomic_set(box, i, to, sem="relaxed")
                dl.atomic_add(flag, 1, to, sem="release")
            dl.signal_wait_until(thanks, dl.CMP_GE, i)
    else:
        back = (me + n_pes - 1) % n_pes
        errors = 0
        for i in range(1, n_rounds + 1):
            if HOW == 1:
                while dl.atomic_fetch(flag, me, sem="acquire") < i:
                    pass
            else:
                dl.signal_wait_until(flag, dl.CMP_GE, i)
            if HOW == 4:
                errors += (tl.load(box) != i).to(tl.int32)
            elif HOW == 5:
                errors += (dl.atomic_fetch(box, me, sem="relaxed") != i).to(tl.int32)
            else:
                errors += tl.sum((tl.load(box + offsets) != i + offsets).to(tl.int32))
            dl.signal_op(thanks, i, dl.SIGNAL_SET, back)
        tl.store(wrong + lane, errors)


@triton.jit
def buffer_stores(inbox, seen, n_rounds, HOW: tl.constexpr):
    """Store buffering between PEs 2k and 2k + 1: each writes the other's word, completes that, and reads its own.

    Whoever completes first, the other one's read comes later: not both may miss what was written.
    """
    me = dl.my_pe()
    other = me ^ 1
    if other >= dl.n_pes():
        other = me
    for i in range(1, n_rounds + 1):
        dl.sync_all()
        if HOW == 0:
            dl.p(inbox, i, other)
        elif HOW == 1:
            tl.store(dl.symm_at(inbox, other), i)
        else:
            dl.atomic_set(inbox, i, other, sem="relaxed")
        dl.quiet()
        tl.store(seen + i - 1, dl.atomic_fetch(inbox, me) == i)
    dl.sync_all()


@triton.jit
def write_read_after_barrier(inbox, wrong, n_rounds):
    """The same with a barrier in between: none may miss it."""
    me = dl.my_pe()
    n_pes = dl.n_pes()
    errors = 0
    for i in range(1, n_rounds + 1):
        tl.store(dl.symm_at(inbox, (me + 1) % n_pes), i)
        dl.barrier_all()
        errors += (tl.load(inbox) != i).to(tl.int32)
        dl.sync_all()
    tl.store(wrong, errors)


@triton.jit
def add_signals(counter, n_rounds):
    for _ in range(n_rounds):
        dl.signal_op(counter, 1, dl.SIGNAL_ADD, 0)


@triton.jit
def watch_signals(counter, wrong, n_rounds):
    """Program 0 of PE 0 watches what all other programs add: the count it sees never falls, and stops at their sum."""
    watcher = (dl.my_pe() == 0) & (tl.program_id(0) == 0)
    expected = (dl.n_pes() * tl.num_programs(0) - 1) * n_rounds
    if watcher:
        errors = 0
        last = dl.signal_fetch(counter)
        while last < expected:
            now = dl.signal_fetch(counter)
            errors += (now < last).to(tl.int32)
            last = now
        errors += (last != expected).to(tl.int32)
        tl.store(wrong, errors)
    else:
        for _ in range(n_rounds):
            dl.signal_op(counter, 1, dl.SIGNAL_ADD, 0)


def _check_messages(world: World, how: int) -> None:
    boxes, drafts = (triton_dist.zeros(LANES * BLOCK, dtype=torch.int32) for _ in range(2))
    sent, taken = (triton_dist.zeros(LANES, dtype=torch.int64) for _ in range(2))
    wrong = torch.full((LANES,), -1, dtype=torch.int32, device=world.device)
    pass_messages[(2 * LANES,)](boxes, drafts, sent, taken, wrong, ROUNDS, HOW=how, BLOCK=BLOCK, num_warps=1)
    triton_dist.barrier_all()
    expect_equal(wrong, torch.zeros(LANES, dtype=torch.int32), f"stale elements in {ROUNDS} rounds, by lane")
    for tensor in (boxes, drafts, sent, taken):
        triton_dist.free(tensor)


@check(maps_all=True)
def message_passing_by_stores_and_signal(world: World) -> None:
    _check_messages(world, STORE_SIGNAL)


@check(maps_all=True)
def message_passing_by_stores_and_atomics(world: World) -> None:
    _check_messages(world, STORE_ATOMIC)


@check
def message_passing_by_put_fence_signal(world: World) -> None:
    _check_messages(world, PUT_FENCE_SIGNAL)


@check
def message_passing_by_putmem_signal(world: World) -> None:
    _check_messages(world, PUT_SIGNAL)


@check
def message_passing_by_p_fence_signal(world: World) -> None:
    _check_messages(world, P_FENCE_SIGNAL)


@check
def message_passing_by_atomics_only(world: World) -> None:
    _check_messages(world, ATOMICS)


@check(maps_all=True)
def store_buffering_across_quiet(world: World) -> None:
    for how, name in enumerate(("p", "a store through symm_at", "atomic_set")):
        inbox = triton_dist.zeros(1, dtype=torch.int32)
        seen = triton_dist.zeros(ROUNDS, dtype=torch.int32)
        buffer_stores[(1,)](inbox, seen, ROUNDS, HOW=how, num_warps=1)
        triton_dist.barrier_all()
        other = world.pe ^ 1 if world.pe ^ 1 < world.n_pes else world.pe
        missed = (seen.cpu() == 0) & (triton_dist.peer(seen, other).cpu() == 0)
        assert not missed.any(), f"{name}: both missed the other's write in {int(missed.sum())} of {ROUNDS} rounds"
        triton_dist.barrier_all()
        triton_dist.free(inbox)
        triton_dist.free(seen)


@check(maps_all=True)
def store_buffering_across_barrier(world: World) -> None:
    inbox = triton_dist.zeros(1, dtype=torch.int32)
    wrong = torch.full((1,), -1, dtype=torch.int32, device=world.device)
    write_read_after_barrier[(1,)](inbox, wrong, ROUNDS, num_warps=1)
    triton_dist.barrier_all()
    expect_equal(wrong, torch.zeros(1, dtype=torch.int32), f"rounds of {ROUNDS} in which a write was missed")
    triton_dist.free(inbox)


@check(maps_all=True)
def signals_added_by_everyone(world: World) -> None:
    programs = rounds(100, 3)
    turns = ROUNDS // programs
    for warps in (1, 4):
        counter = triton_dist.zeros(2, dtype=torch.int64)
        add_signals[(programs,)](counter, turns, num_warps=warps)
        triton_dist.barrier_all()
        expected = torch.tensor([world.n_pes * programs * turns, 0])
        expect_equal(triton_dist.peer(counter, 0), expected, f"signals added with {warps} warps")
        triton_dist.barrier_all()
        triton_dist.free(counter)


@check
def a_watched_signal_never_falls(world: World) -> None:
    programs = rounds(100, 3)
    counter = triton_dist.zeros(1, dtype=torch.int64)
    wrong = torch.zeros(1, dtype=torch.int32, device=world.device)
    watch_signals[(programs,)](counter, wrong, ROUNDS // programs, num_warps=1)
    triton_dist.barrier_all()
    expect_equal(wrong, torch.zeros(1, dtype=torch.int32), "times that the count fell, or was not the sum")
    triton_dist.free(counter)
