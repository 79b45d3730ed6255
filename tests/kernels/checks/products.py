"""Matrix products with communication, against PyTorch: all patterns that run without a GPU, sizes that fit no tile."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.gemm.all_scatter import PATTERNS

together = settings(max_examples=3, deadline=None, derandomize=True, database=None)  # all PEs draw the same
SIZES = st.integers(1, 50)
DTYPES = st.sampled_from((torch.float16, torch.bfloat16, torch.float32))


def matrix(rows: int, columns: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, whose products and sums any float here holds exactly."""
    return torch.randint(-2, 3, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_columns(b: torch.Tensor) -> torch.Tensor:
    return b.t().contiguous().t()


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(found.float(), expected), f"{found} is not {expected}"


def check_gemm_all_scatter(world: Any) -> None:
    @together
    @given(
        st.sampled_from(("auto", *(name for name in PATTERNS if name not in ("copy_engine", "warp_specialized")))),
        SIZES, SIZES, SIZES, DTYPES, st.booleans(),
    )  # fmt: skip
    def example(pattern: str, m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
        a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(world.n_pes)]
        b = by_columns(parts[world.pe]) if transposed else parts[world.pe]
        out = triton_dist.full((m, n * world.n_pes), 7.0, dtype=dtype)
        for _ in range(2):
            assert kernels.gemm_all_scatter(a, b, out, pattern=pattern) is out
            same(out, a.float() @ torch.cat(parts, 1).float())
        triton_dist.free(out)

    example()


def check_all_gather_gemm(world: Any) -> None:
    @together
    @given(SIZES, SIZES, SIZES, DTYPES, st.booleans())
    def example(m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
        parts, b = [matrix(m, k, 1 + pe, dtype) for pe in range(world.n_pes)], matrix(k, n, 9, dtype)
        found = kernels.all_gather_gemm(parts[world.pe], by_columns(b) if transposed else b)
        same(found, torch.cat(parts).float() @ b.float())

    example()


def check_gemm_reduce_scatter_and_all_reduce(world: Any) -> None:
    @together
    @given(SIZES, SIZES, SIZES, DTYPES)
    def example(m: int, n: int, k: int, dtype: torch.dtype) -> None:
        m *= world.n_pes
        parts = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
        expected = torch.stack([a.float() @ b.float() for a, b in parts]).to(dtype).float().sum(0)
        rows = m // world.n_pes
        found = kernels.gemm_reduce_scatter(*parts[world.pe])
        same(found, expected.to(dtype).float()[world.pe * rows : (world.pe + 1) * rows])
        out = triton_dist.empty(m, n, dtype=dtype)
        same(kernels.gemm_all_reduce(*parts[world.pe], out), expected.to(dtype).float())
        triton_dist.free(out)

    example()


def check_mistakes(world: Any) -> None:
    a, b = torch.ones(4 * world.n_pes, 6), torch.ones(6, 5)
    with raises(ValueError, "6 columns, and 5 rows"):
        kernels.gemm_all_scatter(a, b[:5])
    with raises(ValueError, "must be auto, bulk_synchronous"):
        kernels.gemm_all_scatter(a, b, pattern="fast")
    with raises(ValueError, "needs a Hopper GPU"):
        kernels.gemm_all_scatter(a, b, pattern="warp_specialized")
    with raises(ValueError, "there is bulk_synchronous"):
        kernels.all_gather_gemm(a, b, pattern="copy_engine")
    with raises(ValueError, "pattern ring needs a Hopper GPU"):
        kernels.gemm_reduce_scatter(a, b, pattern="ring")
    with raises(ValueError, "a is of torch.float32, and b of torch.float16"):
        kernels.all_gather_gemm(a, b.half())
    with raises(ValueError, "got b of torch.int32"):
        kernels.all_gather_gemm(a, b.int())
    with raises(ValueError, "a must be a matrix"):
        kernels.all_gather_gemm(a[0], b)
    with raises(TypeError, "b must be a torch.Tensor"):
        kernels.all_gather_gemm(a, 3)
    with raises(ValueError, "must have contiguous rows"):
        kernels.all_gather_gemm(a.t(), torch.ones(a.shape[0], 3))
    with raises(ValueError, "out must be contiguous, of shape"):
        kernels.all_gather_gemm(a, b, torch.ones(2, 2))
    with raises(ValueError, "no elements"):
        kernels.all_gather_gemm(a[:0], b)
    out = torch.ones(a.shape[0], 5 * world.n_pes)
    with raises(ValueError, "out must be symmetric"):
        kernels.gemm_all_scatter(a, b, out)
    if world.n_pes > 1:
        with raises(ValueError, "cannot share equally"):
            kernels.gemm_reduce_scatter(a[:-1], b)


if __name__ == "__main__":
    run(globals())
