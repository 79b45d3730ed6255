"""What the stress test calls with shards that differ: GEMMs, norms and collectives of rows that PEs share unequally."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
from stress_cases import FACTORS, GPU, SUMMED, Case, Cases, Recipe, exact_share, summed
from stress_library import BF16, verified

from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE

__all__ = ["groups"]

SHAPES = (
    ((1, 640, 512), (103, 328, 264), (333, 640, 512), (1021, 1168, 512), (2047, 640, 264))
    if GPU
    else ((1, 17, 9), (5, 40, 33), (23, 17, 9))
)
"""Rows of all PEs, of which the last have fewer, or none; columns of each PE, and K of each PE."""
ROWS = ((1, 4096), (5, 1024), (61, 7168), (1021, 4096)) if GPU else ((1, 64), (5, 96))
"""Of a norm on all PEs; and columns."""


def own(rows: int, cases: Cases) -> slice:
    """This PE's, as torch.chunk cuts."""
    each = -(-rows // cases.n_pes)
    return slice(min(cases.pe * each, rows), min((cases.pe + 1) * each, rows))


def gemm(function: str, algorithm: str, dtype: torch.dtype, shape: tuple[int, int, int], new: bool) -> Recipe:
    """``new``: its result is a new tensor. From the second call on both are prepared."""
    m, n, k = shape
    gathers = function == "all_gather_gemm"
    name = f"{function}({m} rows of all PEs, n={n}, k={k}, {dtype}, {algorithm=}, {new=}, bias)"

    def make(cases: Cases) -> Case:
        mine = own(m, cases)
        rows = len(range(m)[mine])
        a_data = cases.data(f"a {name}", (m, k), dtype, share=exact_share(k * cases.n_pes))
        b_data = cases.data(f"b {name}", (k, n), dtype)
        bias_data = [of_all[0] for of_all in cases.data(f"bias {name}", (n,), dtype, -9, 9)]
        a = cases.buffer("a", (rows if gathers else m, k), dtype, symmetric=False)
        b = cases.buffer("b", (k, n), dtype, symmetric=False)
        bias = cases.buffer("bias", (n,), dtype, symmetric=False)
        out = cases.buffer("c", (m if gathers else rows, n), dtype, symmetric=False)
        given = [of_all[0][mine] for of_all in a_data] if gathers else cases.mine(a_data)
        options: dict[str, Any] = {"rows": m} if gathers else {}
        exact = []
        for x, y, one in zip(a_data, b_data, bias_data, strict=True):
            if gathers:
                total = x[0].float() @ y[cases.pe].float()
            else:
                products = [of_a.float() @ of_b.float() for of_a, of_b in zip(x, y, strict=True)]
                total = torch.stack(products).sum(0)[mine]
            exact.append(total + one.float())
            assert (exact[-1].abs() < 256).all(), "not exact"

        def call() -> None:
            found = getattr(kernels, function)(a, b, None if new else out, algorithm=algorithm, bias=bias, **options)
            if new:
                out.copy_(found)

        inputs = [(a, given), (b, cases.mine(b_data)), (bias, bias_data)]
        return Case(name, call, inputs, out, [total.to(dtype) for total in exact])

    return Recipe(name, make)


def norm(function: str, algorithm: str, shape: tuple[int, int]) -> Recipe:
    m, columns = shape
    gathers = function == "norm_all_gather"
    name = f"{function}({m} rows of all PEs × {columns}, algorithm={algorithm!r})"

    def make(cases: Cases) -> Case:
        mine = own(m, cases)
        data = cases.data(name, shape, BF16, -8, 8)
        weights = [of_all[0] for of_all in cases.data(f"weight {name}", (columns,), BF16, 1, 4)]
        given = [of_all[0][mine] for of_all in data] if gathers else cases.mine(data)
        x = cases.buffer("x of a norm", given[0].shape, BF16, symmetric=False)
        weight = cases.buffer("weight of a norm", (columns,), BF16, symmetric=False)
        out = cases.buffer("normed", shape if gathers else (len(range(m)[mine]), columns), BF16, symmetric=False)
        options: dict[str, Any] = {"rows": m} if gathers else {}

        def call() -> None:
            out.copy_(getattr(kernels, function)(x, weight, algorithm=algorithm, **options).output)

        references = []
        for of_all, w in zip(data, weights, strict=True):
            total = of_all[0].double() if gathers else torch.stack(of_all).double().sum(0).bfloat16().double()[mine]
            references.append(total / (total.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * w.double())
        return verified(Case(name, call, [(x, given), (weight, weights)], out, []), name, references)

    return Recipe(name, make)


def collective(function: str, algorithm: str, dtype: torch.dtype, shape: tuple[int, int, int]) -> Recipe:
    m, columns, _ = shape
    name = f"functional.{function}({m} rows of all PEs × {columns}, {dtype}, {algorithm=})"

    def make(cases: Cases) -> Case:
        mine, gathers = own(m, cases), function == "all_gather"
        data = cases.data(name, (m, columns), dtype, -2, 2)
        given = [of_all[0][mine] for of_all in data] if gathers else cases.mine(data)
        expected = [of_all[0] if gathers else summed(of_all)[mine] for of_all in data]
        source = cases.buffer("a", given[0].shape, dtype, symmetric=False)
        out = cases.buffer("c", expected[0].shape, dtype, symmetric=False)
        options: dict[str, Any] = {"rows": m} if gathers else {}

        def call() -> None:
            out.copy_(getattr(functional, function)(source, algorithm=algorithm, **options))

        return Case(name, call, [(source, given)], out, expected)

    return Recipe(name, make)


def groups() -> list[list[Recipe]]:
    """The calls of every function."""
    found = []
    for function, algorithms in (("all_gather_gemm", GATHER), ("gemm_reduce_scatter", REDUCE)):
        for algorithm in (*algorithms, "auto"):
            chosen = itertools.product(FACTORS, SHAPES, (False, True))
            found.append([gemm(function, algorithm, *each) for each in chosen])
    for function in ("reduce_scatter_norm", "norm_all_gather"):
        for algorithm in (*sys.modules[f"triton_dist.kernels.norm.{function}"].ALGORITHMS, "auto"):
            found.append([norm(function, algorithm, shape) for shape in ROWS])
    for function in ("all_gather", "reduce_scatter"):
        for algorithm in ("low_latency", "push", "auto"):
            found.append([collective(function, algorithm, *each) for each in itertools.product(SUMMED, SHAPES)])
    return found
