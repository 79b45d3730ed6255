"""GEMM + all-reduce by ``fused``, of more rows than a tile has, in bands: exactly once, with one rounding."""

from __future__ import annotations

import torch
from epilogues import fractions, matrix, same, sums_of
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.gemm.small_m import MAX_BANDS, MAX_ROWS

MOST = MAX_BANDS * MAX_ROWS
ROWS = (MAX_ROWS + 1, 200, 2 * MAX_ROWS, 300, MOST - 1, MOST)


def check_rows_in_bands(world: triton_dist.World) -> None:
    for m, n, k, dtype in (*((m, 19, 40, torch.bfloat16) for m in ROWS), (200, 40, 7, torch.float16)):
        a, b, exact = sums_of(world, m, n, k, dtype)
        for matrix_b in (b, b.t().contiguous().t()):
            same(kernels.gemm_all_reduce(a, matrix_b, algorithm="fused"), exact)
        out = torch.full((m + 2, n), float("nan"), dtype=dtype)
        same(kernels.gemm_all_reduce(a, b, out[1:-1], algorithm="fused"), exact)
        assert out[0].isnan().all() and out[-1].isnan().all(), "rows beside the result were written"


def check_rows_in_bands_with_epilogues(world: triton_dist.World) -> None:
    m, n, k, dtype = 300, 21, 16, torch.bfloat16
    a, b, exact = sums_of(world, m, n, k, dtype)
    bias, residual = fractions(n, seed=1), matrix(m, n, 2, dtype)
    found = kernels.gemm_all_reduce(a, b, bias=bias, residual=residual, algorithm="fused")
    same(found, exact + bias.double() + residual.double())
    found = kernels.gemm_all_reduce(a, b, residual=residual, algorithm="fused")
    same(found, exact + residual.double())


def check_numbers_of_rows_in_turn(world: triton_dist.World) -> None:
    """Bands and tiles of all rows share no slots that one leaves dirty."""
    for m in (200, 16, MOST, 128, 129, 200, 1, 300):
        a, b, exact = sums_of(world, m, 24, 24, torch.bfloat16)
        same(kernels.gemm_all_reduce(a, b, algorithm="fused"), exact)


def check_what_fits_in_no_bands(world: triton_dist.World) -> None:
    a, b = torch.ones(MOST + 1, 8), torch.ones(8, 8)
    with raises(ValueError, f"takes up to {MAX_ROWS} rows, {MOST} if there are 2, 4 or 8 PEs"):
        kernels.gemm_all_reduce(a, b, algorithm="fused")
    with raises(ValueError, f"takes up to {MAX_ROWS} rows, counting"):
        kernels.gemm_reduce_scatter(torch.ones(2 * MAX_ROWS, 8), b, algorithm="fused")


if __name__ == "__main__":
    run(globals())
