"""wait_until and test: every comparison, signed and not, of one element, of all, of any and of some."""

from __future__ import annotations

import operator

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.element_types import integers, numbers
from ops.harness import check, expect_equal, rounds
from triton_dist import World

TYPES = (torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64)
COMPARISONS = (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le)  # as dl.CMP_*


@triton.jit
def compare(word, bound, out):
    value = tl.load(bound)
    tl.store(out + 0, dl.test(word, dl.CMP_EQ, value))
    tl.store(out + 1, dl.test(word, dl.CMP_NE, value))
    tl.store(out + 2, dl.test(word, dl.CMP_GT, value))
    tl.store(out + 3, dl.test(word, dl.CMP_GE, value))
    tl.store(out + 4, dl.test(word, dl.CMP_LT, value))
    tl.store(out + 5, dl.test(word, dl.CMP_LE, value))


@triton.jit(do_not_specialize=["cmp"])
def send_and_wait(word, message, bound, seen, cmp):
    """Each PE writes the next one's word and waits for its own; the load behind the wait must see what ended it."""
    dl.p(word, tl.load(message), (dl.my_pe() + 1) % dl.n_pes())
    value = tl.load(bound)
    if cmp == 0:
        token = dl.wait_until(word, dl.CMP_EQ, value)
    elif cmp == 1:
        token = dl.wait_until(word, dl.CMP_NE, value)
    elif cmp == 2:
        token = dl.wait_until(word, dl.CMP_GT, value)
    elif cmp == 3:
        token = dl.wait_until(word, dl.CMP_GE, value)
    elif cmp == 4:
        token = dl.wait_until(word, dl.CMP_LT, value)
    else:
        token = dl.wait_until(word, dl.CMP_LE, value)
    tl.store(seen, tl.load(dl.consume_token(word, token)))


@triton.jit
def test_many(words, n, status, indices, bounds, out, CMP: tl.constexpr):
    """All forms of ``test``, with and without a status; ``some`` writes its indices to its own row."""
    value = tl.load(bounds)
    tl.store(out + 0, dl.test_all(words, n, None, CMP, value))
    tl.store(out + 1, dl.test_all(words, n, status, CMP, value))
    tl.store(out + 2, dl.test_any(words, n, None, CMP, value))
    tl.store(out + 3, dl.test_any(words, n, status, CMP, value))
    tl.store(out + 4, dl.test_some(words, n, indices, None, CMP, value))
    tl.store(out + 5, dl.test_some(words, n, indices + n, status, CMP, value))
    tl.store(out + 6, dl.test_all_vector(words, n, None, CMP, bounds))
    tl.store(out + 7, dl.test_all_vector(words, n, status, CMP, bounds))
    tl.store(out + 8, dl.test_any_vector(words, n, None, CMP, bounds))
    tl.store(out + 9, dl.test_any_vector(words, n, status, CMP, bounds))
    tl.store(out + 10, dl.test_some_vector(words, n, indices + 2 * n, None, CMP, bounds))
    tl.store(out + 11, dl.test_some_vector(words, n, indices + 3 * n, status, CMP, bounds))


@triton.jit
def tell(words, row, value):
    """Write ``value`` to this PE's element of row ``row`` on every PE."""
    me = dl.my_pe()
    n = dl.n_pes()
    for d in range(n):
        dl.p(words + row * n + me, value, (me + d) % n)


@triton.jit
def wait_for_many(words, bounds, status, indices, order, turns):
    """Every turn each PE tells all others its turn, in six rows, and awaits theirs in six ways.

    ``order`` gets what ``any`` and ``some`` found; an element is found once, as ``status`` then leaves it out.
    """
    n = dl.n_pes()
    for turn in range(1, turns + 1):
        dl.barrier_all()
        for i in range(n):
            tl.store(bounds + i, turn)
            tl.store(status + i, 0)
        for row in range(6):
            tell(words, row, turn)
        dl.wait_until_all(words, n, None, dl.CMP_EQ, turn)
        dl.wait_until_all_vector(words + n, n, status, dl.CMP_GE, bounds)
        for i in range(n):
            found = dl.wait_until_any(words + 2 * n, n, status, dl.CMP_EQ, turn)
            tl.store(order + i, found)
            tl.store(status + found, 1)
        for i in range(n):
            tl.store(status + i, 0)
        for i in range(n):
            found = dl.wait_until_any_vector(words + 3 * n, n, status, dl.CMP_GE, bounds)
            tl.store(order + n + i, found)
            tl.store(status + found, 1)
        for i in range(n):
            tl.store(status + i, 0)
        done = 0
        while done < n:
            count = dl.wait_until_some(words + 4 * n, n, indices, status, dl.CMP_EQ, turn).to(tl.int32)
            for i in range(count):
                found = tl.load(indices + i)
                tl.store(order + 2 * n + done + i, found)
                tl.store(status + found, 1)
            done += count
        for i in range(n):
            tl.store(status + i, 0)
        done = 0
        while done < n:
            count = dl.wait_until_some_vector(words + 5 * n, n, indices, status, dl.CMP_GE, bounds).to(tl.int32)
            for i in range(count):
                found = tl.load(indices + i)
                tl.store(order + 3 * n + done + i, found)
                tl.store(status + found, 1)
            done += count
    # Of nothing, all are there and none can be found.
    tl.store(order + 4 * n, dl.wait_until_any(words, n, status, dl.CMP_EQ, 0))
    tl.store(order + 4 * n + 1, dl.wait_until_some(words, n, indices, status, dl.CMP_EQ, 0))
    dl.wait_until_all(words, n, status, dl.CMP_EQ, 0)


