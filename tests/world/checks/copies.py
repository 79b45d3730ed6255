"""putmem, getmem and symm_at: the right bytes, all of them, and no others."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from harness import by_load_and_store, main, together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl

SIZE = 10_000
GUARD = 0xA5


@triton.jit
def put(dst, src, nbytes, pe, NBI: tl.constexpr):
    if NBI:
        dl.putmem_nbi(dst, src, nbytes, pe)
        dl.quiet()
    else:
        dl.putmem(dst, src, nbytes, pe)


@triton.jit
def get(dst, src, nbytes, pe, NBI: tl.constexpr):
    if NBI:
        dl.getmem_nbi(dst, src, nbytes, pe)
        dl.quiet()
    else:
        dl.getmem(dst, src, nbytes, pe)


def pattern(pe: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (SIZE,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1000 * pe + seed))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, int]:
    """Where to copy from, where to, and how much: small and large, often at an end."""
    count = draw(st.one_of(st.integers(0, 64), st.integers(0, SIZE)))
    return draw(st.integers(0, SIZE - count)), draw(st.integers(0, SIZE - count)), count


def check_putmem(world: Any) -> None:
    src = triton_dist.empty(SIZE, dtype=torch.uint8)
    dst = triton_dist.empty(SIZE, dtype=torch.uint8)
    left, right = (world.pe - 1) % world.n_pes, (world.pe + 1) % world.n_pes

    @together
    @given(ranges(), st.integers(0, 99), st.booleans())
    def example(place: tuple[int, int, int], seed: int, nbi: bool) -> None:
        begin, end, count = place
        src.copy_(pattern(world.pe, seed))
        dst.fill_(GUARD)
        triton_dist.barrier_all()
        put[(1,)](dst[end:], src[begin:], count, right, nbi)
        triton_dist.barrier_all()
        expected = torch.full((SIZE,), GUARD, dtype=torch.uint8)
        expected[end : end + count] = pattern(left, seed)[begin : begin + count]
        assert torch.equal(dst, expected)
        assert torch.equal(src, pattern(world.pe, seed))

    example()


def check_getmem(world: Any) -> None:
    src = triton_dist.empty(SIZE, dtype=torch.uint8)
    dst = torch.empty(SIZE, dtype=torch.uint8)  # a get may end in private memory
    right = (world.pe + 1) % world.n_pes

    @together
    @given(ranges(), st.integers(0, 99), st.booleans())
    def example(place: tuple[int, int, int], seed: int, nbi: bool) -> None:
        begin, end, count = place
        src.copy_(pattern(world.pe, seed))
        dst.fill_(GUARD)
        triton_dist.barrier_all()
        get[(1,)](dst[end:], src[begin:], count, right, nbi)
        expected = torch.full((SIZE,), GUARD, dtype=torch.uint8)
        expected[end : end + count] = pattern(right, seed)[begin : begin + count]
        assert torch.equal(dst, expected)
        triton_dist.barrier_all()

    example()


def check_put_from_private_memory(world: Any) -> None:
    dst = triton_dist.zeros(8, dtype=torch.float64)
    put[(1,)](dst, torch.full((8,), 1.5 + world.pe, dtype=torch.float64), 64, (world.pe + 1) % world.n_pes, False)
    triton_dist.barrier_all()
    assert torch.equal(dst, torch.full((8,), 1.5 + (world.pe - 1) % world.n_pes, dtype=torch.float64))


@triton.jit
def put_and_get_elements(dst, back, src, n, pe):
    dl.put(dst, src, n, pe)
    dl.quiet()
    dl.get(back, dst, n, pe)


def check_elements(world: Any) -> None:
    for dtype in (torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.int64):
        src = torch.arange(10).to(dtype) + world.pe
        dst, back = triton_dist.zeros(10, dtype=dtype), torch.zeros(10, dtype=dtype)
        put_and_get_elements[(1,)](dst, back, src, 7, (world.pe + 1) % world.n_pes)
        assert torch.equal(back[:7], src[:7]) and not back[7:].any()
        triton_dist.barrier_all()
        assert torch.equal(dst[:7], src[:7] - world.pe + (world.pe - 1) % world.n_pes) and not dst[7:].any()


@triton.jit
def store_to_all(dst, N: tl.constexpr):
    me = dl.my_pe()
    at = me * N + tl.arange(0, N)
    for pe in range(dl.n_pes()):
        tl.store(dl.symm_at(dst, pe) + at, 100 * me + tl.arange(0, N))


@by_load_and_store
def check_symm_at(world: Any) -> None:
    n = world.n_pes
    dst = triton_dist.zeros(n * 16, dtype=torch.int32)
    store_to_all[(1,)](dst, 16)
    triton_dist.barrier_all()
    assert dst.view(n, 16).tolist() == [[100 * pe + i for i in range(16)] for pe in range(n)]


@triton.jit
def all_to_all_rounds(data, seen, rounds, N: tl.constexpr):
    me = dl.my_pe()
    n = dl.n_pes()
    for i in range(rounds):
        for pe in range(n):
            tl.store(dl.symm_at(data, pe) + me, i * 10 + me)
        dl.barrier_all()
        pes = tl.arange(0, N)
        values = tl.load(data + pes, mask=pes < n, other=0)
        tl.store(seen + i, tl.sum(values, axis=0))
        dl.sync_all()


@by_load_and_store
def check_barrier_all_in_a_kernel(world: Any) -> None:
    """A barrier that lets one PE through early, or late, shows as a sum of another round."""
    n, rounds = world.n_pes, 50
    data, seen = triton_dist.zeros(8, dtype=torch.int64), torch.zeros(rounds, dtype=torch.int64)
    all_to_all_rounds[(1,)](data, seen, rounds, 8)
    assert seen.tolist() == [sum(i * 10 + pe for pe in range(n)) for i in range(rounds)]


@triton.jit
def who(out):
    tl.store(out, dl.my_pe())
    tl.store(out + 1, dl.n_pes())


def check_who_am_i(world: Any) -> None:
    out = torch.zeros(2, dtype=torch.int32)
    who[(1,)](out)
    assert out.tolist() == [world.pe, world.n_pes] == [triton_dist.my_pe(), triton_dist.n_pes()]


if __name__ == "__main__":
    main(globals())
