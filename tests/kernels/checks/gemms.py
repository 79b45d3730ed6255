"""GEMMs with communication, against PyTorch: all algorithms that run without a GPU, sizes that fit no tile."""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import example as example_of
from hypothesis import strategies as st

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.collectives.all_gather import operand_algorithm
from triton_dist.kernels.gemm import all_gather_gemm as gathers
from triton_dist.kernels.gemm import gemm_all_scatter as scatters
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.kernels.gemm.small_m import fits_small_m

together = settings(  # all PEs draw the same
    max_examples=3, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
SIZES = st.integers(1, 50)
DTYPES = st.sampled_from((torch.float16, torch.bfloat16, torch.float32))
FP8_TYPE = torch.float8_e4m3fn
FP8 = st.sampled_from((FP8_TYPE, torch.float8_e5m2))


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
        st.sampled_from(("auto", *(name for name in ALGORITHMS if name not in ("copy_engine", "warp_specialized")))),
        SIZES, SIZES, SIZES, DTYPES, st.booleans(),
    )  # fmt: skip
    def example(algorithm: str, m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
        a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(world.n_pes)]
        b = by_columns(parts[world.pe]) if transposed else parts[world.pe]
        out = triton_dist.full((m, n * world.n_pes), 7.0, dtype=dtype)
        for _ in range(2):
            assert kernels.gemm_all_scatter(a, b, out, algorithm=algorithm) is out
            same(out, a.float() @ torch.cat(parts, 1).float())
        triton_dist.free(out)

    example()


def check_products_that_are_too_large_for_words(world: Any) -> None:
    """Without overlap, such are sent between barriers. Smaller ones, and parts of a word, come side by side."""
    ways = "low_latency", "exchange", ""
    for rows, columns in ((3, 1), (5, 3), (7, 2), (1, 16)):
        parts = [matrix(5, columns, pe, torch.bfloat16) for pe in range(world.n_pes)]
        a, out = (
            matrix(rows, 5, 1, torch.bfloat16),
            triton_dist.empty(rows, columns * world.n_pes, dtype=torch.bfloat16),
        )
        expected = a.float() @ torch.cat(parts, 1).float()
        for way in ways if columns % 2 == 0 else ("low_latency", ""):
            with mock.patch.object(scatters, "side_by_side_algorithm", return_value=way):
                kernels.gemm_all_scatter(a, parts[world.pe], out.fill_(7), algorithm="bulk_synchronous")
            same(out, expected)
            triton_dist.barrier_all()


