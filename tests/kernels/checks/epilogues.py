"""Epilogues of GEMMs, against float64: by all algorithms that run without a GPU, exactly once, with one rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS, HOPPER_ALGORITHMS
from triton_dist.kernels.gemm.small_m import fits_small_m

SCATTER = tuple(name for name in ALGORITHMS if name not in HOPPER_ALGORITHMS)
SIZES = ((1, 1, 1, torch.float32), (5, 37, 19, torch.bfloat16), (33, 70, 40, torch.float16))
"""Rows of a PE, columns, K and the dtype of a GEMM."""


def matrix(rows: int, columns: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, whose products and sums any float here holds exactly."""
    return torch.randint(-2, 3, (rows, columns), generator=torch.Generator().manual_seed(seed)).to(dtype)


def fractions(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiples of 2⁻¹⁰: sums of them and of integers are exact in float32, and in 16 bits are not."""
    values = torch.randint(-4096, 4097, shape, generator=torch.Generator().manual_seed(seed)) / 1024
    return values.to(dtype)


def same(found: torch.Tensor, exact: torch.Tensor) -> None:
    """The result is what is exact, rounded once."""
    assert torch.equal(found, exact.to(found.dtype)), f"{found} is not {exact}"


def sums_of(world: Any, m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Operands of this PE and the sum over PEs, float64, of products that partial sums of ``dtype`` hold exactly."""
    operands = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
    return *operands[world.pe], sum(a.double() @ b.double() for a, b in operands)


def reducing(world: Any, m: int) -> Iterator[tuple[str, Callable[..., torch.Tensor]]]:
    """The algorithms for ``m`` rows of each PE, and a function of each operation that has a residual."""
    for algorithm in ("auto", "bulk_synchronous", "fused"):
        if algorithm != "fused" or fits_small_m(m * world.n_pes, world.n_pes):
            yield algorithm, kernels.gemm_reduce_scatter
            yield algorithm, kernels.gemm_all_reduce


def check_bias(world: Any) -> None:
    n_pes = world.n_pes
    for m, n, k, dtype in SIZES:
        for bias_dtype in (torch.float32, dtype):
            bias = [fractions(n, seed=pe, dtype=bias_dtype) for pe in range(n_pes)]
            a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(n_pes)]
            expected = torch.cat([a.double() @ b.double() + v.double() for b, v in zip(parts, bias, strict=True)], 1)
            out = triton_dist.empty(m, n * n_pes, dtype=dtype)
            for algorithm in ("auto", *SCATTER):
                kernels.gemm_all_scatter(a, parts[world.pe], out.fill_(7), algorithm=algorithm, bias=bias[world.pe])
                same(out, expected)
            triton_dist.free(out)
            parts, b = [matrix(m, k, 1 + pe, dtype) for pe in range(n_pes)], matrix(k, n, 9, dtype)
            found = kernels.all_gather_gemm(parts[world.pe], b, bias=bias[world.pe])
            same(found, torch.cat(parts).double() @ b.double() + bias[world.pe].double())


def check_bias_and_residual_of_sums(world: Any) -> None:
    n_pes = world.n_pes
    for m, n, k, dtype in SIZES:
        a, b, total = sums_of(world, m * n_pes, n, k, dtype)
        bias, residual = fractions(n, seed=5), fractions(m * n_pes, n, seed=6, dtype=dtype)
        mine = slice(m * world.pe, m * (world.pe + 1))
        for algorithm, call in reducing(world, m):
            rows = mine if call is kernels.gemm_reduce_scatter else slice(None)
            for _ in range(2):
                same(call(a, b, algorithm=algorithm, bias=bias), (total + bias.double())[rows])
                same(call(a, b, algorithm=algorithm, residual=residual[rows]), (total + residual.double())[rows])
                found = call(a, b, algorithm=algorithm, bias=bias.to(dtype), residual=residual[rows].float())
                same(found, (total + bias.to(dtype).double() + residual.double())[rows])


