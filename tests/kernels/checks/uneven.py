"""GEMMs of rows that PEs cannot share equally: the last PEs have fewer rows, or none."""

from __future__ import annotations

from typing import Any

import torch
from gemms import matrix, powers, same
from harness import main as run
from harness import raises, some

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.kernels.gemm.small_m import fits_small_m

ROWS = (0, 2, 1, 33, 7, 333, 130, 1001)
"""Of these quick tests take every second one: none, fewer than PEs, those of one block and of several blocks."""


def own(rows: int, world: Any) -> slice:
    """This PE's rows, as ``torch.chunk`` cuts them: PEs behind its last chunk have none."""
    each = -(-rows // world.n_pes)
    return slice(min(world.pe * each, rows), min((world.pe + 1) * each, rows))


def operands(world: Any, m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This PE's of a sum over PEs, and that sum."""
    parts = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
    total = sum(a.float() @ b.float() for a, b in parts)
    assert isinstance(total, torch.Tensor)
    return *parts[world.pe], total


def takes(algorithm: str, m: int, world: Any) -> bool:
    if algorithm in ("ring", "direct") or (algorithm != "bulk_synchronous" and len(world.hosts) > 1):
        return algorithm == "auto"
    return algorithm != "fused" or fits_small_m(m, world.n_pes)


def check_uneven_gemm_reduce_scatter(world: Any) -> None:
    """By all algorithms, twice, the second time prepared where calls are; with N odd and even, so that words of two
    elements are exchanged and others."""
    for m in some(ROWS):
        for algorithm in ("auto", *REDUCE):
            if not takes(algorithm, m, world):
                continue
            for n, dtype in ((5, torch.bfloat16), (36, torch.float16), (33, torch.float32)):
                a, b, total = operands(world, m, n, 7, dtype)
                expected = total[own(m, world)]
                assert torch.equal(expected, total.chunk(world.n_pes)[world.pe] if len(expected) else expected)
                out = torch.full_like(expected, 7.0, dtype=dtype)
                for _ in range(2):
                    assert kernels.gemm_reduce_scatter(a, b, out, algorithm=algorithm) is out
                    same(out, expected)
                same(kernels.gemm_reduce_scatter(a, b, algorithm=algorithm), expected)


def check_uneven_all_gather_gemm(world: Any) -> None:
    """Twice, the second time prepared where calls are; also where PEs share the rows equally, and only some say so."""
    for m in some(ROWS):
        for algorithm in ("auto", "bulk_synchronous"):
            for k, dtype in ((5, torch.bfloat16), (36, torch.float16), (33, torch.float32)):
                a, b = matrix(m, k, 1, dtype), matrix(k, 7, 2 + world.pe, dtype)
                expected, part = (a.float() @ b.float()).to(dtype).float(), a[own(m, world)]
                for _ in range(2):
                    out = torch.full((m, 7), 7.0, dtype=dtype)
                    assert kernels.all_gather_gemm(part, b, out, algorithm=algorithm, rows=m) is out
                    same(out, expected)
                if m % world.n_pes == 0:
                    told = {} if world.pe else {"rows": m}
                    same(kernels.all_gather_gemm(part, b, algorithm=algorithm, **told), expected)


def check_uneven_all_gather_gemm_with_epilogues_and_scales(world: Any) -> None:
    n, k = 48, 128
    for m in (1, 7, 33):
        a, b = (matrix(*shape, 3, torch.float8_e4m3fn) for shape in ((m, k), (k, n)))
        scale_a, scale_b, bias = powers(m, 1, seed=1), powers(1, n, seed=2), torch.arange(n).float()
        rows, options = own(m, world), {"rows": m, "out_dtype": torch.float32, "bias": bias}
        expected = (a.float() * scale_a) @ b.float()
        for given in (scale_a[rows], scale_a):  # this PE's, or those of all rows
            for _ in range(2):
                found = kernels.all_gather_gemm(a[rows], b, scale_a=given, scale_b=scale_b, **options)
                same(found, expected * scale_b + bias)
        found = kernels.all_gather_gemm(a[rows], b, scale_a=scale_a[rows], scale_b=powers(1, 1, seed=5), **options)
        same(found, expected * powers(1, 1, seed=5) + bias)
        found = kernels.all_gather_gemm(a[rows], b, activation="swiglu", **options)
        sums = a.float() @ b.float() + bias
        torch.testing.assert_close(found, torch.nn.functional.silu(sums[:, ::2]) * sums[:, 1::2])


def check_uneven_sums_with_an_epilogue(world: Any) -> None:
    """A residual has this PE's rows only: none is read behind them."""
    n = 20
    for m in some(ROWS)[1:]:
        for algorithm in ("auto", *REDUCE):
            if takes(algorithm, m, world):
                a, b, total = operands(world, m, n, 9, torch.float32)
                bias, residual = torch.arange(n).float(), matrix(m, n, 77, torch.float32)[own(m, world)]
                expected = (total + bias)[own(m, world)]
                found = kernels.gemm_reduce_scatter(a, b, bias=bias, residual=residual, algorithm=algorithm)
                same(found, expected + residual)
                found = kernels.gemm_reduce_scatter(a, b, bias=bias, activation="silu", algorithm=algorithm)
                torch.testing.assert_close(found, torch.nn.functional.silu(expected))


def check_uneven_fp8_with_scales_of_rows_and_blocks(world: Any) -> None:
    n, k = 48, 128
    for m in (1, 7, 33):
        total, products = torch.zeros(m, n), []
        for pe in range(world.n_pes):
            a, b = (matrix(*shape, 2 * pe, torch.float8_e4m3fn) for shape in ((m, k), (k, n)))
            scale_a, scale_b, of_block = powers(m, 1, seed=pe), powers(1, n, seed=9 + pe), powers(1, 1, seed=5 + pe)
            products.append((a, b, scale_a, scale_b, of_block))
            total = total + (a.float() * scale_a) @ b.float() * scale_b
        a, b, scale_a, scale_b, _ = products[world.pe]
        options: dict[str, Any] = {"out_dtype": torch.float32, "scale_a": scale_a}
        same(kernels.gemm_reduce_scatter(a, b, scale_b=scale_b, **options), total[own(m, world)])
        blocks = [a.float() * x @ b.float() * y for a, b, x, _, y in products]
        found = kernels.gemm_reduce_scatter(a, b, scale_b=products[world.pe][4], **options)
        same(found, torch.stack(blocks).sum(0)[own(m, world)])


def check_uneven_rows_of_groups(world: Any) -> None:
    if len(world.hosts) > 1:
        return
    group = world.team_world.split_strided(1, 1, world.n_pes - 1)
    if not group:
        return
    comm = communicator_of(group)
    a, b, total = operands(comm_of(comm), 7, 6, 5, torch.float32)
    for algorithm in ("auto", "bulk_synchronous", "fused"):
        same(kernels.gemm_reduce_scatter(a, b, algorithm=algorithm, group=group), total[own(7, comm_of(comm))])
    whole = matrix(7, 5, 3, torch.float32)
    same(kernels.all_gather_gemm(whole[own(7, comm_of(comm))], b, group=group, rows=7), whole @ b)


def comm_of(comm: Any) -> Any:
    """A communicator, with the names of a world."""
    from types import SimpleNamespace

    return SimpleNamespace(n_pes=comm.n_pes, pe=comm.my_rank)


def check_uneven_rows_mixed_with_even_ones(world: Any) -> None:
    """The workspaces are shared, and grow to whole shards."""
    for m in some((12, 7, 12, 1, 24, 23, 24)):
        for algorithm in ("auto", *REDUCE):
            if takes(algorithm, m, world):
                a, b, total = operands(world, m, 16, 8, torch.float32)
                same(kernels.gemm_reduce_scatter(a, b, algorithm=algorithm), total[own(m, world)])
        a, b = matrix(m, 9, 1, torch.float32), matrix(9, 6, 2, torch.float32)
        same(kernels.all_gather_gemm(a[own(m, world)], b, rows=m), a @ b)


def check_mistakes_with_uneven_rows(world: Any) -> None:
    m = world.n_pes * 3 - 1
    a, b, _ = operands(world, m, 5, 6, torch.float32)
    rows = own(m, world)
    shape = (rows.stop - rows.start, 5)
    with raises(ValueError, f"out must be contiguous, of shape \\({shape[0]}, 5\\)"):
        kernels.gemm_reduce_scatter(a, b, torch.empty(shape[0] + 1, 5))
    with raises(ValueError, f"residual must be of shape \\({shape[0]}, 5\\)"):
        kernels.gemm_reduce_scatter(a, b, residual=torch.empty(shape[0] + 1, 5))
    with raises(ValueError, "gemm_reduce_scatter: rows is for all_gather_gemm"):
        kernels.gemm_reduce_scatter(a, b, rows=m)
    part = a[rows]
    with raises(ValueError, "all_gather_gemm: rows must be 0 or more, got -1"):
        kernels.all_gather_gemm(part, b, rows=-1)
    for wrong in (float(m), True, "7", [m]):
        with raises(TypeError, "all_gather_gemm: rows must be an int, got"):
            kernels.all_gather_gemm(part, b, rows=wrong)
    with raises(ValueError, f"out must be contiguous, of shape \\({m}, 5\\)"):
        kernels.all_gather_gemm(part, b, torch.empty(m + 1, 5), rows=m)
    triton_dist.barrier_all()


if __name__ == "__main__":
    run(globals())
