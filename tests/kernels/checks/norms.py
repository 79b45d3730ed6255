"""Fused norms against float64, by every algorithm, of sizes that fit nothing, again and again in one workspace."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from harness import main as run
from harness import raises, some

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.norm.all_reduce_norm import ALGORITHMS, all_reduce_norm
from triton_dist.kernels.norm.norm_all_gather import norm_all_gather
from triton_dist.kernels.norm.reduce_scatter_norm import reduce_scatter_norm

CASES = (
    # rows, columns, dtype, norm, quantize; every second one is quick
    (1, 1, torch.float32, "rms", None),
    (1, 7, torch.bfloat16, "layer", None),
    (3, 301, torch.bfloat16, "rms", "token"),
    (5, 256, torch.bfloat16, "rms", "block"),
    (13, 384, torch.float16, "layer", "block"),
    (2, 1031, torch.float32, "rms", "token"),
)


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expected(total: torch.Tensor, weight: Any, shift: Any, norm: str, eps: float) -> torch.Tensor:
    """The norm of what was rounded, in float64."""
    v = total.double()
    if norm == "layer":
        v = v - v.mean(1, keepdim=True)
    v = v / (v.pow(2).mean(1, keepdim=True) + eps).sqrt()
    v = v if weight is None else v * weight.double()
    return v if shift is None else v + shift.double()


def widened(output: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """The values that the output stands for."""
    if scales is None:
        return output.double()
    scales = scales.double().reshape(*output.shape[:1], -1)
    return (output.double().view(*scales.shape, -1) * scales[..., None]).view(output.shape)


def close(found: Any, residual: torch.Tensor, y: torch.Tensor, terms: int, quantize: str | None) -> None:
    """``found`` is what it should be, but for a rounding of each number; unfused, of ``terms``."""
    eps = torch.finfo(found.residual.dtype).eps
    size = residual.abs().amax()
    assert (found.residual.double() - residual).abs().max() <= (1 + terms) * eps * size
    # A float8_e4m3fn has three bits of significand; by its scale the largest is 448.
    error = (widened(found.output, found.scales) - y).abs()
    rounding = y.abs() / 16 + y.abs().amax() / 448 / 512 if quantize else y.abs() * eps
    assert (error <= 1.01 * rounding + (1 + terms) * eps * y.abs().amax() + 1e-5).all(), (error - rounding).max()


def check_all_reduce_norm(world: Any) -> None:
    for times, (m, h, dtype, norm, quantize) in enumerate(some(CASES)):
        for given in (True, False) if m == 3 else (True,):
            xs = [numbers(m, h, seed=pe + times, dtype=dtype) for pe in range(world.n_pes)]
            vectors = [
                numbers(h, seed=50 + i, dtype=dtype if i else torch.float32) if given else None for i in range(3)
            ]
            weight, bias, shift = vectors
            residual = numbers(m, h, seed=60, dtype=dtype) if given else None
            total = sum(x.double() for x in xs) + (bias.double() + residual.double() if given else 0)
            results = {}
            for algorithm in (*ALGORITHMS, "auto"):
                results[algorithm] = found = all_reduce_norm(
                    xs[world.pe], weight, residual, bias=bias, norm=norm, norm_bias=shift, quantize=quantize,
                    algorithm=algorithm,
                )  # fmt: skip
                y = expected(found.residual, weight, shift, norm, 1e-6)
                close(found, total, y, 2 * (algorithm == "unfused"), quantize)
            same(results["one_shot"], results["two_shot"], results["auto"])
            everywhere = triton_dist.from_tensor(results["two_shot"].residual)
            triton_dist.barrier_all()
            theirs = triton_dist.peer(everywhere, (world.pe + 1) % world.n_pes)
            assert torch.equal(theirs, everywhere), "PEs differ"
            triton_dist.barrier_all()
            triton_dist.free(everywhere)


def check_sequence_parallel(world: Any) -> None:
    """A reduce-scatter and norm, and a norm and all-gather, of rows that PEs share."""
    for times, (m, h, dtype, norm, quantize) in enumerate(some(CASES)):
        xs = [numbers(world.n_pes * m, h, seed=pe + times, dtype=dtype) for pe in range(world.n_pes)]
        residual = numbers(world.n_pes * m, h, seed=60, dtype=dtype)
        weight, bias, shift = (numbers(h, seed=50 + i, dtype=dtype) for i in range(3))
        mine = slice(m * world.pe, m * world.pe + m)
        options: dict[str, Any] = {"bias": bias, "norm": norm, "norm_bias": shift, "quantize": quantize}
        total = sum(x.double() for x in xs) + bias.double() + residual.double()
        for algorithm in ("fused", "unfused", "auto"):
            found = reduce_scatter_norm(xs[world.pe], weight, residual[mine], algorithm=algorithm, **options)
            y = expected(found.residual, weight, shift, norm, 1e-6)
            close(found, total[mine], y, 2 * (algorithm == "unfused"), quantize)
            if quantize and algorithm == "fused":
                continue
            found = norm_all_gather(xs[0][mine], weight, residual[mine], algorithm=algorithm, **options)
            whole = (xs[0].double() + bias.double() + residual.double()).to(dtype)
            close(found, whole[mine].double(), expected(whole, weight, shift, norm, 1e-6), 1, quantize)
    assert reduce_scatter_norm(torch.empty(0, 64)).output.shape == (0, 64)
    assert norm_all_gather(torch.empty(0, 64)).output.shape == (0, 64)
    with raises(ValueError, "algorithm fused does not quantise; use unfused"):
        norm_all_gather(torch.zeros(1, 64), quantize="token", algorithm="fused")


def same(first: Any, *others: Any) -> None:
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert a is b or torch.equal(a.view(torch.uint8), b.view(torch.uint8)), f"{a} is not {b}"


def check_sums_are_rounded_once(world: Any) -> None:
    """What bfloat16 could not hold in between: 256 + 1 + 1 + 1."""
    x = torch.full((2, 3), [256.0, 1.0, 1.0, 1.0][world.pe], dtype=torch.bfloat16)
    residual = torch.ones(2, 3, dtype=torch.bfloat16)
    for algorithm in ("one_shot", "two_shot"):
        found = all_reduce_norm(x, residual=residual, algorithm=algorithm)
        assert (found.residual == torch.tensor(256.0 + world.n_pes).bfloat16()).all(), found.residual


def check_nothing_to_do_and_extremes(world: Any) -> None:
    empty = all_reduce_norm(torch.empty(0, 64), quantize="token")
    assert empty.output.shape == (0, 64) and empty.scales is not None and empty.scales.shape == (0,)
    for quantize in ("token", "block", None):
        zero = all_reduce_norm(torch.zeros(2, 128), quantize=quantize)
        assert (zero.output.float() == 0).all() and (zero.residual == 0).all()
        huge = all_reduce_norm(torch.full((2, 128), 1e15), quantize=quantize)
        assert ((widened(huge.output, huge.scales) - 1).abs() < 1e-3).all(), huge
        bad = all_reduce_norm(torch.full((2, 128), float("nan")), quantize=quantize)
        assert bad.output.float().isnan().all()
    negative = all_reduce_norm(torch.full((1, 2), -0.0))  # the sentinel protocol sends -0.0 as 0.0
    assert (negative.residual == 0).all()


def check_groups_norm(world: Any) -> None:
    """All PEs but the first, as a team; its ranks are not the PEs' numbers."""
    if world.n_pes < 3:
        return
    team = world.team_world.split_strided(1, 1, world.n_pes - 1)
    if world.pe:
        x = torch.full((3, 300), float(world.pe))
        for algorithm in ALGORITHMS:
            found = all_reduce_norm(x, algorithm=algorithm, group=team)
            assert (found.residual == sum(range(1, world.n_pes))).all()


