"""Strided copies of elements and of blocks: iput, iget, ibput, ibget."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from elements import neighbours, rows, same
from harness import DTYPES, noise, together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl

SIZE = 1000


@triton.jit
def copy_strided(dst, src, dst_stride, src_stride, nelems, pe, GET: tl.constexpr):
    if GET:
        dl.iget(dst, src, dst_stride, src_stride, nelems, pe)
    else:
        dl.iput(dst, src, dst_stride, src_stride, nelems, pe)


@st.composite
def walks(draw: st.DrawFn, count: int) -> range:
    """Places of ``count`` elements that lie in SIZE, at any stride in any direction."""
    longest = (SIZE - 1) // max(1, count - 1)
    stride = draw(st.integers(1, min(longest, 9))) * draw(st.sampled_from((1, -1)))
    begin = draw(st.integers(0, SIZE - 1 - (count - 1) * abs(stride))) if count else 0
    begin += max(0, count - 1) * abs(stride) * (stride < 0)
    return range(begin, begin + count * stride, stride)


@st.composite
def strided_copies(draw: st.DrawFn) -> tuple[range, range]:
    count = draw(st.one_of(st.integers(0, 8), st.integers(9, 100)))
    return draw(walks(count)), draw(walks(count))


def check_strided_copies(world: Any) -> None:
    left, right = neighbours(world)
    here, there = triton_dist.empty(SIZE * 8, dtype=torch.uint8), triton_dist.empty(SIZE * 8, dtype=torch.uint8)

    @together
    @given(strided_copies(), st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
    def example(walks: tuple[range, range], dtype: torch.dtype, seed: int, get: bool) -> None:
        to, source = walks
        src, dst = here.view(dtype)[:SIZE], there.view(dtype)[:SIZE]
        src.copy_(noise(SIZE, dtype, 1000 * world.pe + seed))
        dst.copy_(noise(SIZE, dtype, seed + 99_999))
        triton_dist.barrier_all()
        copy_strided[(1,)](dst[to.start :], src[source.start :], to.step, source.step, len(to), right, get)
        triton_dist.barrier_all()
        expected = noise(SIZE, dtype, seed + 99_999)
        sent = noise(SIZE, dtype, 1000 * (right if get else left) + seed)
        rows(expected)[list(to)] = rows(sent)[list(source)]
        assert same(dst, expected) and same(src, noise(SIZE, dtype, 1000 * world.pe + seed))

    example()


def check_strided_copies_of_private_memory(world: Any) -> None:
    left, right = neighbours(world)
    dst, back = triton_dist.zeros(10, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    copy_strided[(1,)](dst[1:], torch.arange(9, dtype=torch.int32) + 100 * world.pe, 3, 4, 3, right, False)
    triton_dist.barrier_all()
    assert dst.tolist() == [0, 100 * left, 0, 0, 100 * left + 4, 0, 0, 100 * left + 8, 0, 0]
    copy_strided[(1,)](back[5:], dst[1:], -2, 3, 3, left, True)
    left = (left - 1) % world.n_pes
    assert back.tolist() == [0, 100 * left + 8, 0, 100 * left + 4, 0, 100 * left]


@triton.jit
def copy_blocks(dst, src, dst_stride, src_stride, bsize, nblocks, pe, GET: tl.constexpr):
    if GET:
        dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe)
    else:
        dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe)


@st.composite
def block_copies(draw: st.DrawFn) -> tuple[int, int, list[int], list[int]]:
    """The elements of a block, their number, and the places of its first elements in ``dst`` and ``src``."""
    bsize, count = draw(st.integers(0, 20)), draw(st.integers(0, 12))

    def begins(least: int) -> list[int]:
        longest = (SIZE - bsize) // max(1, count)
        stride = draw(st.integers(min(least, longest), min(longest, least + 30)))
        first = draw(st.integers(0, SIZE - bsize - max(0, count - 1) * stride))
        places = [first + stride * block for block in range(count)]
        return places[::-1] if draw(st.booleans()) else places

    return bsize, count, begins(bsize), begins(0)


def check_blocks(world: Any) -> None:
    left, right = neighbours(world)
    here, there = triton_dist.empty(SIZE * 8, dtype=torch.uint8), triton_dist.empty(SIZE * 8, dtype=torch.uint8)

    def stride(places: list[int], bsize: int) -> int:
        return places[1] - places[0] if len(places) > 1 else bsize

    @together
    @given(block_copies(), st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
    def example(blocks: tuple[int, int, list[int], list[int]], dtype: torch.dtype, seed: int, get: bool) -> None:
        bsize, count, to, source = blocks
        src, dst = here.view(dtype)[:SIZE], there.view(dtype)[:SIZE]
        src.copy_(noise(SIZE, dtype, 1000 * world.pe + seed))
        dst.copy_(noise(SIZE, dtype, seed + 99_999))
        triton_dist.barrier_all()
        begins = [places[0] if places else 0 for places in (to, source)]
        strides = stride(to, bsize), stride(source, bsize)
        copy_blocks[(1,)](dst[begins[0] :], src[begins[1] :], *strides, bsize, count, right, get)
        triton_dist.barrier_all()
        expected = noise(SIZE, dtype, seed + 99_999)
        sent = noise(SIZE, dtype, 1000 * (right if get else left) + seed)
        for into, out_of in zip(to, source, strict=True):
            rows(expected)[into : into + bsize] = rows(sent)[out_of : out_of + bsize]
        assert same(dst, expected) and same(src, noise(SIZE, dtype, 1000 * world.pe + seed))

    example()