def check_the_result_may_be_the_residual(world: Any) -> None:
    m, n, k, dtype = 5, 37, 19, torch.bfloat16
    a, b, total = sums_of(world, m * world.n_pes, n, k, dtype)
    residual = fractions(m * world.n_pes, n, seed=6, dtype=dtype)
    rows = slice(m * world.pe, m * (world.pe + 1))
    for algorithm in ("bulk_synchronous", "fused"):
        part = residual[rows].clone()
        same(kernels.gemm_reduce_scatter(a, b, part, algorithm=algorithm, residual=part), (total + residual)[rows])
        whole = triton_dist.empty(m * world.n_pes, n, dtype=dtype).copy_(residual)
        triton_dist.barrier_all()
        same(kernels.gemm_all_reduce(a, b, whole, algorithm=algorithm, residual=whole), total + residual)
        triton_dist.free(whole)


def check_uneven_rows_of_an_all_reduce(world: Any) -> None:
    """PEs that add up fewer rows than others, or none."""
    for m in (1, world.n_pes + 1):
        a, b, total = sums_of(world, m, 37, 19, torch.bfloat16)
        residual = fractions(m, 37, seed=6)
        for algorithm in ("bulk_synchronous", "fused"):
            same(kernels.gemm_all_reduce(a, b, algorithm=algorithm, residual=residual), total + residual.double())


def check_fp8_with_bias(world: Any) -> None:
    m, n, k = 5, 37, 19
    a, b, total = sums_of(world, m * world.n_pes, n, k, torch.float8_e4m3fn)
    bias, scales = fractions(n, seed=5), {"scale_a": 0.5, "scale_b": 0.5}
    same(kernels.gemm_all_reduce(a, b, bias=bias, **scales), total / 4 + bias)
    first = matrix(m, k, 1, torch.float8_e4m3fn)
    found = kernels.all_gather_gemm(first, b, bias=bias, out_dtype=torch.float16, **scales)
    same(found, (first.double() @ b.double() / 4 + bias).repeat(world.n_pes, 1))


def check_gradients(world: Any) -> None:
    """Those of bias and residual, in the forms that record them; other gradients are as without."""
    n_pes = world.n_pes

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_()

    a, b, bias = (
        matrix(2 * n_pes, 3, world.pe, torch.float32),
        matrix(3, 5, 7 + world.pe, torch.float32),
        fractions(5, seed=1),
    )
    for name, rows, reduces in (
        ("all_gather_gemm", 2 * n_pes * n_pes, False),
        ("gemm_all_scatter", 2 * n_pes, False),
        ("gemm_reduce_scatter", 2, True),
        ("gemm_all_reduce", 2 * n_pes, True),
    ):
        columns = 5 * n_pes if name == "gemm_all_scatter" else 5
        weights = [matrix(rows, columns, 20 + pe, torch.float32) for pe in range(n_pes)]
        residual = fractions(rows, columns, seed=2)
        grads = []
        for with_epilogue in (True, False):
            x, y, v, r = leaf(a), leaf(b), leaf(bias), leaf(residual)
            options = {"bias": v, **({"residual": r} if reduces else {})} if with_epilogue else {}
            found = getattr(kernels, name)(x, y, **options)
            (found * weights[world.pe]).sum().backward()
            grads.append((x.grad, y.grad))
            if not with_epilogue:
                continue
            flowing = sum(weights) if name in ("gemm_all_scatter", "gemm_all_reduce") else weights[world.pe]
            if reduces:
                assert torch.equal(r.grad, flowing), name
            mine = flowing[:, 5 * world.pe : 5 * (world.pe + 1)] if name == "gemm_all_scatter" else flowing
            assert torch.equal(v.grad, mine.sum(0)), name
        assert all(torch.equal(x, y) for x, y in zip(*grads, strict=True)), name
        v = leaf(bias)  # the only one that requires a gradient
        getattr(kernels, name)(a, b, bias=v).sum().backward()
        assert v.grad is not None and v.grad.abs().sum() > 0, name
        out = triton_dist.empty(rows, columns)
        with raises(ValueError, rf"{name}: the call with out=", rf"functional\.{name}, which returns a new tensor"):
            getattr(kernels, name)(a, b, out, bias=v)
        triton_dist.free(out)


