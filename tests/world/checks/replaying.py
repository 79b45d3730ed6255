"""Calls of builtins that are replayed: as the front end makes them, whatever their operands, constants and order."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from harness import DTYPES, noise, raises
from harness import main as run

import triton_dist.language as dl
from triton_dist.triton_api.interpreter import TensorHandle, semantic

SIZE = 16


@triton.jit
def arithmetic(x, y, out, sums, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    b = tl.load(y + i, mask=i < n, other=1)
    c = tl.where(a > b, a + a, a * b - b)
    tl.store(out + i, c + 0.5 if x.dtype.element_ty.is_floating() else c + 1)
    tl.store(sums + i, a.to(tl.float32) + tl.sum(b.to(tl.float32), 0))


def check_every_type(world: Any) -> None:
    """The first launch is the front end's, the second is replayed, with the same bits."""
    for dtype in DTYPES:
        x, y = noise(SIZE, dtype, 1), noise(SIZE, dtype, 2)
        out, sums = torch.zeros(2, SIZE, dtype=dtype), torch.zeros(2, SIZE)
        for launch in range(2):
            arithmetic[(1,)](x, y, out[launch], sums[launch], 9, S=SIZE)
        for found in (out, sums):
            assert torch.equal(found[0].view(torch.uint8), found[1].view(torch.uint8)), dtype
        assert out[1].view(torch.uint8).any()


@triton.jit
def constants(out, S: tl.constexpr):
    i = tl.arange(0, S)
    zeros = tl.zeros([S], tl.float32)
    tl.store(out + i, zeros + 1)
    tl.store(out + S + i, zeros + 1.0)
    tl.store(out + 2 * S + i, zeros + True)
    tl.store(out + 3 * S + i, zeros * -1.0)
    tl.store(out + 4 * S + i, zeros * 1.0)
    tl.store(out + 5 * S + i, zeros + float("nan"))
    tl.store(out + 6 * S + i, (i // 2 * 2).to(tl.float32) + (i - i).to(tl.float32))


def check_constants_are_told_apart(world: Any) -> None:
    for _ in range(2):
        out = torch.full((7, SIZE), 7.0)
        constants[(1,)](out, S=SIZE)
        assert (out[:3] == 1).all() and (out[3:5] == 0).all() and out[5].isnan().all()
        assert [math.copysign(1, value) for value in out[3:5, 0].tolist()] == [-1, 1]
        assert out[6].tolist() == [float(i // 2 * 2) for i in range(SIZE)]


@triton.jit
def same_and_other(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.store(out + i, a - a)
    tl.store(out + i + S, a - (a + 1))
    low, high = tl.split(tl.reshape(a, [S // 2, 2]))
    tl.store(out + 2 * S + tl.arange(0, S // 2), low - high)
    tl.store(out + 3 * S + tl.arange(0, S // 2), high - low)


def check_an_operand_that_comes_twice_is_no_rule(world: Any) -> None:
    """A call whose operands are one tensor, and the same call of two tensors."""
    x, out = torch.arange(SIZE, dtype=torch.float32), torch.full((4, SIZE), 7.0)
    for _ in range(2):
        same_and_other[(1,)](x, out, S=SIZE)
        assert (out[0] == 0).all() and (out[1] == -1).all()
        assert (out[2, : SIZE // 2] == -1).all() and (out[3, : SIZE // 2] == 1).all()


@triton.jit
def handed_over(flags, out):
    pe = tl.program_id(0)
    before = tl.atomic_add(flags, 0, sem="acquire")
    while before != pe:  # programs are in turn: each suspends others' first calls
        before = tl.atomic_add(flags, 0, sem="acquire")
    tl.store(out + pe, before * 3)
    tl.atomic_add(flags, 1, sem="release")


def check_programs_that_wait_in_a_call_that_is_recorded(world: Any) -> None:
    for dtype in (torch.int32, torch.int64):
        flag, out = torch.zeros(1, dtype=dtype), torch.zeros(5, dtype=dtype)
        handed_over[(5,)](flag, out)
        assert flag.item() == 5 and out.tolist() == [0, 3, 6, 9, 12]


@triton.jit
def looks_at_data(words, n, out):
    dl.wait(words, n, "gpu", "acquire", waitValue=1)
    tl.store(out, n)


def check_a_builtin_that_looks_at_data_does_so_each_time(world: Any) -> None:
    """``dl.wait`` polls as many words as its operand says: a plan of the first call would poll one."""
    for n in (1, 3, 2):
        words, out = torch.ones(3, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        looks_at_data[(1,)](words, n, out)
        assert out.item() == n


@triton.jit
def wrong(x, y):
    tl.store(x, tl.load(x + tl.arange(0, 4)) + tl.load(y + tl.arange(0, 8)))


def check_mistakes_are_found_each_time(world: Any) -> None:
    for _ in range(3):
        with raises(triton.runtime.errors.InterpreterError, "incompatible dimensions at index 0: 4 and 8"):
            wrong[(1,)](torch.zeros(8), torch.zeros(8))


@triton.jit
def doubled(x):
    i = tl.arange(0, 8)
    tl.store(x + i, tl.load(x + i) * 2)


def check_the_front_end_decides_once(world: Any) -> None:
    x = torch.ones(8)
    with pytest.MonkeyPatch.context() as patch:
        doubled[(1,)](x)
        patch.setattr(semantic(), "mul", lambda *operands: pytest.fail("the front end is asked again"))
        doubled[(3,)](x)
    assert (x == 16).all()


@triton.jit
def large(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i) + tl.full([S], 1, tl.float32))


def check_what_is_recorded_keeps_no_data(world: Any) -> None:
    x, out = torch.ones(2048), torch.zeros(2048)
    large[(1,)](x, out, S=2048)
    gc.collect()
    assert (out == 2).all()
    assert not [h for h in gc.get_objects() if type(h) is TensorHandle and h.data.size == 2048]


if __name__ == "__main__":
    run(globals())
