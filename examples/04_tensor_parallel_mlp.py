"""A tensor-parallel MLP whose communication goes on while it computes: y = gelu(x · A) · B, from triton_dist.kernels.

x and y [M, H] are shared by rows, A [H, F] by columns, B [F, H] by rows. One call gathers the rows of x and multiplies
them by this PE's columns of A, which gives this PE's columns of the middle; one multiplies these by its rows of B, adds
up what all PEs have, and leaves every PE with its rows of y. No PE ever waits for the host in between.

    torchrun --nproc-per-node 4 examples/04_tensor_parallel_mlp.py
"""

import argparse
import sys
import time

import torch
from common import random, report

import triton_dist
from triton_dist import kernels


def main() -> int:
    small = triton_dist.kind() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, size in (("M", 128), ("H", 128), ("F", 256)):
        parser.add_argument(f"-{name}", type=int, default=size if small else 32 * size)
    args = parser.parse_args()
    with triton_dist.init() as world:
        if args.M % world.n_pes or args.F % world.n_pes:
            parser.error(f"M and F must be multiples of {world.n_pes}, the number of PEs")
        rows, columns = args.M // world.n_pes, args.F // world.n_pes
        x = [random(rows, args.H, pe=pe, dtype=torch.bfloat16) for pe in range(world.n_pes)]
        a = [random(args.H, columns, pe=100 + pe, dtype=torch.bfloat16) / args.H**0.5 for pe in range(world.n_pes)]
        b = [random(columns, args.H, pe=200 + pe, dtype=torch.bfloat16) / args.F**0.5 for pe in range(world.n_pes)]
        x_here, a_here, b_here = (parts[world.pe].to(world.device) for parts in (x, a, b))

        start = time.perf_counter()
        middle = torch.nn.functional.gelu(kernels.all_gather_gemm(x_here, a_here))
        y = kernels.gemm_reduce_scatter(middle, b_here)
        triton_dist.barrier_all()
        seconds = time.perf_counter() - start  # with the compiler's share, and with choosing patterns by measurement

        whole = [torch.cat(parts, dim).to(world.device).float() for parts, dim in ((x, 0), (a, 1), (b, 0))]
        exact = torch.nn.functional.gelu(whole[0] @ whole[1]).bfloat16().float() @ whole[2]
        expected = exact[world.pe * rows : (world.pe + 1) * rows].cpu()
        # What rounding to bfloat16 may cost: the middle, which GELU rounds once more, and every PE's part of the sum.
        tolerance = (world.n_pes + 4) * 2**-8 * exact.abs().max().item()
        return report("04_tensor_parallel_mlp", y, expected, tolerance=tolerance, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