def check_functional_forms_with_other_dimensions(world: Any) -> None:
    """A batch, with the sequence in the middle: the residual has the result's shape."""
    n_pes = world.n_pes
    a, b = matrix(2 * 3 * n_pes, 4, world.pe, torch.float32).view(2, 3 * n_pes, 4), matrix(4, 5, 9, torch.float32)
    total = sum(matrix(2 * 3 * n_pes, 4, pe, torch.float32).view(2, 3 * n_pes, 4) @ b for pe in range(n_pes))
    bias, residual = fractions(5, seed=1), fractions(2, 3 * n_pes, 5, seed=2)
    mine = slice(3 * world.pe, 3 * (world.pe + 1))
    found = functional.gemm_reduce_scatter(a, b, scatter_dim=1, bias=bias, residual=residual[:, mine])
    same(found, (total + bias + residual)[:, mine])
    same(functional.gemm_all_reduce(a, b, bias=bias, residual=residual), total + bias + residual)
    same(
        functional.all_gather_gemm(a[:, mine], b, 1, bias=bias)[:, mine],
        a[:, mine] @ b + bias,
    )
    rows = 3 * n_pes
    with raises(ValueError, rf"residual must be of the result's shape \(2, {rows}, 5\), got \({rows}, 2, 5\)"):
        functional.gemm_all_reduce(a, b, residual=residual.transpose(0, 1))


REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu": lambda x: torch.nn.functional.silu(x[:, ::2]) * x[:, 1::2],
}


def close(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Equal but for a rounding to the result's dtype, and a few of float32."""
    step = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), exact, rtol=max(step, 2e-6), atol=2e-6)


def check_activations(world: Any) -> None:
    n_pes = world.n_pes
    for m, n, k, dtype in ((1, 2, 1, torch.float32), (5, 38, 19, torch.bfloat16), (33, 70, 40, torch.float16)):
        a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(n_pes)]
        bias = fractions(n, seed=3)
        sums = [a.double() @ b.double() + bias.double() for b in parts]
        for activation, reference in REFERENCES.items():
            exact = torch.cat([reference(x) for x in sums], 1)
            out = triton_dist.empty(*exact.shape, dtype=dtype)
            options: dict[str, Any] = {"activation": activation, "bias": bias}
            for algorithm in ("auto", *SCATTER):
                kernels.gemm_all_scatter(a, parts[world.pe], out.fill_(7), algorithm=algorithm, **options)
                close(out, exact)
            triton_dist.free(out)
            close(kernels.all_gather_gemm(a, parts[world.pe], **options), reference(sums[world.pe]).repeat(n_pes, 1))


def check_activations_of_sums(world: Any) -> None:
    """They follow the whole sum and the bias; the residual comes after them."""
    for m, n, k, dtype in SIZES:
        a, b, total = sums_of(world, m * world.n_pes, n, k, dtype)
        bias, residual = fractions(n, seed=5), fractions(m * world.n_pes, n, seed=6)
        mine = slice(m * world.pe, m * (world.pe + 1))
        for activation in ("gelu", "silu"):
            exact = REFERENCES[activation](total + bias.double()) + residual.double()
            for algorithm, call in reducing(world, m):
                rows = mine if call is kernels.gemm_reduce_scatter else slice(None)
                options = {"activation": activation, "bias": bias, "residual": residual[rows]}
                close(call(a, b, algorithm=algorithm, **options), exact[rows])
                close(call(a, b, algorithm=algorithm, activation=activation), REFERENCES[activation](total)[rows])


