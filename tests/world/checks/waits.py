"""Waiting for elements and testing them: comparisons, choice of elements, arrival in any order, programs that spin."""

from __future__ import annotations

import operator
from typing import Any

import torch
import triton
import triton.language as tl
from harness import main, together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl

SIGNED = (torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
COMPARISONS = {
    dl.CMP_EQ: operator.eq,
    dl.CMP_NE: operator.ne,
    dl.CMP_GT: operator.gt,
    dl.CMP_GE: operator.ge,
    dl.CMP_LT: operator.lt,
    dl.CMP_LE: operator.le,
}


# ---- what is accepted, against Python's numbers


@triton.jit
def test_one(ivar, value, out, CMP: tl.constexpr):
    tl.store(out, dl.test(ivar, CMP, tl.load(value)))


@triton.jit
def test_many(ivars, n, status, value, out, indices, CMP: tl.constexpr, VECTOR: tl.constexpr):
    if VECTOR:
        tl.store(out, dl.test_all_vector(ivars, n, status, CMP, value))
        tl.store(out + 1, dl.test_any_vector(ivars, n, status, CMP, value))
        tl.store(out + 2, dl.test_some_vector(ivars, n, indices, status, CMP, value))
    else:
        tl.store(out, dl.test_all(ivars, n, status, CMP, tl.load(value)))
        tl.store(out + 1, dl.test_any(ivars, n, status, CMP, tl.load(value)))
        tl.store(out + 2, dl.test_some(ivars, n, indices, status, CMP, tl.load(value)))


@triton.jit
def wait_many(ivars, n, status, value, out, indices, CMP: tl.constexpr, VECTOR: tl.constexpr):
    if VECTOR:
        tl.store(out + 1, dl.wait_until_any_vector(ivars, n, status, CMP, value))
        tl.store(out + 2, dl.wait_until_some_vector(ivars, n, indices, status, CMP, value))
    else:
        tl.store(out + 1, dl.wait_until_any(ivars, n, status, CMP, tl.load(value)))
        tl.store(out + 2, dl.wait_until_some(ivars, n, indices, status, CMP, tl.load(value)))


@triton.jit
def wait_all(ivars, n, status, value, CMP: tl.constexpr, VECTOR: tl.constexpr):
    if VECTOR:
        dl.wait_until_all_vector(ivars, n, status, CMP, value)
    else:
        dl.wait_until_all(ivars, n, status, CMP, tl.load(value))


@st.composite
def watched(draw: st.DrawFn) -> tuple[torch.dtype, list[int], list[int], list[int] | None]:
    """A type, elements of it, as many values to compare with, and which to leave out."""
    dtype = draw(st.sampled_from(SIGNED + UNSIGNED))
    info = torch.iinfo(dtype)
    few = st.sampled_from((info.min, info.min + 1, info.max - 1, info.max, 3))
    elements = draw(st.lists(few, min_size=1, max_size=6))
    values = draw(st.lists(few, min_size=len(elements), max_size=len(elements)))
    status = draw(st.none() | st.lists(st.sampled_from((0, 0, 1, -7)), min_size=len(elements), max_size=len(elements)))
    return dtype, elements, values, status


def check_every_comparison(world: Any) -> None:
    """Also of words whose highest bit is set, with and without a sign; and who is left out, or that all are."""
    raw, out = triton_dist.empty(6 * 8, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)

    @together
    @given(watched(), st.sampled_from(list(COMPARISONS)), st.booleans(), st.booleans())
    def example(case: Any, cmp: tl.constexpr, vector: bool, none_at_all: bool) -> None:
        dtype, elements, values, status = case
        n = 0 if none_at_all else len(elements)
        ivars = raw.view(dtype)[: len(elements)]
        ivars.copy_(torch.tensor(elements, dtype=dtype))
        value = torch.tensor(values, dtype=dtype)
        indices = torch.full((8,), -5, dtype=torch.int64)
        left_out = None if status is None else torch.tensor(status, dtype=torch.int32)
        chosen = [i for i in range(n) if status is None or status[i] == 0]
        holds = [i for i in chosen if COMPARISONS[cmp](elements[i], values[i if vector else 0])]

        test_one[(1,)](ivars, value, out, cmp)
        assert out[0] == COMPARISONS[cmp](elements[0], values[0])
        test_many[(1,)](ivars, n, left_out, value, out, indices, cmp, vector)
        assert out.tolist() == [holds == chosen, holds[0] if holds else -1, len(holds)]
        assert indices.tolist() == holds + [-5] * (8 - len(holds))
        if holds or not chosen:  # a wait ends at once
            out.zero_(), indices.fill_(-5)
            wait_many[(1,)](ivars, n, left_out, value, out, indices, cmp, vector)
            assert out.tolist() == [0, holds[0] if holds else -1, len(holds)]
            assert indices.tolist() == holds + [-5] * (8 - len(holds))
        if holds == chosen:
            wait_all[(1,)](ivars, n, left_out, value, cmp, vector)

    example()


# ---- elements that arrive in any order. Program 0 sends, so that program 1, which waits first, has to let it


@triton.jit
def send(flags, slots, order, value, n):
    """Slot s of PE p is ``value + s``, in the order that this PE has drawn; it has slots of its own everywhere."""
    for i in range(n * dl.n_pes()):
        at = tl.load(order + i)
        slot = dl.my_pe() * n + at % n
        dl.p(slots + slot, 1000 + slot, at // n)
        dl.fence()
        dl.atomic_set(flags + slot, value + slot, at // n, sem="release")


@triton.jit
def receive(flags, slots, order, status, indices, out, values, n, HOW: tl.constexpr):
    """Program 1 notes which slot came when, and what was in it."""
    total = n * dl.n_pes()
    if tl.program_id(0) == 1:
        send(flags, slots, order, 7, n)
    elif HOW == "all":
        dl.wait_until_all_vector(flags, total, None, dl.CMP_EQ, values)
        for i in range(total):
            tl.store(out + i, tl.load(slots + i))
    elif HOW == "some":
        came = 0
        while came < total:
            more = dl.wait_until_some(flags, total, indices, status, dl.CMP_NE, 0)
            for i in range(more):
                which = tl.load(indices + i)
                tl.store(out + came + i, tl.load(slots + which))
                tl.store(status + which, 1)
            came += more
    else:
        for i in range(total):
            if HOW == "any":
                which = dl.wait_until_any(flags, total, status, dl.CMP_GE, 7)
            else:
                which = dl.test_any_vector(flags, total, status, dl.CMP_EQ, values)
                while which == -1:
                    which = dl.test_any_vector(flags, total, status, dl.CMP_EQ, values)
            tl.store(out + i, tl.load(slots + which))
            tl.store(status + which, 1)


def check_arrival_in_any_order(world: Any) -> None:
    n = 6
    total = n * world.n_pes
    values = torch.arange(total, dtype=torch.int32) + 7
    for seed, how in enumerate(("any", "some", "all", "test") * 2):
        flags, slots = triton_dist.zeros(total, dtype=torch.int32), triton_dist.zeros(total, dtype=torch.int64)
        order = torch.randperm(total, generator=torch.Generator().manual_seed(10 * seed + world.pe)).int()
        status, indices = torch.zeros(total, dtype=torch.int32), torch.zeros(total, dtype=torch.int64)
        out = torch.zeros(total, dtype=torch.int64)
        receive[(2,)](flags, slots, order, status, indices, out, values, n, how)
        assert sorted(out.tolist()) == list(range(1000, 1000 + total))
        triton_dist.barrier_all()


@triton.jit
def pass_on(word, out, rounds):
    """A ring: each PE waits for the next number, adds one, and hands it on."""
    to = (dl.my_pe() + 1) % dl.n_pes()
    for i in range(rounds):
        expected = i * dl.n_pes() + dl.my_pe()
        if expected > 0:
            dl.wait_until(word, dl.CMP_GE, expected)
            tl.store(out + i, dl.signal_fetch(word))
        dl.signal_op(word, expected + 1, dl.SIGNAL_SET, to)


def check_ring(world: Any) -> None:
    for dtype in (torch.int64, torch.uint64):
        word, out = triton_dist.zeros(1, dtype=torch.int64).view(dtype), torch.zeros(50, dtype=torch.int64).view(dtype)
        pass_on[(1,)](word, out, 50)
        assert out.tolist() == [i * world.n_pes + world.pe for i in range(50)]
        triton_dist.barrier_all()


# ---- loops around ops that only look


@triton.jit
def spin(words, mine, HOW: tl.constexpr):
    """Program i spins until program i + 1 has run, the last one until the next PE's first has."""
    i = tl.program_id(0)
    n = tl.num_programs(0)
    me = dl.my_pe()
    if i + 1 < n or me + 1 < dl.n_pes():
        if HOW == "g":
            while dl.g(words + i, me) == 0:
                pass
        elif HOW == "get":
            while tl.load(mine + i) == 0:
                dl.get(mine + i, words + i, 1, me)
        elif HOW == "fetch":
            while dl.atomic_fetch(words + i, me) == 0:
                pass
        elif HOW == "fetch_add":
            while dl.atomic_fetch_add(words + i, 0, me) == 0:
                pass
        elif HOW == "signal_fetch":
            while dl.signal_fetch(words + i) == 0:
                pass
        elif HOW == "test":
            while dl.test(words + i, dl.CMP_NE, 0) == 0:
                pass
        elif HOW == "test_all":
            while dl.test_all(words + i, 1, None, dl.CMP_NE, 0) == 0:
                pass
        else:
            while tl.load(dl.symm_at(words, me) + i, volatile=True) == 0:
                dl.fence()
    if i > 0:
        dl.p(words + i - 1, 1, me)
    elif me > 0:
        dl.p(words + n - 1, 1, me - 1)


def check_spinning_lets_others_run(world: Any) -> None:
    for how in ("g", "get", "fetch", "fetch_add", "signal_fetch", "test", "test_all", "load"):
        words, mine = triton_dist.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)
        spin[(5,)](words, mine, how)
        triton_dist.barrier_all()
        assert words[:4].all()


if __name__ == "__main__":
    main(globals())
