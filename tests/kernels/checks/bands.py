"""GEMMs whose sums are over PEs, by ``fused``, of more rows than a tile has, in bands: exactly once, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from epilogues import fractions, matrix, same, sums_of
from harness import main as run
from harness import raises, some

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.gemm.small_m import MAX_BANDS, MAX_ROWS

MOST = MAX_BANDS * MAX_ROWS
ROWS = (MAX_ROWS + 4, 200, 2 * MAX_ROWS, 300, MOST - 4, MOST)
"""Of all PEs, of whom 2 or 4 have as many each."""
SIZES = (*((m, 19, 40, torch.bfloat16) for m in ROWS), (200, 40, 7, torch.float16))


def same_sums(function: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> None:
    """With B by rows and by columns, and in a part of a larger tensor, whose other rows stay as they are."""
    for matrix_b in (b, b.t().contiguous().t()):
        same(function(a, matrix_b, algorithm="fused"), exact)
    out = torch.full((len(exact) + 2, b.shape[1]), float("nan"), dtype=a.dtype)
    same(function(a, b, out[1:-1], algorithm="fused"), exact)
    assert out[0].isnan().all() and out[-1].isnan().all(), "rows beside the result were written"


def check_sums_for_all(world: triton_dist.World) -> None:
    for m, n, k, dtype in some((*SIZES, (MAX_ROWS + 1, 19, 40, torch.bfloat16)), 3):
        same_sums(kernels.gemm_all_reduce, *sums_of(world, m, n, k, dtype))


def check_sums_of_shards(world: triton_dist.World) -> None:
    for m, n, k, dtype in some(SIZES, 3):
        a, b, exact = sums_of(world, m, n, k, dtype)
        same_sums(kernels.gemm_reduce_scatter, a, b, exact.chunk(world.n_pes)[world.pe])


def check_bands_with_epilogues(world: triton_dist.World) -> None:
    m, n, k, dtype = 300, 21, 16, torch.bfloat16
    a, b, exact = sums_of(world, m, n, k, dtype)
    each = m // world.n_pes
    mine = slice(world.pe * each, world.pe * each + each)
    bias, residual = fractions(n, seed=1), matrix(m, n, 2, dtype)
    for with_bias, with_residual in product((False, True), (False, True)):
        total = exact + with_bias * bias.double() + with_residual * residual.double()
        given = {"bias": bias} if with_bias else {}
        whole, own = ({"residual": residual}, {"residual": residual[mine]}) if with_residual else ({}, {})
        same(kernels.gemm_all_reduce(a, b, **given, **whole, algorithm="fused"), total)
        same(kernels.gemm_reduce_scatter(a, b, **given, **own, algorithm="fused"), total[mine])


def check_numbers_of_rows_in_turn(world: triton_dist.World) -> None:
    """Bands and tiles of all rows share no slots that one leaves dirty."""
    for m in (200, 16, MOST, 128, 132, 200, 4, 300):
        a, b, exact = sums_of(world, m, 24, 24, torch.bfloat16)
        same(kernels.gemm_all_reduce(a, b, algorithm="fused"), exact)
        same(kernels.gemm_reduce_scatter(a, b, algorithm="fused"), exact.chunk(world.n_pes)[world.pe])


def check_what_fits_in_no_bands(world: triton_dist.World) -> None:
    b = torch.ones(8, 8)
    with raises(ValueError, f"takes up to {MAX_ROWS} rows, {MOST} if there are 2, 4 or 8 PEs, counting"):
        kernels.gemm_all_reduce(torch.ones(MOST + 1, 8), b, algorithm="fused")
    for rows in (MOST + world.n_pes, 2 * MAX_ROWS + 1):
        with raises(ValueError, f"{MOST} if there are 2, 4 or 8 PEs with as many each"):
            kernels.gemm_reduce_scatter(torch.ones(rows, 8), b, algorithm="fused")


if __name__ == "__main__":
    run(globals())
