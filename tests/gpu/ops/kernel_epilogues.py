"""Epilogues of the fused GEMMs: all algorithms, exactly once and with one rounding, direct and in CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

import triton_dist
from ops.harness import GPU, check
from ops.kernel_gemms import usable
from triton_dist import World, kernels
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.gemm_all_scatter import HOPPER_ALGORITHMS as HOPPER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.kernels.gemm.small_m import fits_small_m

E4M3 = torch.float8_e4m3fn
CASES = (  # rows of a PE, columns, K, dtypes of operands and result, and whether B has contiguous columns
    (
        (256, 1160, 512, torch.bfloat16, torch.bfloat16, False),
        (13, 641, 333, torch.float16, torch.float16, False),  # no multiple of anything
        (2048, 2048, 336, torch.float16, torch.float16, True),  # two rounds of wide tiles on an H200
        (4, 8192, 264, torch.bfloat16, torch.bfloat16, True),
        (256, 1168, 512, E4M3, torch.bfloat16, True),
    )
    if GPU
    else ((5, 37, 19, torch.bfloat16, torch.bfloat16, False), (3, 16, 32, E4M3, torch.float16, True))
)


def matrix(rows: int, columns: int, seed: int, dtype: torch.dtype, world: World) -> torch.Tensor:
    """Small integers: products and sums of them are exact."""
    generator = torch.Generator(world.device).manual_seed(seed)
    return torch.randint(-1, 2, (rows, columns), generator=generator, device=world.device).to(dtype)


def by_columns(b: torch.Tensor) -> torch.Tensor:
    return b.t().contiguous().t()


def fractions(*shape: int, seed: int, dtype: torch.dtype, world: World) -> torch.Tensor:
    """Multiples of 2⁻¹⁰: what they add to an integer is exact in float32, and in 16 bits is not."""
    generator = torch.Generator(world.device).manual_seed(seed)
    return (torch.randint(-4096, 4097, shape, generator=generator, device=world.device) / 1024).to(dtype)


def hopper_takes(algorithm: str, operands: torch.dtype, rows: int, columns: int, inner: int, *, lines: bool) -> bool:
    """Whether an algorithm that needs a Hopper GPU takes these sizes; ``lines``: whether B has contiguous columns."""
    if not GPU:
        return False
    aligned = columns * 2 % 16 == 0 and inner * operands.itemsize % 16 == 0 and (lines or operands != E4M3)
    return aligned and (rows % 128 == 0 or algorithm in (*HOPPER, "direct"))


def expect(call: Callable[[], torch.Tensor], out: torch.Tensor, exact: torch.Tensor, what: str) -> None:
    """Direct calls without a pause, then replays of a graph of two, store ``exact``, rounded once."""
    expected = exact.to(out.dtype)
    out.fill_(77)
    triton_dist.barrier_all()
    for _ in range(3 if GPU else 1):
        call()
    wrong = (out != expected).sum().item()
    assert wrong == 0, f"{what}: {wrong} of {out.numel()} elements are wrong"
    if GPU:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
            call()
        out.fill_(77)
        triton_dist.barrier_all()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected), f"{what}: wrong after replays of a graph"
    triton_dist.barrier_all()


@check
def gemm_all_scatter_with_bias(world: World) -> None:
    for rows, n, k, operands, dtype, lines in CASES:
        a = matrix(rows, k, 1, operands, world)
        parts = [matrix(k, n, 2 + pe, operands, world) for pe in range(world.n_pes)]
        b = by_columns(parts[world.pe]) if lines else parts[world.pe]
        for bias_dtype in (dtype, torch.float32):
            biases = [fractions(n, seed=pe, dtype=bias_dtype, world=world) for pe in range(world.n_pes)]
            exact = torch.cat([a.double() @ b.double() + v.double() for b, v in zip(parts, biases, strict=True)], 1)
            out = triton_dist.empty(*exact.shape, dtype=dtype)
            for algorithm in usable(*SCATTER, "auto"):
                if algorithm in HOPPER and not hopper_takes(algorithm, operands, rows, n, k, lines=lines):
                    continue
                call = partial(kernels.gemm_all_scatter, a, b, out, algorithm=algorithm, bias=biases[world.pe])
                expect(call, out, exact, f"{algorithm}, {rows} rows of {operands}, bias of {bias_dtype}")
            triton_dist.free(out)


@check(own_gpu=True)
def all_gather_gemm_with_bias(world: World) -> None:
    for rows, n, k, operands, dtype, lines in CASES:
        parts = [matrix(rows, k, 1 + pe, operands, world) for pe in range(world.n_pes)]
        plain = matrix(k, n, 50 + world.pe, operands, world)
        b = by_columns(plain) if lines else plain
        for bias_dtype in (dtype, torch.float32):
            bias = fractions(n, seed=world.pe, dtype=bias_dtype, world=world)
            exact = torch.cat(parts).double() @ plain.double() + bias.double()
            out = torch.empty(exact.shape, dtype=dtype, device=world.device)
            for algorithm in usable(*GATHER, "two_level", "auto"):
                hopper = rows % 128 == 0 and hopper_takes(algorithm, operands, rows, n, k, lines=lines)
                if algorithm in ("copy_engine", "push") and not hopper:
                    continue
                call = partial(kernels.all_gather_gemm, parts[world.pe], b, out, algorithm=algorithm, bias=bias)
                expect(call, out, exact, f"{algorithm}, {rows} rows of {operands}, bias of {bias_dtype}")


@check
def sums_with_bias_and_residual(world: World) -> None:
    n_pes = world.n_pes
    for rows, n, k, operands, dtype, lines in CASES:
        m = rows * n_pes
        pairs = [(matrix(m, k, 2 * i, operands, world), matrix(k, n, 2 * i + 1, operands, world)) for i in range(n_pes)]
        total = torch.stack([a.double() @ b.double() for a, b in pairs]).sum(0)
        a, plain = pairs[world.pe]
        b = by_columns(plain) if lines else plain
        mine = slice(rows * world.pe, rows * (world.pe + 1))
        part = torch.empty(rows, n, dtype=dtype, device=world.device)
        whole = triton_dist.empty(m, n, dtype=dtype)
        bias = fractions(n, seed=5, dtype=torch.float32, world=world)
        residual = fractions(m, n, seed=6, dtype=dtype, world=world)
        for algorithm in usable(*REDUCE, "two_level", "auto"):
            if algorithm in ("ring", "direct") and not hopper_takes(algorithm, operands, rows, n, k, lines=lines):
                continue
            if algorithm == "fused" and (operands == E4M3 or not fits_small_m(m, n_pes)):
                continue
            for options in ({"bias": bias}, {"residual": residual}, {"bias": bias.to(dtype), "residual": residual}):
                exact = total + sum(tensor.double() for tensor in options.values())
                what = f"{algorithm}, {rows} rows of {operands}, {' and '.join(options)}"
                own = {name: value[mine] if name == "residual" else value for name, value in options.items()}
                scatter = partial(kernels.gemm_reduce_scatter, a, b, part, algorithm=algorithm, **own)
                expect(scatter, part, exact[mine], what)
                reduce = partial(kernels.gemm_all_reduce, a, b, whole, algorithm=algorithm, **options)
                expect(reduce, whole, exact, what)
        triton_dist.free(whole)


REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu": lambda x: torch.nn.functional.silu(x[:, ::2]) * x[:, 1::2],
}


def expect_close(call: Callable[[], torch.Tensor], out: torch.Tensor, exact: torch.Tensor, what: str) -> None:
    """A call stores ``exact`` but for the roundings of an activation in float32 and of the result."""
    out.fill_(77)
    triton_dist.barrier_all()
    for _ in range(2):
        call()
    torch.testing.assert_close(
        out.double(), exact, rtol=torch.finfo(out.dtype).eps, atol=1e-5, msg=lambda text: f"{what}: {text}"
    )
    triton_dist.barrier_all()


ACTIVATED = (  # as CASES, with even columns, and tiles of all sizes
    (
        (256, 1168, 512, torch.bfloat16, torch.bfloat16, False),
        (13, 642, 333, torch.float16, torch.float16, False),
        (2048, 2048, 336, torch.bfloat16, torch.bfloat16, True),
        (16, 2048, 512, torch.float16, torch.float16, True),
        (256, 1184, 512, E4M3, torch.bfloat16, True),
    )
    if GPU
    else ((5, 38, 19, torch.bfloat16, torch.bfloat16, False),)
)


def activated(world: World, activation: str, cases: Sequence[Any]) -> None:
    """GEMMs that are not summed over PEs, by all algorithms, with a bias and an activation."""
    reference = REFERENCES[activation]
    for rows, n, k, operands, dtype, lines in cases:
        a = matrix(rows, k, 1, operands, world)
        parts = [matrix(k, n, 2 + pe, operands, world) for pe in range(world.n_pes)]
        b = by_columns(parts[world.pe]) if lines else parts[world.pe]
        options = {"activation": activation, "bias": fractions(n, seed=3, dtype=torch.float32, world=world)}
        sums = [a.double() @ b.double() + options["bias"].double() for b in parts]
        exact, own = torch.cat([reference(x) for x in sums], 1), reference(sums[world.pe]).repeat(world.n_pes, 1)
        out = triton_dist.empty(*exact.shape, dtype=dtype)
        local = torch.empty(own.shape, dtype=dtype, device=world.device)
        hopper = hopper_takes("copy_engine", operands, rows, local.shape[1], k, lines=lines)
        for algorithm in (*(name for name in SCATTER if hopper or name not in HOPPER), "auto"):
            call = partial(kernels.gemm_all_scatter, a, b, out, algorithm=algorithm, **options)
            expect_close(call, out, exact, f"{algorithm}, {rows} rows of {operands}, {activation}")
        overlapped = ("copy_engine", "push") if hopper and rows % 128 == 0 else ()
        for algorithm in ("bulk_synchronous", *overlapped, "auto"):
            call = partial(kernels.all_gather_gemm, a, b, local, algorithm=algorithm, **options)
            expect_close(call, local, own, f"{algorithm}, {rows} rows of {operands}, {activation}")
        triton_dist.free(out)


@check(maps_all=True, own_gpu=True)
def gemms_with_swiglu(world: World) -> None:
    activated(world, "swiglu", ACTIVATED)


@check(maps_all=True, own_gpu=True)
def gemms_with_gelu(world: World) -> None:
    activated(world, "gelu", ACTIVATED[:2])
    activated(world, "gelu_tanh", ACTIVATED[-1:])


@check(maps_all=True, own_gpu=True)
def gemms_with_silu(world: World) -> None:
    activated(world, "silu", ACTIVATED[2:4])


@check(maps_all=True)
def sums_with_activations(world: World) -> None:
    n_pes = world.n_pes
    for rows, n, k, operands, dtype, lines in ACTIVATED:
        m = rows * n_pes
        pairs = [(matrix(m, k, 2 * i, operands, world), matrix(k, n, 2 * i + 1, operands, world)) for i in range(n_pes)]
        total = torch.stack([a.double() @ b.double() for a, b in pairs]).sum(0)
        a, plain = pairs[world.pe]
        b = by_columns(plain) if lines else plain
        mine = slice(rows * world.pe, rows * (world.pe + 1))
        part, whole = torch.empty(rows, n, dtype=dtype, device=world.device), triton_dist.empty(m, n, dtype=dtype)
        residual = fractions(m, n, seed=6, dtype=dtype, world=world)
        activation = "gelu" if lines else "silu"
        exact = REFERENCES[activation](total) + residual.double()
        for algorithm in usable(*REDUCE, "two_level", "auto"):
            if algorithm in ("ring", "direct") and not hopper_takes(algorithm, operands, rows, n, k, lines=lines):
                continue
            if algorithm == "fused" and (operands == E4M3 or not fits_small_m(m, n_pes)):
                continue
            what = f"{algorithm}, {rows} rows of {operands}, {activation}"
            options = {"algorithm": algorithm, "activation": activation}
            scatter = partial(kernels.gemm_reduce_scatter, a, b, part, residual=residual[mine], **options)
            expect_close(scatter, part, exact[mine], what)
            reduce = partial(kernels.gemm_all_reduce, a, b, whole, residual=residual, **options)
            expect_close(reduce, whole, exact, what)
        triton_dist.free(whole)
