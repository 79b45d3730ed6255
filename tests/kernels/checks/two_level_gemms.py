"""Fused GEMMs in worlds of pretended hosts, against PyTorch; and what crosses between the hosts."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
from epilogues import check_functional_forms_with_other_dimensions, check_gradients, close, fractions, sums_of
from epilogues import same as rounded_once
from gemms import (
    by_columns,
    check_all_gather_gemm,
    check_gemm_reduce_scatter_and_all_reduce,
    check_no_rows,
    matrix,
    powers,
    same,
    scaled,
)
from harness import main as run
from harness import raises
from two_level import crossing, round_robin
from uneven import (
    check_uneven_all_gather_gemm,
    check_uneven_gemm_reduce_scatter,
    check_uneven_sums_with_an_epilogue,
)

import triton_dist
from triton_dist import environment, kernels
from triton_dist.check.log import Kind, read
from triton_dist.kernels import Communicator, functional

__all__ = [
    "check_all_gather_gemm",
    "check_functional_forms_with_other_dimensions",
    "check_gemm_reduce_scatter_and_all_reduce",
    "check_gradients",
    "check_no_rows",
    "check_uneven_all_gather_gemm",
    "check_uneven_gemm_reduce_scatter",
    "check_uneven_sums_with_an_epilogue",
]

SIZES = ((1, 1, 1, torch.float32), (5, 37, 19, torch.bfloat16))
"""Rows of a PE, columns, K and the dtype of a GEMM."""


def check_gemm_all_scatter(world: Any) -> None:
    n_pes = world.n_pes
    for (m, n, k, dtype), algorithm in itertools.product(SIZES, ("auto", "bulk_synchronous")):
        a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(n_pes)]
        out, bias = triton_dist.full((m, n * n_pes), 7.0, dtype=dtype), fractions(n, seed=world.pe)
        for _ in range(2):
            assert kernels.gemm_all_scatter(a, by_columns(parts[world.pe]), out, algorithm=algorithm) is out
            same(out, a.float() @ torch.cat(parts, 1).float())
        kernels.gemm_all_scatter(a, parts[world.pe], out, bias=bias)
        biases = [fractions(n, seed=pe).double() for pe in range(n_pes)]
        exact = [a.double() @ b.double() + v for b, v in zip(parts, biases, strict=True)]
        rounded_once(out, torch.cat(exact, 1))
        triton_dist.free(out)


ALGORITHMS = ("two_level", "bulk_synchronous")


def check_sums_with_an_epilogue(world: Any) -> None:
    """Applied to the sums of all hosts, and rounded once behind it. The algorithms in turn share what they use."""
    n_pes = world.n_pes
    for (m, n, k, dtype), algorithm in itertools.product(SIZES, ALGORITHMS):
        a, b, total = sums_of(world, m * n_pes, n, k, dtype)
        bias, residual = fractions(n, seed=5), fractions(m * n_pes, n, seed=6, dtype=dtype)
        mine = slice(m * world.pe, m * (world.pe + 1))
        for function, rows in ((kernels.gemm_reduce_scatter, mine), (kernels.gemm_all_reduce, slice(None))):
            call = partial(function, algorithm=algorithm)
            for _ in range(2):
                rounded_once(call(a, b, bias=bias), (total + bias.double())[rows])
                found = call(a, b, bias=bias.to(dtype), residual=residual[rows].float())
                rounded_once(found, (total + bias.to(dtype).double() + residual.double())[rows])
            close(call(a, b, activation="gelu", bias=bias), torch.nn.functional.gelu(total + bias.double())[rows])


def check_uneven_rows(world: Any) -> None:
    """PEs that finish fewer rows than others, or none. The result of an all-reduce may be the residual."""
    for m in (1, world.n_pes + 1):
        a, b, total = sums_of(world, m, 37, 19, torch.bfloat16)
        residual = fractions(m, 37, seed=6)
        rounded_once(kernels.gemm_all_reduce(a, b, residual=residual), total + residual.double())
        whole = triton_dist.empty(m, 37, dtype=torch.bfloat16).copy_(residual)
        exact = total + whole.double()
        rounded_once(kernels.gemm_all_reduce(a, b, whole, residual=whole), exact)
        triton_dist.free(whole)
        each = -(-m // world.n_pes)
        mine = slice(min(m, world.pe * each), min(m, (world.pe + 1) * each))
        found = kernels.gemm_reduce_scatter(a, b, residual=residual[mine])
        rounded_once(found, (total + residual.double())[mine])


def check_fp8(world: Any) -> None:
    """With scales of matrices, and of blocks, which are gathered, too."""
    m, n, k, n_pes, dtype = 5, 37, 128, world.n_pes, torch.float8_e4m3fn
    a, b, total = sums_of(world, m * n_pes, n, k, dtype)
    mine, bias = slice(m * world.pe, m * (world.pe + 1)), fractions(n, seed=5)
    scales: dict[str, Any] = {"scale_a": 0.5, "scale_b": 0.5, "out_dtype": torch.float32}
    every = [matrix(m, k, 1 + pe, dtype) for pe in range(n_pes)]
    factors, of_b = [powers(m, 1, seed=pe) for pe in range(n_pes)], powers(1, 1, seed=20)
    gathered = torch.cat([scaled(x, scale, 1, 128) for x, scale in zip(every, factors, strict=True)])
    for algorithm in ALGORITHMS:
        options = {**scales, "algorithm": algorithm}
        rounded_once(kernels.gemm_all_reduce(a, b, bias=bias, **options), total / 4 + bias)
        rounded_once(kernels.gemm_reduce_scatter(a, b, **options), (total / 4)[mine])
        found = kernels.all_gather_gemm(every[world.pe], b, **options)
        rounded_once(found, torch.cat(every).double() @ b.double() / 4)
        options |= {"scale_a": factors[world.pe], "scale_b": of_b}
        rounded_once(kernels.all_gather_gemm(every[world.pe], b, **options), gathered @ scaled(b, of_b, 128, 128))


def check_fp8_with_scales_of_rows_and_blocks(world: Any) -> None:
    """Of sums each slice takes the scales of its rows; of rows that are gathered each PE has its own, or all."""
    m, n, k, n_pes, dtype = 3, 37, 128, world.n_pes, torch.float8_e4m3fn
    operands = [(matrix(m * n_pes, k, pe, dtype), matrix(k, n, 9 + pe, dtype)) for pe in range(n_pes)]
    of_a, of_b = [powers(m * n_pes, 1, seed=pe) for pe in range(n_pes)], [powers(1, n, seed=pe) for pe in range(n_pes)]
    (a, b), mine = operands[world.pe], slice(m * world.pe, m * (world.pe + 1))
    products = [(x.double() * of_a[pe]) @ (y.double() * of_b[pe]) for pe, (x, y) in enumerate(operands)]
    total = sum(products).float()
    blocks = [(x.double() * of_a[pe]) @ (y.double() * of_b[pe][0, 0]) for pe, (x, y) in enumerate(operands)]
    options: dict[str, Any] = {"out_dtype": torch.float32, "algorithm": "two_level", "scale_a": of_a[world.pe]}
    for _ in range(2):
        same(kernels.gemm_reduce_scatter(a, b, scale_b=of_b[world.pe], **options), total[mine])
        same(kernels.gemm_all_reduce(a, b, scale_b=of_b[world.pe], **options), total)
        found = kernels.gemm_reduce_scatter(a, b, scale_b=of_b[world.pe][:, :1], **options)
        same(found, sum(blocks).float()[mine])
        # All PEs have scales of all rows of one A.
        whole, options["scale_a"] = operands[0][0], of_a[0]
        expected = (whole.float() * of_a[0]) @ b.float() * of_b[world.pe]
        for given in (of_a[0], of_a[0][mine]):
            found = kernels.all_gather_gemm(whole[mine], b, scale_b=of_b[world.pe], **options | {"scale_a": given})
            same(found, expected)
        options["scale_a"] = of_a[world.pe]


def check_slices_of_hosts(world: Any) -> None:
    """With an activation that makes one column of two, fewer programs, operands in other memory, and M that changes."""
    n_pes = world.n_pes
    for m in (2, 1, 3):
        a, b, total = sums_of(world, m * n_pes, 6, 5, torch.float32)
        mine, bias = slice(m * world.pe, m * (world.pe + 1)), fractions(6, seed=3)
        options = {"algorithm": "two_level", "sm_margin": 1}
        wide = torch.zeros(m * n_pes, 9)[:, :5].copy_(a)  # rows that do not follow each other
        same(kernels.gemm_reduce_scatter(wide, by_columns(b), **options), total[mine].float())
        shared = matrix(m * n_pes, 5, 4, torch.float32)
        sums = shared @ b + bias
        found = kernels.all_gather_gemm(shared[mine], b, activation="swiglu", bias=bias, **options)
        torch.testing.assert_close(found, torch.nn.functional.silu(sums[:, ::2]) * sums[:, 1::2])
        wide.copy_(shared)
        same(kernels.all_gather_gemm(wide[mine], by_columns(b), **options), shared @ b)


def check_groups(world: Any) -> None:
    """A column, a row, whose algorithms are all; and PEs that are numbered round-robin over the hosts."""
    per_host = len(world.hosts[0].pes)
    row, column = world.team_world.split_2d(per_host)

    def agree(group: Any, pes: range, algorithm: str = "auto") -> None:
        operands = [(matrix(2 * len(pes), 3, 2 * pe, torch.float32), matrix(3, 5, 9 + pe, torch.float32)) for pe in pes]
        a, b = operands[pes.index(world.pe)]
        rows, how = slice(2 * pes.index(world.pe), 2 * pes.index(world.pe) + 2), {"group": group}
        total = sum(x @ y for x, y in operands)
        same(kernels.gemm_reduce_scatter(a, b, algorithm=algorithm, **how), total[rows])
        same(functional.gemm_all_reduce(a, b, algorithm=algorithm, **how), total)
        found, gathered = functional.all_gather_gemm(a, b, return_gathered=True, **how)
        same(gathered, torch.cat([x for x, _ in operands]))
        same(found, gathered @ b)

    agree(column, column.pes)
    agree(column, column.pes, "two_level")
    agree(row, row.pes, "fused")
    if world.n_pes % 2 == 0:
        with round_robin(world), Communicator() as comm:
            agree(comm, range(world.n_pes))
    triton_dist.barrier_all()


def check_reserved_memory(world: Any) -> None:
    """Reserving makes all that calls of at most this size use."""
    m, n, k = 3 * world.n_pes, 10, 6
    dtype, rows = torch.bfloat16, slice(3 * world.pe, 3 * world.pe + 3)
    x, wide = matrix(m, k, 1, dtype), matrix(k, n, 2, dtype)
    with Communicator() as comm:
        made = kernels.reserve("all_gather_gemm", max_tokens=m, hidden=k, group=comm)
        made |= kernels.reserve("gemm_reduce_scatter", "gemm_all_reduce", max_tokens=m, hidden=n, group=comm)
        made |= kernels.reserve("gemm_all_scatter", max_tokens=m, hidden=n * world.n_pes, group=comm)
        before = comm.workspace_bytes
        assert made["gemm_all_reduce"] == 0 and sum(made.values()) == before, (made, before)
        kernels.gemm_all_scatter(x, wide, group=comm)
        for algorithm in ALGORITHMS:
            how = {"algorithm": algorithm, "group": comm}
            kernels.all_gather_gemm(x[rows], wide, **how)
            for call in (kernels.gemm_reduce_scatter, kernels.gemm_all_reduce):
                call(x, wide, **how)
                call(x, wide, bias=torch.ones(n), **how)
        assert comm.workspace_bytes == before, "reserved memory was not enough"
        kernels.reserve("gemm_all_scatter", max_tokens=m, hidden=n * world.n_pes, functional=True, group=comm)
        assert comm.workspace_bytes > before
        before = comm.workspace_bytes
        functional.gemm_all_scatter(x, wide, group=comm)
        assert comm.workspace_bytes == before, "reserved memory was not enough for the functional form"


def check_mistakes(world: Any) -> None:
    a, b = torch.ones(world.n_pes, 4), torch.ones(4, 4)
    where = f"PE {world.pe} on host .* cannot reach the memory of PE .* on host .* by load and store"
    for name, algorithm in (
        ("all_gather_gemm", "copy_engine"),
        ("gemm_all_scatter", "fused_sequential"),
        ("gemm_reduce_scatter", "fused"),
        ("gemm_all_reduce", "ring"),
    ):
        others = "" if name == "gemm_all_scatter" else ", two_level"
        with raises(
            RuntimeError,
            rf"{name} by algorithm {algorithm} \(not auto{others} or bulk_synchronous\): {where}",
            r"loads and stores at peers: pass group=triton_dist.team_shared\(\)",
        ):
            getattr(kernels, name)(a, b, algorithm=algorithm)
    with raises(ValueError, "gemm_all_reduce: out must be symmetric"):
        kernels.gemm_all_reduce(a, b, torch.ones(world.n_pes, 4))
    by_slices = {"algorithm": "two_level"}
    with raises(ValueError, f"two_level needs as many rows of each of the {world.n_pes} PEs, got a of shape"):
        kernels.gemm_reduce_scatter(a[1:], b, **by_slices)
    with raises(ValueError, f"two_level needs as many rows of each of the {world.n_pes} PEs.*bulk_synchronous"):
        kernels.all_gather_gemm(a[:1][world.pe :], b, rows=1, **by_slices)
    with raises(ValueError, "gemm_all_scatter: algorithm must be auto, bulk_synchronous"):
        kernels.gemm_all_scatter(a, b, **by_slices)
    row, _ = world.team_world.split_2d(len(world.hosts[0].pes))
    for function in (kernels.all_gather_gemm, kernels.gemm_reduce_scatter, kernels.gemm_all_reduce):
        with raises(ValueError, "algorithm two_level needs a group over several hosts.*Available are bulk_synchronous"):
            function(a, b, group=row, **by_slices)
    if len(world.hosts[0].pes) > 1:
        with (
            round_robin(world),
            Communicator() as comm,
            raises(ValueError, "two_level needs PEs that are numbered host by host"),
        ):
            kernels.gemm_reduce_scatter(a, b, group=comm, **by_slices)
    triton_dist.barrier_all()


def check_bytes_of_gemms_between_hosts(world: Any) -> None:
    """No byte crosses twice. What a host must get is the least: each row of A of the others, a sum of each other host
    for each row of C, each column of C of the others. An epilogue changes nothing."""
    if not environment.get("TRITON_DIST_CHECK"):
        return
    n_pes, hosts = world.n_pes, len(world.hosts)
    for each, n, k in ((1, 5, 3), (2, 7, 2))[world.n_pes == 4 :]:
        m = each * n_pes
        x, b, bias = torch.ones(m, k), torch.ones(k, n), torch.ones(n)
        whole, wide = triton_dist.zeros(m, n), triton_dist.zeros(m, n * n_pes)
        reduce_scatter, all_reduce = 4 * m * n * (hosts - 1), 4 * m * n * 2 * (hosts - 1)
        calls: dict[str, tuple[int, Any]] = {
            "gemm_all_scatter": (4 * m * n * n_pes * (hosts - 1), partial(kernels.gemm_all_scatter, x, b, wide)),
        }
        for algorithm in ALGORITHMS:
            gather, scatter, reduce = (
                partial(function, algorithm=algorithm)
                for function in (kernels.all_gather_gemm, kernels.gemm_reduce_scatter, kernels.gemm_all_reduce)
            )
            calls |= {
                f"all_gather_gemm, {algorithm}": (4 * m * k * (hosts - 1), partial(gather, x[:each], b)),
                f"gemm_reduce_scatter, {algorithm}": (reduce_scatter, partial(scatter, x, b)),
                f"gemm_reduce_scatter, {algorithm}, bias": (reduce_scatter, partial(scatter, x, b, bias=bias)),
                f"gemm_all_reduce, {algorithm}": (all_reduce, partial(reduce, x, b, whole)),
                f"gemm_all_reduce, {algorithm}, bias": (all_reduce, partial(reduce, x, b, whole, bias=bias)),
            }
        for name, (least, call) in calls.items():
            call()
            before = crossing(world)
            call()
            crossed = crossing(world) - before
            assert crossed == least, f"{name} of {m, n, k}: {crossed} bytes crossed, and {least} must"
        triton_dist.free(whole)
        triton_dist.free(wide)


def check_what_crosses_is_between_slices(world: Any) -> None:
    """In the log, by numbers of all PEs' events: rows of A are awaited when the own host's have been multiplied, and
    sums are put before the last slice is computed. Each exchange is between two slices; on a GPU it is beside one."""
    if not environment.get("TRITON_DIST_CHECK"):
        return
    n_pes, hosts = world.n_pes, len(world.hosts)
    x, b = torch.ones(n_pes, 3), torch.ones(3, 5)
    slices = ["slice", *["exchange", "slice"] * (hosts - 1)]
    for call in (
        partial(kernels.all_gather_gemm, x[:1], b),
        partial(kernels.gemm_reduce_scatter, x, b),
        partial(kernels.gemm_all_reduce, x, b),
    ):
        call(algorithm="two_level")
        before = crossing(world)
        done = [len(log.events) for log in read(world.checking._logs)]
        triton_dist.barrier_all()
        call(algorithm="two_level")
        crossing(world)
        for log, known in zip(read(world.checking._logs), done, strict=True):
            events = log.events[known:]
            events = events[events["program"] >= 0]
            kernels_of = [log.texts[kernel] for kernel in log.programs["kernel"][events["program"]]]
            kinds = [_KINDS.get(kernel, "") for kernel in kernels_of]
            order = [kind for kind, _ in itertools.groupby(kind for kind in kinds if kind)]
            assert order == slices, (call.func.__name__, order)
            puts = [i for i, kind in enumerate(events["kind"]) if kind == Kind.PUT and kinds[i] == "exchange"]
            last = len(kinds) - kinds[::-1].index("slice") - 1
            assert puts and kinds.index("slice") < min(puts) and max(puts) < last, (call.func.__name__, puts, last)
        triton_dist.barrier_all()
    assert before > 0


_KINDS = {"gemm_portable_local": "slice", "host_exchange_kernel": "exchange"}
"""What kernels do, by their names."""


if __name__ == "__main__":
    run(globals())
