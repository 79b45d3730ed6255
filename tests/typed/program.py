"""A program as users write it, for type checkers: kernels that pass plain numbers, constants and scalars, and a host.

It also runs, with one PE or more.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton.jit
def kernel(x: Any, words: Any, signal: Any, n: int, SCOPE: tl.constexpr) -> None:
    me = dl.my_pe()
    following = (me + 1) % dl.n_pes()
    dl.putmem(x, x + n, 4 * n, 0)
    dl.putmem(x, x + n, 4, following, scope="warp")
    dl.put_nbi(x, x + n, n, following, scope=SCOPE)
    dl.p(x, 1.5, following)
    dl.p(words, 3, 0)
    dl.atomic_add(words, 1, following, sem="release", scope="gpu")
    before = dl.atomic_compare_swap(words, -1, me, 0)
    dl.quiet()
    dl.fence()
    dl.signal_op(signal, 1, dl.SIGNAL_ADD, following)
    token = dl.signal_wait_until(signal, dl.CMP_GE, 1)
    value = tl.load(dl.consume_token(x, token)) + dl.consume_token(1, token) + before
    dl.store(x + tl.arange(0, 4), value, me)
    tile = dl.load(x + tl.arange(0, 4), me, mask=tl.arange(0, 4) < n, other=0.0)
    tl.store(x + tl.arange(0, 4), tile)
    dl.wait_until_all(words, 1, None, dl.CMP_NE, -1)
    dl.broadcast(dl.TEAM_WORLD, x + 8, x, 4, 0, scope="thread")
    dl.barrier(dl.TEAM_WORLD)
    dl.barrier_all("block")


def main() -> None:
    with triton_dist.init() as world:
        x = triton_dist.zeros(16, dtype=torch.float32)
        words = triton_dist.full((4,), 0, dtype=torch.int32)
        signal = triton_dist.zeros((1,), dtype=torch.int64)
        kernel[(1,)](x, words, signal, 4, "block")
        triton_dist.put(x, x.clone(), world.pe)
        triton_dist.reduce(x, x, "max", team=triton_dist.team_world())
        team = world.team_world.split_strided(0, 1, 1)
        if team:
            triton_dist.barrier(team)
            assert team.translate_pe(0, world.team_world) == 0
        theirs: torch.Tensor = triton_dist.peer(x, (world.pe + 1) % world.n_pes)
        assert theirs.shape == (16,)
        triton_dist.barrier_all()


if __name__ == "__main__":
    main()