def check_norm_and_gemm(world: Any) -> None:
    """A norm in front of a GEMM and what follows it, of sizes that fit nothing; rows of one kernel and of several."""
    silu = torch.nn.functional.silu
    cases = ((1, 64, 48, torch.float32, True), (19, 70, 38, torch.bfloat16, True), (5, 33, 17, torch.float16, False))
    for m, k, n, dtype, by_columns in (*cases, (70, 40, 6, torch.float32, True), (130, 40, 6, torch.float32, False)):
        a, b = numbers(m, k, seed=m, dtype=dtype), numbers(k, n, seed=n, dtype=dtype) / 8
        b = b.t().contiguous().t() if by_columns else b
        weight, bias = numbers(k, seed=1), numbers(n, seed=2)
        y = expected(a, weight, None, "rms", 1e-5)
        tolerance = 1e-4 if dtype == torch.float32 else 3 * torch.finfo(dtype).eps
        close_to = partial(torch.testing.assert_close, rtol=tolerance, atol=4 * tolerance)
        found = kernels.norm_gemm(a, b, weight, eps=1e-5, activation="silu", bias=bias)
        close_to(found.double(), silu(y @ b.double() + bias.double()))
        close_to(kernels.norm_gemm(a, b).double(), a.double() @ b.double())
        if n % 2 == 0:
            gate, up = (y @ b.double()).unflatten(1, (-1, 2)).unbind(2)
            found = kernels.norm_gemm(a, b, weight, eps=1e-5, activation="swiglu")
            assert found.dtype == dtype
            close_to(found.double(), silu(gate) * up)
            assert torch.equal(found, functional.norm_gemm(a[None], b, weight, eps=1e-5, activation="swiglu")[0])
    assert kernels.norm_gemm(torch.empty(0, 8), torch.ones(8, 4), activation="swiglu").shape == (0, 2)
    large, eye = torch.full((3, 64), 20000.0).half(), torch.eye(64).half()  # times the weight more than float16 holds
    for _ in range(2):
        assert (kernels.norm_gemm(large, eye, torch.full((64,), 4.0)) == 4).all()
    with raises(ValueError, r"norm_gemm: norm_weight must be 8 contiguous floats, as many as a has columns, got shape"):
        kernels.norm_gemm(torch.ones(2, 8), torch.ones(8, 4), torch.ones(4))
    with raises(ValueError, r"norm_gemm: operands of torch.float8_e4m3fn are not taken"):
        kernels.norm_gemm(torch.ones(2, 8).to(torch.float8_e4m3fn), torch.ones(8, 4).to(torch.float8_e4m3fn))
    with raises(ValueError, "norm_gemm: a tensor requires a gradient, and norm_gemm has none"):
        kernels.norm_gemm(torch.ones(2, 8, requires_grad=True), torch.ones(8, 4))


