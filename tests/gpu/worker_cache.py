"""Run a kernel with shmem ops and a plain one, check both, and say how many were compiled and how many were cached."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from triton import knobs

import triton_dist
import triton_dist.language as dl

N = 4096


@triton.jit
def exchange(inbox, outbox, arrived, out, N: tl.constexpr):
    dl.putmem_signal(inbox, outbox, N * 4, arrived, 1, dl.SIGNAL_SET, (dl.my_pe() + 1) % dl.n_pes())
    token = dl.signal_wait_until(arrived, dl.CMP_EQ, 1)
    offsets = tl.arange(0, N)
    tl.store(out + offsets, tl.load(dl.consume_token(inbox, token) + offsets))


@triton.jit
def double(x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


def main() -> int:
    seen = {True: 0, False: 0}

    def listen(*, cache_hit: bool, **_: object) -> None:
        seen[cache_hit] += 1

    knobs.compilation.listener = listen
    with triton_dist.init() as world:
        outbox = triton_dist.full(N, world.pe + 1.0)
        inbox = triton_dist.zeros(N)
        arrived = triton_dist.zeros(1, dtype=torch.int64)
        out = torch.zeros(N, device=world.device)
        exchange[(1,)](inbox, outbox, arrived, out, N=N)
        double[(1,)](out, N=N)
        expected = 2.0 * ((world.pe - 1) % world.n_pes + 1)
        assert (out == expected).all(), f"PE {world.pe} got {out[:4].tolist()}, expected {expected}"
        counts = triton_dist.from_tensor(torch.tensor([seen[False], seen[True]]))
        total = sum(triton_dist.peer(counts, pe).cpu() for pe in range(world.n_pes))
        if world.pe == 0:
            print(f"compiled {total[0]}, cached {total[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
