"""Collectives: every type, operator and size against torch, in place and not, nothing written beside the target."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from harness import DTYPES, main, noise, raises, together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl

OPERATORS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
GUARD = 0xA5
WHOLE = 4096
"""Bytes of the symmetric tensors that the examples take their operands from."""


def operators_of(dtype: torch.dtype) -> list[str]:
    return list(OPERATORS)[: 4 if dtype.is_floating_point else 7]


def rows(tensor: torch.Tensor) -> list[int]:
    return tensor.view(torch.uint8).tolist()


@triton.jit
def reduce(dst, src, n, OP: tl.constexpr):
    OP(dl.TEAM_WORLD, dst, src, n)


@triton.jit
def broadcast(dst, src, n, root):
    dl.broadcast(dl.TEAM_WORLD, dst, src, n, root)


@triton.jit
def fcollect(dst, src, n):
    dl.fcollect(dl.TEAM_WORLD, dst, src, n)


@triton.jit
def alltoall(dst, src, n):
    dl.alltoall(dl.TEAM_WORLD, dst, src, n)


# ---- reductions


def combined(contributions: list[torch.Tensor], name: str) -> torch.Tensor:
    """PE by PE; halves in float32, rounded once."""
    dtype = contributions[0].dtype
    computed = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    total = contributions[0].to(computed).numpy()
    with np.errstate(all="ignore"):
        for contribution in contributions[1:]:
            total = OPERATORS[name](total, contribution.to(computed).numpy())
    return torch.from_numpy(total).to(dtype)


def small(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Numbers whose products stay finite."""
    if not dtype.is_floating_point:
        return noise(count, dtype, seed)
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)


