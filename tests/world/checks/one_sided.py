"""Elements on other PEs: p and g, tiles; and in the same launch strided copies and atomics."""

# ruff: noqa: F401  # main() finds the imported checks by their names

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from atomics_of_all_pes import check_bits_of_all_pes, check_counts_are_exact, check_locks, check_swaps_lose_nothing
from atomics_only import check_atomics_only, check_compare_swap, check_increments_wrap_around
from elements import neighbours, rows, same
from harness import DTYPES, by_load_and_store, main, noise
from strided_copies import check_blocks, check_strided_copies, check_strided_copies_of_private_memory

import triton_dist
import triton_dist.language as dl


@triton.jit
def put_and_get(dst, back, src, pe):
    dl.p(dst, tl.load(src), pe)
    dl.quiet()
    tl.store(back, dl.g(dst, pe))


def check_single_elements(world: Any) -> None:
    left, right = neighbours(world)
    for dtype in DTYPES:
        dst, back = triton_dist.zeros(20, dtype=dtype), torch.zeros(20, dtype=dtype)
        mine, theirs = noise(20, dtype, world.pe), noise(20, dtype, left)
        for i in range(1, 19):
            put_and_get[(1,)](dst[i:], back[i:], mine[i:], right)
        triton_dist.barrier_all()
        assert same(back[1:19], mine[1:19]) and same(dst[1:19], theirs[1:19])
        assert not rows(back)[[0, 19]].any() and not rows(dst)[[0, 19]].any(), "neighbours"
        triton_dist.free(dst)


@triton.jit
def put_negative_zero(dst, pe):
    dl.p(dst, -0.0, pe)


def check_a_constant_keeps_its_sign(world: Any) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        dst = triton_dist.full(1, 1.0, dtype=dtype)
        put_negative_zero[(1,)](dst, neighbours(world)[1])
        triton_dist.barrier_all()
        assert same(dst, torch.tensor([-0.0], dtype=dtype)), dtype


@triton.jit
def exchange_tiles(dst, back, n, pe, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.store(dst + at, dl.my_pe() * 100 + at, pe, mask=at < n)
    dl.barrier(dl.TEAM_WORLD)
    tl.store(back + at, dl.load(dst + at, pe, mask=at < n + 1, other=-2))


@by_load_and_store
def check_tiles(world: Any) -> None:
    left, right = neighbours(world)
    dst, back = triton_dist.full((16,), -1, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    exchange_tiles[(1,)](dst, back, 5, right, 16)
    assert dst.tolist() == [100 * left + i for i in range(5)] + [-1] * 11
    assert back.tolist() == [100 * world.pe + i for i in range(5)] + [-1] + [-2] * 10


@triton.jit
def ask_teams(out):
    tl.store(out, dl.team_my_pe(dl.TEAM_WORLD))
    tl.store(out + 1, dl.team_n_pes(dl.TEAM_WORLD))
    for pe in range(dl.n_pes()):
        tl.store(out + 2 + pe, dl.team_translate_pe(dl.TEAM_WORLD, pe, dl.TEAM_WORLD) * 10 + dl.is_reachable(pe))
    tl.store(out + 2 + dl.n_pes(), dl.team_translate_pe(dl.TEAM_WORLD, dl.n_pes(), dl.TEAM_WORLD))


def check_teams(world: Any) -> None:
    out = torch.zeros(3 + world.n_pes, dtype=torch.int32)
    ask_teams[(1,)](out)
    assert out.tolist() == [world.pe, world.n_pes, *(10 * pe + world.is_reachable(pe) for pe in range(world.n_pes)), -1]


if __name__ == "__main__":
    main(globals())
