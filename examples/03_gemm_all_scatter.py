"""GEMM and all-scatter in one kernel: C = A · B with B split by columns, and all of C on every PE.

A [M, K] is on every PE, B's columns [K, N / n_pes] on each its own. A program computes one tile of its PE's columns of
C and stores it straight from registers into the C of every PE: a tile travels while others are still being computed,
and no buffer or second kernel is needed. PEs start their rounds of stores at different peers, so that no one is stored
to by all.

    torchrun --nproc-per-node 4 examples/03_gemm_all_scatter.py
"""

import argparse
import sys
import time

import torch
import triton
import triton.language as tl
from common import random, report

import triton_dist
import triton_dist.language as dl


@triton.jit
def gemm_all_scatter(a, b, c, K, N, N_LOCAL, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    me = dl.my_pe()
    n_pes = dl.n_pes()
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)

    tile = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_tile = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        b_tile = tl.load(b + (k + inner)[:, None] * N_LOCAL + columns[None, :])
        tile = tl.dot(a_tile, b_tile, tile)

    offsets = rows[:, None] * N + (me * N_LOCAL + columns)[None, :]
    for i in range(n_pes):
        pe = (me + i) % n_pes
        tl.store(dl.symm_at(c, pe) + offsets, tile.to(c.dtype.element_ty))


def main() -> int:
    small = triton_dist.kind() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("M", "N", "K"):
        parser.add_argument(f"-{name}", type=int, default=256 if small else 4096)
    args = parser.parse_args()
    block_m, block_n, block_k = (64, 64, 64) if small else (128, 128, 64)
    with triton_dist.init() as world:
        n_local = args.N // world.n_pes
        if n_local * world.n_pes != args.N or args.M % block_m or n_local % block_n or args.K % block_k:
            parser.error(f"M, N / {world.n_pes} and K must be multiples of {block_m}, {block_n} and {block_k}")
        a = random(args.M, args.K, pe=-1, dtype=torch.float16)  # the same on every PE
        b = [random(args.K, n_local, pe=pe, dtype=torch.float16) for pe in range(world.n_pes)]
        c = triton_dist.zeros(args.M, args.N, dtype=torch.float16)
        a_here, b_here = a.to(world.device), b[world.pe].to(world.device)

        start = time.perf_counter()
        gemm_all_scatter[(args.M // block_m, n_local // block_n)](
            a_here, b_here, c, args.K, args.N, n_local, block_m, block_n, block_k, num_warps=8
        )
        triton_dist.barrier_all()  # a kernel's end completes its stores; the barrier waits for every PE's kernel
        seconds = time.perf_counter() - start  # with the compiler's share

        device = "cpu" if small else world.device
        expected = (a.to(device).float() @ torch.cat(b, dim=1).to(device).float()).cpu()
        half_a_step = 2**-11 * expected.abs().max().item()  # what rounding to float16 alone may cost
        return report("03_gemm_all_scatter", c, expected, tolerance=1.5 * half_a_step, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