@st.composite
def operands(draw: st.DrawFn, size: int, src_count: int, dst_count: int) -> tuple[int, int, int]:
    """How many elements, where ``src`` begins and where ``dst`` does, in elements of WHOLE; often the same place."""
    whole = WHOLE // size
    n = draw(st.one_of(st.integers(0, 5), st.integers(0, whole // max(src_count, dst_count))))
    src = draw(st.integers(0, whole - n * src_count))
    if draw(st.booleans()) and src + n * dst_count <= whole:
        return n, src, src
    return n, src, draw(st.integers(0, whole - n * dst_count))


def examples_of_reductions(world: Any, scatter: bool) -> None:
    parts = world.n_pes if scatter else 1
    source, target = triton_dist.empty(WHOLE, dtype=torch.uint8), triton_dist.empty(WHOLE, dtype=torch.uint8)

    @together
    @given(st.data(), st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
    def example(data: st.DataObject, dtype: torch.dtype, seed: int, in_place: bool) -> None:
        name = data.draw(st.sampled_from(operators_of(dtype)))
        n, begin, end = data.draw(operands(dtype.itemsize, parts, 1))
        contributions = [small(WHOLE // dtype.itemsize, dtype, 1000 * pe + seed) for pe in range(world.n_pes)]
        src, dst = source.view(dtype), (source if in_place else target).view(dtype)
        target.fill_(GUARD)
        src.copy_(contributions[world.pe])
        expected = dst.clone()
        mine = begin + world.pe * n * scatter
        expected[end : end + n] = combined([row[mine : mine + n] for row in contributions], name)
        op = getattr(dl, f"{name}_{'reducescatter' if scatter else 'reduce'}")
        triton_dist.barrier_all()
        reduce[(1,)](dst[end:], src[begin:], n, op)
        assert rows(dst) == rows(expected)
        triton_dist.barrier_all()
        if not in_place:
            assert rows(src) == rows(contributions[world.pe])

    example()


def check_reduce(world: Any) -> None:
    examples_of_reductions(world, scatter=False)


def check_reducescatter(world: Any) -> None:
    examples_of_reductions(world, scatter=True)


def check_extremes_of_numbers_and_nans(world: Any) -> None:
    """Of a NaN and a number it is the number, as the instructions of GPUs have it. One PE has a NaN only."""
    if world.n_pes == 1:
        return
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        src, dst = triton_dist.full(2, torch.nan, dtype=dtype), triton_dist.zeros(2, dtype=dtype)
        if world.pe:
            src[0] = world.pe
        triton_dist.barrier_all()
        for name, expected in (("min", 1), ("max", world.n_pes - 1)):
            reduce[(1,)](dst, src, 2, getattr(dl, f"{name}_reduce"))
            assert dst[0] == expected and dst[1].isnan(), (dtype, name, dst)
            triton_dist.barrier_all()


def check_every_reduction(world: Any) -> None:
    """All types and operators, once each."""
    for dtype in DTYPES:
        src, dst = triton_dist.empty(7, dtype=dtype), triton_dist.empty(7, dtype=dtype)
        contributions = [small(7, dtype, pe) for pe in range(world.n_pes)]
        src.copy_(contributions[world.pe])
        for name in operators_of(dtype):
            reduce[(1,)](dst, src, 7, getattr(dl, f"{name}_reduce"))
            assert rows(dst) == rows(combined(contributions, name)), (dtype, name)
        triton_dist.free(src), triton_dist.free(dst)


def check_halves_are_summed_in_float32(world: Any) -> None:
    """2048 + 1 + 1 + … is 2048 in float16, and 256 + 1 + 1 + … is 256 in bfloat16."""
    for dtype, large in ((torch.float16, 2048.0), (torch.bfloat16, 256.0)):
        x = triton_dist.full((1,), large if world.pe == 0 else 1.0, dtype=dtype)
        reduce[(1,)](x, x, 1, dl.sum_reduce)
        assert torch.equal(x, torch.tensor([large + world.n_pes - 1]).to(dtype))


# ---- what only moves data


def check_exchanges(world: Any) -> None:
    """Broadcast from every root, fcollect and alltoall."""
    n_pes = world.n_pes
    source, target = triton_dist.empty(WHOLE, dtype=torch.uint8), triton_dist.empty(WHOLE, dtype=torch.uint8)

    @together
    @given(
        st.data(),
        st.sampled_from((torch.uint8, torch.bfloat16, torch.int64)),
        st.sampled_from(("broadcast", "fcollect", "alltoall")),
        st.booleans(),
    )
    def example(data: st.DataObject, dtype: torch.dtype, kind: str, in_place: bool) -> None:
        gives = n_pes if kind == "alltoall" else 1
        gets = 1 if kind == "broadcast" else n_pes
        n, begin, end = data.draw(operands(dtype.itemsize, gives, gets))
        root = data.draw(st.integers(0, n_pes - 1))
        contributions = [noise(WHOLE // dtype.itemsize, dtype, pe) for pe in range(n_pes)]
        src, dst = source.view(dtype), (source if in_place else target).view(dtype)
        target.fill_(GUARD)
        src.copy_(contributions[world.pe])
        expected = dst.clone()
        triton_dist.barrier_all()
        if kind == "broadcast":
            broadcast[(1,)](dst[end:], src[begin:], n, root)
            expected[end : end + n] = contributions[root][begin : begin + n]
        else:
            (fcollect if kind == "fcollect" else alltoall)[(1,)](dst[end:], src[begin:], n)
            at = begin + (world.pe * n if kind == "alltoall" else 0)
            expected[end : end + n * n_pes] = torch.cat([row[at : at + n] for row in contributions])
        assert rows(dst) == rows(expected)
        triton_dist.barrier_all()

    example()


@triton.jit
def many(x, y, total, rounds):
    """One after the other with nothing in between: who is late in one still reads what the next would overwrite."""
    me = dl.my_pe()
    for i in range(rounds):
        tl.store(x, (i + 1) * (me + 1))
        dl.sum_reduce(dl.TEAM_WORLD, x, x, 1)
        tl.store(total + i, tl.load(x))
        dl.fcollect(dl.TEAM_WORLD, y, x, 1)
        dl.broadcast(dl.TEAM_WORLD, x, y, 1, dl.n_pes() - 1)
        dl.sync(dl.TEAM_WORLD)
        dl.barrier(dl.TEAM_WORLD)


def check_many_in_a_row(world: Any) -> None:
    x, y, total = triton_dist.zeros(1), triton_dist.zeros(world.n_pes), torch.zeros(50)
    many[(1,)](x, y, total, 50)
    once = sum(range(1, world.n_pes + 1))
    assert total.tolist() == [(i + 1) * once for i in range(50)]


@triton.jit
def others_go_on(x, y, signals):
    """Program 0 of the last PE is late: it waits for program 1 of every PE, which runs while program 0 waits."""
    last = dl.n_pes() - 1
    if tl.program_id(0) == 0:
        if dl.my_pe() == last:
            dl.wait_until_all(signals, dl.n_pes(), None, dl.CMP_EQ, 1)
        dl.max_reduce(dl.TEAM_WORLD, y, x, 1)
    else:
        dl.signal_op(signals + dl.my_pe(), 1, dl.SIGNAL_SET, last)


def check_others_go_on(world: Any) -> None:
    x, y = triton_dist.full((1,), world.pe, dtype=torch.int32), triton_dist.zeros(1, dtype=torch.int32)
    others_go_on[(2,)](x, y, triton_dist.zeros(world.n_pes, dtype=torch.int64))
    assert y.item() == world.n_pes - 1


def check_different_calls(world: Any) -> None:
    if world.n_pes == 1:
        return
    x = triton_dist.zeros(8)
    here = rf"program \(0, 0, 0\), {re.escape(__file__)}:\d+: RuntimeError"  # the kernel's line, not Python's own
    with raises(RuntimeError, r"PE 0: sum_reduce\(1 of f32\), .*; PE 1: sum_reduce\(2 of f32\)", here):
        reduce[(1,)](x, x, min(world.pe, 1) + 1, dl.sum_reduce)
    triton_dist.barrier_all()
    with raises(RuntimeError, r"PE 0: max_reduce\(4 of f32\), .*; PE 1: broadcast\(16 bytes of PE 0\)"):
        reduce[(1,)](x, x, 4, dl.max_reduce) if world.pe == 0 else broadcast[(1,)](x, x, 4, 0)
    triton_dist.barrier_all()
    reduce[(1,)](x, x, 4, dl.max_reduce)


def check_different_addresses(world: Any) -> None:
    """A transport reaches the others' data by this PE's addresses."""
    if world.n_pes == 1:
        return
    at = min(world.pe, 1)
    x, y = triton_dist.zeros(64), triton_dist.zeros(64)
    begin = r"PE 0: {}\(.*\), dst at byte \d+ and src at byte \d+ of the heap; PE 1: "
    for call in (
        lambda: broadcast[(1,)](x[8 * at :], y, 4, 0),
        lambda: broadcast[(1,)](x, y[8 * at :], 4, 0),
        lambda: reduce[(1,)](x, y[8 * at :], 4, dl.sum_reduce),
        lambda: alltoall[(1,)](x[8 * at :], y, 2),
    ):
        with raises(RuntimeError, begin.format(r"\w+")):
            call()
        triton_dist.barrier_all()
    with raises(RuntimeError, r"PE 0: fcollect\(8 bytes\), dst at byte \d+ of the heap; PE 1: fcollect"):
        fcollect[(1,)](x[8 * at :], y, 2)
    triton_dist.barrier_all()
    fcollect[(1,)](x, x[2 * world.pe :], 2)  # each PE's part of the larger buffer
    reduce[(1,)](y[2 * world.pe :], y, 2, dl.sum_reducescatter)


if __name__ == "__main__":
    main(globals())