@check
def test_compares_every_type(world: World) -> None:
    for dtype in TYPES:
        top = 1 << (8 * dtype.itemsize - 1)
        for first, second in ((5, 5), (5, 6), (6, 5), (-1, 1), (1, -1), (top - 1, top), (top, top - 1), (-1, -1)):
            word = triton_dist.from_tensor(integers([0, first, 0], dtype))
            out = torch.full((6,), -7, dtype=torch.int32, device=world.device)
            compare[(1,)](word[1:], integers([second], dtype).to(world.device), out)
            a, b = numbers(integers([first, second], dtype))
            expected = [int(comparison(a, b)) for comparison in COMPARISONS]
            expect_equal(out, torch.tensor(expected, dtype=torch.int32), f"{dtype} {a} ==, !=, >, >=, <, <= {b}")
            triton_dist.barrier_all()
            triton_dist.free(word)


@check
def wait_until_compares_every_type(world: World) -> None:
    for dtype in TYPES:
        top = 1 << (8 * dtype.itemsize - 1)
        signed = dtype.is_signed
        cases = [
            # comparison, at first, written, bound: EQ, NE, GT, GE, LT, LE
            (0, 5, 7, 7),
            (1, 5, 6, 5),
            (2, 5, 9, 8),
            (3, 5, 9, 9),
            (4, 5, 2, 3),
            (5, 5, 3, 3),
            (2, *((top, 3, -2) if signed else (3, top, top - 1))),
            (4, *((3, top, -2) if signed else (top, 3, top - 1))),
        ]
        for cmp, first, written, bound in cases:
            word = triton_dist.from_tensor(integers([first], dtype))
            seen = torch.zeros(1, dtype=dtype, device=world.device)
            message, limit = (integers([value], dtype).to(world.device) for value in (written, bound))
            send_and_wait[(1,)](word, message, limit, seen, cmp)
            triton_dist.barrier_all()
            assert numbers(seen) == numbers(integers([written], dtype)), (
                f"{dtype}: comparison {cmp} with {bound} ended with {numbers(seen)}, not {written}"
            )
            triton_dist.free(word)


def _expect_tests(found: list[int], rows: list[list[int]], true: list[bool], status: list[int], what: str) -> None:
    """Of all, any and some, first without a status and then with it."""
    for at, chosen in enumerate((range(len(true)), [i for i, left_out in enumerate(status) if not left_out])):
        holds = [i for i in chosen if true[i]]
        assert found[at] == (len(holds) == len(chosen)), f"test_all{what}: {found[at]}, true are {holds} of {chosen}"
        any_ = found[2 + at]
        assert any_ in holds or (any_ == -1 and not holds), f"test_any{what}: {any_}, true are {holds}"
        n_some = found[4 + at]
        some = sorted(rows[at][:n_some])
        assert some == holds, f"test_some{what}: {n_some} with indices {some}, true are {holds}"


@check
def test_of_all_any_and_some(world: World) -> None:
    n = 7
    status = [0, 1, 0, 0, 1, 0, 1]
    values = [3, 9, 3, 4, 1, 3, -1]
    bounds = [3, 9, 2, 4, 0, 5, -1]
    for dtype in (torch.uint16, torch.int32, torch.uint64):
        for words in (values, [3] * n, [-5] * n):
            for cmp, constant in ((0, dl.CMP_EQ), (3, dl.CMP_GE)):
                ivars = triton_dist.from_tensor(integers(words, dtype))
                out = torch.full((12,), -7, dtype=torch.int64, device=world.device)
                indices = torch.full((4, n), -7, dtype=torch.int64, device=world.device)
                compared = integers(bounds, dtype)
                left_out = torch.tensor(status, dtype=torch.int32, device=world.device)
                test_many[(1,)](ivars, n, left_out, indices, compared.to(world.device), out, CMP=constant)
                a, b = numbers(ivars), numbers(compared)
                found, rows = out.tolist(), indices.tolist()
                holds = [COMPARISONS[cmp](x, b[0]) for x in a]
                _expect_tests(found[:6], rows[:2], holds, status, f" of {dtype} {a} with {b[0]}")
                holds = [COMPARISONS[cmp](x, y) for x, y in zip(a, b, strict=True)]
                _expect_tests(found[6:], rows[2:], holds, status, f"_vector of {dtype} {a} with {b}")
                triton_dist.barrier_all()
                triton_dist.free(ivars)


@check
def waits_for_all_any_and_some(world: World) -> None:
    n = world.n_pes
    turns = rounds(200, 3)
    for dtype in (torch.int32, torch.uint64):
        words = triton_dist.zeros(6, n, dtype=dtype)
        bounds = torch.zeros(n, dtype=dtype, device=world.device)
        status = torch.zeros(n, dtype=torch.int32, device=world.device)
        indices = torch.zeros(n, dtype=torch.int64, device=world.device)
        order = torch.full((4 * n + 2,), -7, dtype=torch.int64, device=world.device)
        wait_for_many[(1,)](words, bounds, status, indices, order, turns)
        found = order.tolist()
        for row, name in enumerate(("any", "any_vector", "some", "some_vector")):
            once = sorted(found[row * n : row * n + n])
            assert once == list(range(n)), f"wait_until_{name} of {dtype} found {once}"
        assert found[4 * n :] == [-1, 0], f"any and some of no elements: {found[4 * n :]}"
        triton_dist.barrier_all()
        triton_dist.free(words)