def check_activations_of_all_values(world: Any) -> None:
    """Zeros of both signs, what is too small or too large to be squared, infinity and NaN: as PyTorch has them."""
    values = [
        0.0,
        -0.0,
        1e-30,
        -1e-30,
        0.5,
        -0.5,
        -3.0,
        -6.0,
        -20.0,
        -200.0,
        30.0,
        3e18,
        -3e18,
        3e38,
        -3e38,
        float("nan"),
    ]
    x = torch.tensor([values])
    for activation in ("gelu", "gelu_tanh", "silu"):
        found = kernels.all_gather_gemm(torch.ones(1, 1), x, activation=activation)
        expected = REFERENCES[activation](x.double()).repeat(world.n_pes, 1)
        torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=1e-6, equal_nan=True)
    up = torch.full_like(x, 0.5)
    found = kernels.all_gather_gemm(torch.ones(1, 1), kernels.interleave_gate_up(x, up), activation="swiglu")
    expected = 0.5 * REFERENCES["silu"](x.double()).repeat(world.n_pes, 1)
    torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=1e-6, equal_nan=True)


def check_gate_and_up_are_interleaved(world: Any) -> None:
    """From weights of linear layers, of rows or columns, from one that holds both, and from biases; also of fp8."""
    gate, up = matrix(7, 6, 1, torch.float32), matrix(7, 6, 2, torch.float32)
    x = matrix(3, 6, 3, torch.float32)
    exact = torch.nn.functional.silu(x.double() @ gate.t().double()) * (x.double() @ up.t().double())
    for b in (
        kernels.interleave_gate_up(gate.t(), up.t()),
        kernels.interleave_gate_up(gate.t().contiguous(), up.t().contiguous()),
        kernels.interleave_gate_up(*torch.cat((gate, up)).t().chunk(2, 1)),
        kernels.interleave_gate_up(gate.to(torch.float8_e4m3fn).t(), up.to(torch.float8_e4m3fn).t()),
    ):
        assert (
            b.shape == (6, 14) and torch.equal(b[:, ::2].float(), gate.t()) and torch.equal(b[:, 1::2].float(), up.t())
        )
        found = kernels.all_gather_gemm(x.to(b.dtype), b, activation="swiglu")
        close(found, exact.repeat(world.n_pes, 1))
    assert kernels.interleave_gate_up(gate.t(), up.t()).stride(0) == 1
    assert kernels.interleave_gate_up(torch.arange(3), torch.arange(3) + 10).tolist() == [0, 10, 1, 11, 2, 12]
    w = gate.clone().requires_grad_()
    kernels.interleave_gate_up(w.t(), up.t()).sum().backward()
    assert torch.equal(w.grad, torch.ones(7, 6))
    with raises(ValueError, "gate and up must have the same shape", r"\(7, 6\).* and \(6, 7\)"):
        kernels.interleave_gate_up(gate, up.t())
    with raises(TypeError, "up must be a torch.Tensor, got NoneType"):
        kernels.interleave_gate_up(gate, None)


def check_activations_have_no_gradient(world: Any) -> None:
    """They are refused, and not lost; without gradients the functional forms take them."""
    a, b = matrix(2 * world.n_pes, 3, world.pe, torch.float32), matrix(3, 6, 7, torch.float32)
    for name, activation in (
        ("all_gather_gemm", "swiglu"),
        ("gemm_all_scatter", "swiglu"),
        ("gemm_reduce_scatter", "gelu"),
        ("gemm_all_reduce", "silu"),
    ):
        for x, y in ((a.clone().requires_grad_(), b), (a, b.clone().requires_grad_())):
            with raises(ValueError, f"{name}: activation {activation} has no gradient here"):
                getattr(kernels, name)(x, y, activation=activation)
        found = getattr(functional, name)(a, b, activation=activation)
        assert torch.equal(found, getattr(kernels, name)(a, b, activation=activation)), name
    with raises(ValueError, "all_gather_gemm_gathered: activation silu has no gradient here"):
        functional.all_gather_gemm(a.clone().requires_grad_(), b, return_gathered=True, activation="silu")