def check_norm_mistakes(world: Any) -> None:
    x = torch.zeros(2, 64)
    with raises(TypeError, "all_reduce_norm: x must be a torch.Tensor, got list"):
        all_reduce_norm([1.0])
    with raises(ValueError, "all_reduce_norm: x is the conjugate or the negative .*resolve_neg"):
        all_reduce_norm(torch._neg_view(x))
    with raises(ValueError, "all_reduce_norm: residual is the conjugate or the negative"):
        all_reduce_norm(x, residual=torch._neg_view(x))
    with raises(ValueError, "x must be a contiguous matrix on cpu", r"shape \(64, 2\)"):
        all_reduce_norm(x.t())
    with raises(ValueError, "x must be of torch.float16, .*, got torch.int64"):
        all_reduce_norm(x.long())
    with raises(ValueError, "1 to 65536 columns, got 65537"):
        all_reduce_norm(torch.zeros(1, 65537))
    with raises(ValueError, r"weight must have shape \(64,\)", r"got \(63,\)"):
        all_reduce_norm(x, torch.ones(63))
    with raises(ValueError, r"residual must have shape \(2, 64\) and be of torch.float32", "got .* torch.float16"):
        all_reduce_norm(x, residual=x.half())
    with raises(ValueError, "norm must be rms or layer, got 'batch'"):
        all_reduce_norm(x, norm="batch")
    with raises(ValueError, "quantize must be None, token or block, got 'row'"):
        all_reduce_norm(x, quantize="row")
    with raises(ValueError, "quantize='block' is of 128 columns each, of which 64 are no multiple"):
        all_reduce_norm(x, quantize="block")
    with raises(ValueError, "eps must be finite and at least 0, got -1"):
        all_reduce_norm(x, eps=-1)
    with raises(ValueError, "algorithm must be auto, one_shot, two_shot, unfused, got 'push'"):
        all_reduce_norm(x, algorithm="push")
    with raises(ValueError, "rows of 16385 columns are too long for algorithm one_shot", "use unfused"):
        all_reduce_norm(torch.zeros(1, 16385), algorithm="one_shot")


if __name__ == "__main__":
    run(globals())