def check_all_gather_gemm(world: Any) -> None:
    @together
    @given(SIZES, SIZES, SIZES, DTYPES, st.booleans())
    def example(m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
        parts, b = [matrix(m, k, 1 + pe, dtype) for pe in range(world.n_pes)], matrix(k, n, 9, dtype)
        found = kernels.all_gather_gemm(parts[world.pe], by_columns(b) if transposed else b)
        same(found, torch.cat(parts).float() @ b.float())

    example()


def check_operands_that_are_gathered_by_exchange(world: Any) -> None:
    """As on GPUs those are of some size; of shards of rows, too, and of rows that are no whole words, which are not."""
    bf16 = torch.bfloat16
    for dtype, each, k in ((bf16, 9, 66), (torch.float16, 1, 2), (torch.float32, 5, 7), (bf16, 3, 7)):
        m = each * world.n_pes
        whole, b = matrix(m, k, 1, dtype), matrix(k, 8, 9, dtype)
        possible = each * k * dtype.itemsize % 4 == 0
        choose = (lambda *given: "exchange") if possible else operand_algorithm
        with mock.patch.object(gathers, "operand_algorithm", side_effect=choose) as chosen:
            for rows in (m, m - each // 2):  # with fewer the last PE has fewer
                c = -(-rows // world.n_pes)
                part = whole[:rows][world.pe * c :][:c].contiguous()
                found = kernels.all_gather_gemm(part, b, rows=rows, algorithm="bulk_synchronous")
                same(found, whole[:rows].float() @ b.float())
            assert chosen.called


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
        same(functional.gemm_all_reduce(*parts[world.pe]), expected.to(dtype).float())
        if fits_small_m(m, world.n_pes) and len(world.hosts) == 1:  # each PE stores its own result: any memory will do
            out = torch.empty(m, n, dtype=dtype)
            assert kernels.gemm_all_reduce(*parts[world.pe], out, algorithm="fused") is out
            same(out, expected.to(dtype).float())
            same(functional.gemm_all_reduce(*parts[world.pe], algorithm="fused"), expected.to(dtype).float())

    example()


def check_no_rows(world: Any) -> None:
    """A server may have no token in a step: results have no rows, and the next call is as all others."""
    n, n_pes = 5, world.n_pes
    a, b = torch.ones(2 * n_pes, 6), torch.ones(6, n)
    bias, residual = torch.ones(n), torch.ones(2 * n_pes, n)
    for rows in (0, 2, 0):
        x, own = a[: rows * n_pes], a[:rows]
        assert kernels.all_gather_gemm(own, b, bias=bias).shape == (rows * n_pes, n)
        assert kernels.gemm_reduce_scatter(x, b, residual=residual[:rows]).shape == (rows, n)
        assert kernels.gemm_all_reduce(x, b, residual=residual[: rows * n_pes]).shape == (rows * n_pes, n)
        assert kernels.gemm_all_scatter(x, b).shape == (rows * n_pes, n * n_pes)
        assert kernels.gemm_all_scatter(x, b, algorithm="bulk_synchronous").shape == (rows * n_pes, n * n_pes)
    with raises(ValueError, "algorithm must be"):
        kernels.all_gather_gemm(a[:0], b, algorithm="fast")
    out = torch.full((0, n), 7.0)
    assert kernels.gemm_reduce_scatter(a[:0], b, out) is out
    for function in (functional.all_gather_gemm, functional.gemm_reduce_scatter, functional.gemm_all_reduce):
        assert function(a[:0], b).shape == (0, n)
        x, y = a[:0].clone().requires_grad_(), b.clone().requires_grad_()
        function(x, y).sum().backward()
        assert x.grad is not None and x.grad.shape == x.shape and y.grad is not None and not y.grad.any()
    assert functional.gemm_all_scatter(a[:0].view(0, 1, 6), b).shape == (0, 1, n * n_pes)


def check_fp8_operands(world: Any) -> None:
    """Of both types, with results of all types, and scales; every operation and algorithm."""

    @together
    @given(SIZES, SIZES, SIZES, FP8, FP8, DTYPES, st.booleans())
    def example(
        m: int, n: int, k: int, type_a: torch.dtype, type_b: torch.dtype, dtype: torch.dtype, transposed: bool
    ) -> None:
        m *= world.n_pes
        rows, each = m // world.n_pes, slice(world.pe * m // world.n_pes, (world.pe + 1) * m // world.n_pes)
        operands = [(matrix(m, k, 2 * pe, type_a), matrix(k, n, 2 * pe + 1, type_b)) for pe in range(world.n_pes)]
        (a, b), first = operands[world.pe], operands[0][0]
        b = by_columns(b) if transposed else b
        scales: dict[str, Any] = {"scale_a": torch.tensor(0.5), "scale_b": 2.0**-1}
        products = [x.float() @ y.float() / 4 for x, y in operands]
        whole = triton_dist.empty(m, n, dtype=dtype)
        for algorithm in ("auto", *(name for name in ALGORITHMS if name not in ("copy_engine", "warp_specialized"))):
            scattered = triton_dist.full((m, n * world.n_pes), 7.0, dtype=dtype)
            assert kernels.gemm_all_scatter(first, b, scattered, algorithm=algorithm, **scales) is scattered
            same(scattered, torch.cat([first.float() @ y.float() / 4 for _, y in operands], 1))
            triton_dist.free(scattered)
        gathered = kernels.all_gather_gemm(a[each], b, out_dtype=dtype, **scales)
        assert gathered.dtype == dtype
        same(
            gathered,
            torch.cat([x[pe * rows : (pe + 1) * rows] for pe, (x, _) in enumerate(operands)]).float() @ b.float() / 4,
        )
        for algorithm in ("auto", *REDUCE):  # which are right, or refused
            with suppress(ValueError) if algorithm not in ("auto", "bulk_synchronous") else nullcontext():
                part = kernels.gemm_reduce_scatter(a, b, out_dtype=dtype, algorithm=algorithm, **scales)
                assert part.dtype == dtype
                same(part, sum(products)[each])
                same(kernels.gemm_all_reduce(a, b, whole.fill_(7), algorithm=algorithm, **scales), sum(products))
        triton_dist.free(whole)


def check_small_m(world: Any) -> None:
    """Also with several tiles for a program."""

    @together
    @given(st.integers(1, 30), st.integers(1, 200), SIZES, DTYPES, st.booleans())
    @example_of(16, 200, 300, torch.bfloat16, False)
    def example(m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> None:
        every = m * world.n_pes
        parts = [(matrix(every, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
        products = torch.stack([a.float() @ b.float() for a, b in parts]).to(dtype).float()
        expected = products.sum(0).to(dtype).float()
        a, b = parts[world.pe]
        b = by_columns(b) if transposed else b
        out = triton_dist.full((m, n), 7.0, dtype=dtype)
        for _ in range(2):
            found = kernels.gemm_reduce_scatter(a, b, algorithm="fused")
            same(found, expected[world.pe * m : (world.pe + 1) * m])
            same(kernels.gemm_all_reduce(a[:m], b, out, algorithm="fused"), expected[:m])
        triton_dist.free(out)

    example()


def powers(*shape: int, seed: int) -> torch.Tensor:
    """Scales whose products with small integers are exact."""
    return 2.0 ** torch.randint(-2, 2, shape, generator=torch.Generator().manual_seed(seed))


def scaled(x: torch.Tensor, scale: torch.Tensor, *block: int) -> torch.Tensor:
    """``x``, of which each block is multiplied by its scale."""
    whole = scale.double().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return x.double() * whole[: x.shape[0], : x.shape[1]]


def check_fp8_with_scales_of_blocks(world: Any) -> None:
    """Every operation and algorithm; K of one block and of several, columns that end within a block."""
    n_pes = world.n_pes
    for m, n, k, transposed in ((1, 5, 128, False), (3, 130, 256, True), (33, 128, 384, False)):
        every = m * n_pes
        operands, scales, products = [], [], []
        for pe in range(n_pes):
            a, b = matrix(every, k, 2 * pe, torch.float8_e4m3fn), matrix(k, n, 2 * pe + 1, torch.float8_e5m2)
            scale_a, scale_b = powers(every, k // 128, seed=pe), powers(k // 128, -(-n // 128), seed=9 + pe)
            operands.append((scaled(a, scale_a, 1, 128), scaled(b, scale_b, 128, 128)))
            products.append(operands[-1][0] @ operands[-1][1])
            if pe == world.pe:
                mine, scales = (a, by_columns(b) if transposed else b), [scale_a, scale_b]
        rows = slice(world.pe * m, (world.pe + 1) * m)
        options: dict[str, Any] = {"scale_b": scales[1], "out_dtype": torch.float32}
        found = kernels.all_gather_gemm(mine[0][rows], mine[1], scale_a=scales[0][rows], **options)
        gathered = torch.cat([a[pe * m : (pe + 1) * m] for pe, (a, _) in enumerate(operands)])
        same(found, (gathered @ operands[world.pe][1]).float())
        first, scale_a = matrix(every, k, 0, torch.float8_e4m3fn), powers(every, k // 128, seed=0)
        for algorithm in ("auto", *(name for name in ALGORITHMS if name not in ("copy_engine", "warp_specialized"))):
            found = kernels.gemm_all_scatter(first, mine[1], scale_a=scale_a, algorithm=algorithm, **options)
            same(found, torch.cat([operands[0][0] @ b for _, b in operands], 1).float())
        for algorithm in ("auto", "bulk_synchronous"):
            options |= {"scale_a": scales[0], "algorithm": algorithm, "bias": torch.ones(n)}
            same(kernels.gemm_reduce_scatter(*mine, **options), (sum(products) + 1)[rows].float())
            same(kernels.gemm_all_reduce(*mine, **options), (sum(products) + 1).float())


def check_fp8_with_scales_of_rows(world: Any) -> None:
    """Every operation and algorithm; one row, primes, and columns that fill no tile; with epilogues."""
    n_pes = world.n_pes
    for m, n, k, transposed in ((1, 16, 144, False), (7, 48, 31, True)):
        every = m * n_pes
        operands, products = [], []
        for pe in range(n_pes):
            a, b = matrix(every, k, 2 * pe, torch.float8_e4m3fn), matrix(k, n, 2 * pe + 1, torch.float8_e5m2)
            scale_a, scale_b = powers(every, 1, seed=pe), powers(1, n, seed=9 + pe)
            operands.append((a, by_columns(b) if transposed else b, scale_a, scale_b))
            products.append((a.double() * scale_a) @ (b.double() * scale_b))
        a, b, scale_a, scale_b = operands[world.pe]
        rows, bias = slice(world.pe * m, (world.pe + 1) * m), torch.arange(n).float()
        options: dict[str, Any] = {"scale_b": scale_b, "out_dtype": torch.float32, "bias": bias}
        parts = [(x[pe * m : (pe + 1) * m], s[pe * m : (pe + 1) * m]) for pe, (x, _, s, _) in enumerate(operands)]
        of_all = torch.cat([s for _, s in parts])
        gathered = torch.cat([x.double() for x, _ in parts]) * of_all @ (b.double() * scale_b) + bias
        for scale in (scale_a[rows], of_all):  # as torch's fused operator takes them: this PE's, or all rows'
            same(kernels.all_gather_gemm(a[rows], b, scale_a=scale, **options), gathered.float())
        gate, up = gathered[:, ::2].float(), gathered[:, 1::2].float()
        found = kernels.all_gather_gemm(a[rows], b, scale_a=scale_a[rows], activation="swiglu", **options)
        torch.testing.assert_close(found, torch.nn.functional.silu(gate) * up, rtol=1e-4, atol=1e-3)
        first, _, scale_of_first, _ = operands[0]
        wide = torch.cat([first.double() * scale_of_first @ (y.double() * s) for _, y, _, s in operands], 1)
        for algorithm in ("auto", *(name for name in ALGORITHMS if name not in ("copy_engine", "warp_specialized"))):
            how = {**options, "bias": None, "scale_a": scale_of_first, "algorithm": algorithm}
            same(kernels.gemm_all_scatter(first, b, **how), wide.float())
        residual = torch.ones(every, n)
        total = (sum(products) + bias + 1).float()
        for algorithm in ("auto", "bulk_synchronous"):
            how = {**options, "scale_a": scale_a, "algorithm": algorithm}
            same(kernels.gemm_reduce_scatter(a, b, residual=residual[rows], **how), total[rows])
            same(kernels.gemm_all_reduce(a, b, residual=residual, **how), total)


def check_scales_of_rows_of_more_dimensions(world: Any) -> None:
    """The functional forms, which take scales as torch's fused operators do: of the dimensions of ``a``."""
    n, k = 32, 64
    whole, scale = matrix(2 * 3 * world.n_pes, k, 1, FP8_TYPE), powers(2 * 3 * world.n_pes, 1, seed=2)
    whole, scale = whole.view(2, 3 * world.n_pes, k), scale.view(2, 3 * world.n_pes, 1)
    b, scale_b = by_columns(matrix(k, n, 3, FP8_TYPE)), powers(1, n, seed=4)
    expected = (whole.double() * scale) @ (b.double() * scale_b)
    mine = slice(3 * world.pe, 3 * world.pe + 3)
    options: dict[str, Any] = {"scale_b": scale_b, "out_dtype": torch.float32}
    gather = partial(functional.all_gather_gemm, whole[:, mine].contiguous(), b, gather_dim=1, **options)
    for of_a in (scale[:, mine].contiguous(), scale):
        assert torch.equal(gather(scale_a=of_a), expected.float())
    scattered = functional.gemm_reduce_scatter(whole, b, scatter_dim=1, scale_a=scale, **options)
    assert torch.equal(scattered, world.n_pes * expected[:, mine].float())
    summed = functional.gemm_all_reduce(whole, b, scale_a=scale, **options)
    assert torch.equal(summed, world.n_pes * expected.float())
    assert torch.equal(
        functional.gemm_all_scatter(whole, b, scale_a=scale, **options), expected.float().repeat(1, 1, world.n_pes)
    )


def check_mistakes_with_scales_of_rows(world: Any) -> None:
    x, y = torch.ones(4, 256).to(FP8_TYPE), torch.ones(256, 48).to(FP8_TYPE)
    a, b = torch.ones(4, 1), torch.ones(1, 48)
    for name in ("all_gather_gemm", "gemm_all_scatter", "gemm_all_reduce"):
        call = getattr(kernels, name)
        all_rows = rf" or \({4 * world.n_pes}, 1\)" if name == "all_gather_gemm" else ""
        shapes = rf"\(4, 1\){all_rows} and scale_b of shape \(1, 48\)"
        for wrong in (
            {"scale_a": a[:3]}, {"scale_b": b[:, :47]}, {"scale_a": a.double()}, {"scale_b": b.bfloat16()},
            {"scale_b": torch.ones(1, 1)},
        ):  # fmt: skip
            with raises(ValueError, f"{name}: scales of rows are scale_a of shape {shapes}"):
                call(x, y, **({"scale_a": a, "scale_b": b} | wrong))
        with raises(ValueError, f"{name}: scale_b must be contiguous"):
            call(x, y, scale_a=a, scale_b=torch.ones(1, 96)[:, ::2])
        with raises(ValueError, f"{name}: scale_a must be contiguous"):
            call(x, y, scale_a=torch.ones(8, 1)[::2], scale_b=b)
        for one in ({"scale_a": a}, {"scale_b": b}, {"scale_a": a, "scale_b": 1.0}):
            with raises(ValueError, "must be one element of torch.float32 .*scales of rows or blocks are two matrices"):
                call(x, y, **one)
        with raises(ValueError, "scales are for operands of fp8, got scale_a and scale_b with torch.float32"):
            call(x.float(), y.float(), scale_a=a, scale_b=b)


def check_mistakes_with_scales_of_blocks(world: Any) -> None:
    x, y = torch.ones(4, 256).to(torch.float8_e4m3fn), torch.ones(256, 130).to(torch.float8_e4m3fn)
    a, b = torch.ones(4, 2), torch.ones(2, 2)
    for name in ("all_gather_gemm", "gemm_all_scatter", "gemm_all_reduce"):
        call = getattr(kernels, name)
        for wrong in ({"scale_a": a[:3]}, {"scale_b": b.repeat(1, 2)}, {"scale_a": a.double()}, {"scale_b": b[:1]}):
            with raises(
                ValueError, rf"{name}: scales of blocks are scale_a of shape \(4, 2\) and scale_b of shape \(2, 2\)"
            ):
                call(x, y, **({"scale_a": a, "scale_b": b} | wrong))
        with raises(ValueError, f"{name}: with scales of blocks K must be a multiple of 128, got 200"):
            call(x[:, :200], y[:200], scale_a=a, scale_b=b)
        with raises(ValueError, f"{name}: scale_b must be contiguous"):
            call(x, y, scale_a=a, scale_b=torch.ones(2, 4)[:, ::2])
        with raises(
            ValueError, "scale_a must be one element of torch.float32 .*scales of rows or blocks are two matrices"
        ):
            call(x, y, scale_a=a)
        with raises(ValueError, "scales are for operands of fp8, got scale_a and scale_b with torch.float32"):
            call(x.float(), y.float(), scale_a=a, scale_b=b)


def check_fp8_is_exact(world: Any) -> None:
    """Every value of both types: the operands are what PyTorch takes them for, NaN, infinity and the smallest, too."""
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        a = torch.arange(256, dtype=torch.uint8).view(dtype)[:, None].contiguous()
        found = kernels.all_gather_gemm(a, torch.ones(1, 3).to(dtype), out_dtype=torch.float32)
        assert torch.equal(found.nan_to_num(nan=1e9), a.float().nan_to_num(nan=1e9).repeat(world.n_pes, 3))
        assert kernels.all_gather_gemm(a, torch.ones(1, 3).to(dtype)).dtype == torch.bfloat16


def check_mistakes_with_fp8(world: Any) -> None:
    a, b = torch.ones(4, 6), torch.ones(6, 5)
    x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e5m2)
    with raises(ValueError, "scales are for operands of fp8, got scale_b with torch.float32"):
        kernels.all_gather_gemm(a, b, scale_b=2.0)
    with raises(ValueError, "a is of torch.float8_e4m3fn, and b of torch.float32"):
        kernels.all_gather_gemm(x, b)
    with raises(ValueError, "scale_a must be one element of torch.float32 on cpu", r"shape \(4, 1\)"):
        kernels.all_gather_gemm(x, y, scale_a=torch.ones(4, 1))
    with raises(ValueError, "scale_b must be one element of torch.float32", "torch.float64"):
        kernels.all_gather_gemm(x, y, scale_b=torch.ones(1, dtype=torch.float64))
    with raises(TypeError, "scale_b must be a torch.Tensor or a float, got str"):
        kernels.all_gather_gemm(x, y, scale_b="1")
    for number in (1e60, -(10**400)):
        with raises(ValueError, "scale_b must be a number that torch.float32 holds"):
            kernels.all_gather_gemm(x, y, scale_b=number)
    with raises(ValueError, "scale_a must be one element of torch.float32"):
        kernels.all_gather_gemm(x, y, scale_a=torch.ones(1).to_sparse())
    negative = kernels.all_gather_gemm(x, y, scale_a=torch._neg_view(torch.ones(1)))
    assert torch.equal(negative, -kernels.all_gather_gemm(x, y))
    with raises(ValueError, "is of torch.bfloat16, torch.float16, torch.float32, got out_dtype torch.float8_e5m2"):
        kernels.all_gather_gemm(x, y, out_dtype=torch.float8_e5m2)
    with raises(ValueError, "operands of torch.float32 is of torch.float32, got out_dtype torch.bfloat16"):
        kernels.all_gather_gemm(a, b, out_dtype=torch.bfloat16)
    with raises(ValueError, "out must be contiguous, of shape .* and torch.float16", "torch.bfloat16, on cpu"):
        out = torch.empty(4 * world.n_pes, 5, dtype=torch.bfloat16)
        kernels.all_gather_gemm(x, y, out, out_dtype=torch.float16)


def check_small_m_results_that_round_to_negative_zero(world: Any) -> None:
    """Results that are rounded to -0.0, whose words are those of an empty slot without the sender's conversion."""
    a, b = torch.full((world.n_pes, 1), -(2.0**-20)).half(), torch.full((1, 40), 2.0**-10).half()
    assert torch.signbit(a @ b).all() and not (a @ b).any()
    same(kernels.gemm_reduce_scatter(a, b, algorithm="fused"), torch.zeros(1, 40))
    same(kernels.gemm_all_reduce(a, b, algorithm="fused"), torch.zeros(world.n_pes, 40))


def check_pattern_is_the_former_name_of_algorithm(world: Any) -> None:
    a, b = torch.ones(2 * world.n_pes, 6), torch.ones(6, 5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        same(kernels.gemm_reduce_scatter(a, b, pattern="fused"), torch.full((2, 5), 6.0 * world.n_pes))
    assert [str(one.message) for one in told] == ["gemm_reduce_scatter: pattern= is now algorithm="]
    assert told[0].category is DeprecationWarning, told[0]
    assert told[0].filename == check_pattern_is_the_former_name_of_algorithm.__code__.co_filename, told[0]


def check_mistakes(world: Any) -> None:
    a, b = torch.ones(4 * world.n_pes, 6), torch.ones(6, 5)
    with raises(ValueError, "6 columns, and 5 rows"):
        kernels.gemm_all_scatter(a, b[:5])
    with raises(ValueError, "must be auto, bulk_synchronous"):
        kernels.gemm_all_scatter(a, b, algorithm="fast")
    with raises(ValueError, "needs a Hopper GPU"):
        kernels.gemm_all_scatter(a, b, algorithm="warp_specialized")
    with raises(ValueError, "algorithm copy_engine needs a Hopper GPU.*Available are bulk_synchronous"):
        kernels.all_gather_gemm(a, b, algorithm="copy_engine")
    with raises(ValueError, "algorithm ring needs a Hopper GPU"):
        kernels.gemm_reduce_scatter(a, b, algorithm="ring")
    with raises(ValueError, "algorithm fused takes up to 128 rows"):
        kernels.gemm_reduce_scatter(torch.ones(520 * world.n_pes, 6), b, algorithm="fused")
    with raises(ValueError, "a is of torch.float32, and b of torch.float16"):
        kernels.all_gather_gemm(a, b.half())
    with raises(ValueError, "got b of torch.int32"):
        kernels.all_gather_gemm(a, b.int())
    with raises(ValueError, "a must be a matrix"):
        kernels.all_gather_gemm(a[0], b)
    with raises(TypeError, "b must be a torch.Tensor"):
        kernels.all_gather_gemm(a, 3)
    with raises(ValueError, "a is of layout torch.sparse_coo, not dense"):
        kernels.all_gather_gemm(a.to_sparse(), b)
    with raises(ValueError, "b is of layout torch.sparse_csr, not dense"):
        kernels.all_gather_gemm(a, b.to_sparse_csr())
    with raises(ValueError, "gemm_all_scatter: out must be contiguous"):
        kernels.gemm_all_scatter(a, b, out=a.to_sparse())
    with raises(ValueError, "must have contiguous rows"):
        kernels.all_gather_gemm(a.t(), torch.ones(a.shape[0], 3))
    with raises(ValueError, "out must be contiguous, of shape"):
        kernels.all_gather_gemm(a, b, torch.ones(2, 2))
    with raises(ValueError, "a has no elements"):
        kernels.all_gather_gemm(a[:, :0], b[:0])
    with raises(ValueError, "b has no elements"):
        kernels.all_gather_gemm(a, b[:, :0])
    out = torch.ones(a.shape[0], 5 * world.n_pes)
    with raises(ValueError, "out must be symmetric"):
        kernels.gemm_all_scatter(a, b, out)


if __name__ == "__main__":
    run(globals())