def check_mistakes_with_activations(world: Any) -> None:
    a, b = torch.ones(2 * world.n_pes, 6), torch.ones(6, 5)
    for name in ("all_gather_gemm", "gemm_all_scatter", "gemm_reduce_scatter", "gemm_all_reduce"):
        call = getattr(kernels, name)
        for wrong in ("relu", "", 3, ["silu"]):
            with raises(ValueError, f"{name}: activation must be gelu, gelu_tanh, silu or swiglu, got"):
                call(a, b, activation=wrong)
        if "reduce" in name:
            with raises(ValueError, f"{name}: activation swiglu is not for sums over PEs"):
                call(a, b[:, :4], activation="swiglu")
            continue
        with raises(ValueError, f"{name}: activation swiglu makes one column of two, and b has 5 columns"):
            call(a, b, activation="swiglu")
        with raises(ValueError, rf"{name}: bias must be of shape \(4,\)"):
            call(a, b[:, :4].contiguous(), activation="swiglu", bias=torch.ones(2))
    with raises(ValueError, r"out must be contiguous, of shape \(\d+, 2\)"):
        kernels.all_gather_gemm(a, b[:, :4].contiguous(), torch.ones(a.shape[0] * world.n_pes, 4), activation="swiglu")


def check_mistakes(world: Any) -> None:
    a, b = torch.ones(2 * world.n_pes, 6), torch.ones(6, 5)
    rows = a.shape[0]
    for name, (columns, reduces) in {
        "all_gather_gemm": (5, False),
        "gemm_all_scatter": (5, False),
        "gemm_reduce_scatter": (5, True),
        "gemm_all_reduce": (5, True),
    }.items():
        call = getattr(kernels, name)
        for wrong in (torch.ones(columns + 1), torch.ones(1, columns), torch.ones(columns).double()):
            with raises(ValueError, rf"{name}: bias must be of shape \({columns},\) and .*, got shape"):
                call(a, b, bias=wrong)
        with raises(ValueError, f"{name}: bias must be contiguous"):
            call(a, b, bias=torch.ones(2 * columns)[::2])
        with raises(ValueError, f"{name}: bias is on meta"):
            call(a, b, bias=torch.ones(columns, device="meta"))
        with raises(TypeError, f"{name}: bias must be a torch.Tensor, got float"):
            call(a, b, bias=1.0)
        if not reduces:
            with raises(ValueError, f"{name}: residual is for sums over PEs"):
                call(a, b, residual=torch.ones(rows, columns))
            continue
        shape = (2 if name == "gemm_reduce_scatter" else rows, columns)
        for wrong in (torch.ones(shape[0] + 1, columns), torch.ones(columns), torch.ones(shape).int()):
            with raises(ValueError, rf"{name}: residual must be of shape \({shape[0]}, {columns}\) and .*, got shape"):
                call(a, b, residual=wrong)
        with raises(ValueError, f"{name}: residual must be contiguous"):
            call(a, b, residual=torch.ones(shape[::-1]).t())


def check_refused_on_one_pe(world: Any) -> None:
    """What only one PE refuses is no call: it calls once more, as the others do for the first time."""
    n = world.n_pes
    a, b = torch.ones(2 * n, 6), torch.ones(6, 4)
    for function, shape in (
        (kernels.gemm_reduce_scatter, (2, 4)), (kernels.gemm_all_reduce, (2 * n, 4)),
        (kernels.all_gather_gemm, (2 * n * n, 4)), (kernels.gemm_all_scatter, (2 * n, 4 * n)),
    ):  # fmt: skip
        out = triton_dist.zeros(*shape, dtype=torch.float32)
        for wrong in (
            {"out": torch.ones(3, 3)}, {"out": out[:, :3]}, {"bias": torch.ones(3)}, {"residual": torch.ones(3, 3)},
            {"scale_a": 2.0}, {"out": a},
        ):  # fmt: skip
            if world.pe == 0:
                with raises(ValueError, function.__name__):
                    function(a, b, **{"out": out} | wrong)
            assert (function(a, b, out) != 0).all()


if __name__ == "__main__":
    run(globals())
