"""What each atomic operation does, alone on an element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from elements import INTEGERS, rows, same
from harness import together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl


@triton.jit
def update(dst, operand, pe, OP: tl.constexpr, SEM: tl.constexpr):
    OP(dst, tl.load(operand), pe, sem=SEM)


@triton.jit
def fetch_update(dst, operand, before, pe, OP: tl.constexpr, SEM: tl.constexpr):
    tl.store(before, OP(dst, tl.load(operand), pe, sem=SEM))


@triton.jit
def fetch_update_by_one(dst, before, pe, OP: tl.constexpr, SEM: tl.constexpr):
    tl.store(before, OP(dst, pe, sem=SEM))


@triton.jit
def update_by_one(dst, pe):
    dl.atomic_inc(dst, pe)


@triton.jit
def swap_if(dst, cond, value, before, pe, SEM: tl.constexpr):
    tl.store(before, dl.atomic_compare_swap(dst, tl.load(cond), tl.load(value), pe, sem=SEM))


MODELS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "set": lambda old, new: new,
}


def scalar(number: int | float, dtype: torch.dtype) -> torch.Tensor:
    """An integer wraps around."""
    if dtype.is_floating_point:
        return torch.tensor([number], dtype=dtype)
    word = int(number) % (1 << 8 * dtype.itemsize)
    return torch.tensor(list(word.to_bytes(dtype.itemsize, "little")), dtype=torch.uint8).view(dtype)


def numbers(dtype: torch.dtype) -> st.SearchStrategy[Any]:
    if dtype.is_floating_point:
        largest = 2.0**99
        # Triton makes scalars of -0.0 to 0.0.
        return st.floats(-largest, largest, width=8 * dtype.itemsize).map(lambda x: x + 0.0)
    info = torch.iinfo(dtype)
    return st.one_of(st.integers(info.min, info.max), st.sampled_from((info.min, info.max, 0, 1)))


@st.composite
def updates(draw: st.DrawFn) -> tuple[torch.dtype, str, Any, Any]:
    dtype = draw(st.sampled_from((*INTEGERS, torch.float32, torch.float64)))
    names = ("set", "add") if dtype.is_floating_point else tuple(MODELS)
    return dtype, draw(st.sampled_from(names)), draw(numbers(dtype)), draw(numbers(dtype))


ORDERS = st.sampled_from(("relaxed", "acquire", "release", "acq_rel"))


def check_atomics_only(world: Any) -> None:
    """On an element between two others, which stay, against Python's numbers."""
    right = (world.pe + 1) % world.n_pes
    raw = triton_dist.empty(3 * 8, dtype=torch.uint8)

    @together
    @given(updates(), ORDERS)
    def example(case: tuple[torch.dtype, str, Any, Any], sem: str) -> None:
        dtype, name, old, operand = case
        row, before = raw.view(dtype)[:3], torch.zeros(1, dtype=dtype)
        start, value = scalar(old, dtype), scalar(operand, dtype)
        once = scalar(MODELS[name](start.item(), value.item()), dtype)
        for fetches in (False, True):
            row.view(torch.uint8).fill_(0xA5)
            rows(row)[1] = rows(start)[0]
            triton_dist.barrier_all()
            if fetches:
                op = dl.atomic_swap if name == "set" else getattr(dl, f"atomic_fetch_{name}")
                fetch_update[(1,)](row[1:], value, before, right, op, sem)
                assert same(before, start)
                fetch_update_by_one[(1,)](row[1:], before, right, dl.atomic_fetch, sem)
                assert same(before, once)
            else:
                update[(1,)](row[1:], value, right, getattr(dl, f"atomic_{name}"), sem)
            triton_dist.barrier_all()
            assert same(row[1:2], once)
            assert (rows(row)[[0, 2]] == 0xA5).all()

    example()


def check_increments_wrap_around(world: Any) -> None:
    right = (world.pe + 1) % world.n_pes
    for dtype in INTEGERS:
        word, before = triton_dist.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype)
        word.copy_(scalar(torch.iinfo(dtype).max, dtype))
        triton_dist.barrier_all()
        fetch_update_by_one[(1,)](word, before, right, dl.atomic_fetch_inc, "acq_rel")
        update_by_one[(1,)](word, right)
        triton_dist.barrier_all()
        assert before.item() == torch.iinfo(dtype).max and word.item() == torch.iinfo(dtype).min + 1


def check_compare_swap(world: Any) -> None:
    right = (world.pe + 1) % world.n_pes
    raw = triton_dist.empty(8, dtype=torch.uint8)

    @together
    @given(st.sampled_from(INTEGERS), st.data(), ORDERS)
    def example(dtype: torch.dtype, data: st.DataObject, sem: str) -> None:
        word, before = raw.view(dtype)[:1], torch.zeros(1, dtype=dtype)
        old, new = scalar(data.draw(numbers(dtype)), dtype), scalar(data.draw(numbers(dtype)), dtype)
        cond = data.draw(st.sampled_from((old, new)))
        word.copy_(old)
        triton_dist.barrier_all()
        swap_if[(1,)](word, cond, new, before, right, sem)
        triton_dist.barrier_all()
        assert same(before, old)
        assert same(word, new if same(cond, old) else old)

    example()
