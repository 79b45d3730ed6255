"""The fused GEMMs of triton_dist.kernels on GPUs: all algorithms, sizes that fit no tile, and CUDA graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import triton_dist
from ops.harness import check, expect_equal, rounds
from triton_dist import World, kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.device import sms
from triton_dist.kernels.gemm.all_gather_gemm import ALGORITHMS as GATHER
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.gemm_all_scatter import HOPPER_ALGORITHMS as HOPPER
from triton_dist.kernels.gemm.operation import BETWEEN_HOSTS
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE
from triton_dist.kernels.gemm.small_m import fits_bands, fits_small_m
from triton_dist.kernels.shards import each_of, shard_of


def matrix(rows: int, columns: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers: products and sums of them are exact."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(-1, 2, (rows, columns), generator=generator, device="cuda").to(dtype)


def by_columns(b: torch.Tensor) -> torch.Tensor:
    return b.t().contiguous().t()


def usable(*algorithms: str) -> tuple[str, ...]:
    """Those of ``algorithms`` that the world takes: over several hosts few, of which one is for these alone."""
    hosts = communicator_of().grid.hosts
    return tuple(
        name for name in algorithms if (name in ("auto", *BETWEEN_HOSTS) if hosts > 1 else name != "two_level")
    )


def _said(call: Callable[[], torch.Tensor]) -> str:
    """The function and the algorithm."""
    assert isinstance(call, partial)
    return f"{call.func.__name__}, {call.keywords.get('algorithm', 'auto')}"


def again_and_in_graphs(call: Callable[[], torch.Tensor], out: torch.Tensor, expected: torch.Tensor) -> None:
    """Direct calls without a pause, then replays of a graph of two; the result is looked at after each kind."""
    for _ in range(3):
        out.fill_(77)
        triton_dist.barrier_all()
        for _ in range(4):
            call()
        torch.cuda.synchronize()
        expect_equal(out.float(), expected, f"{_said(call)}, direct calls")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
        call()
    out.fill_(77)
    triton_dist.barrier_all()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    expect_equal(out.float(), expected, f"{_said(call)}, replays of a graph")
    triton_dist.barrier_all()


@check(gpu_only=True)
def gemm_all_scatter_patterns(world: World) -> None:
    for m, n, k, dtype in ((1024, 640, 512, torch.bfloat16), (3000, 1160, 328, torch.float16)):
        a, parts = matrix(m, k, 1, dtype), [matrix(k, n, 2 + pe, dtype) for pe in range(world.n_pes)]
        expected = (a.float() @ torch.cat(parts, 1).float()).to(dtype).float()
        out = triton_dist.empty(m, n * world.n_pes, dtype=dtype)
        for b in (parts[world.pe], by_columns(parts[world.pe])):
            for algorithm in usable(*SCATTER, "auto"):
                again_and_in_graphs(partial(kernels.gemm_all_scatter, a, b, out, algorithm=algorithm), out, expected)
        triton_dist.free(out)


@check(gpu_only=True, own_gpu=True)
def all_gather_gemm_patterns(world: World) -> None:
    for rows, n, k, dtype in (
        (256, 1160, 512, torch.bfloat16),
        (100, 640, 328, torch.float16),
        (32, 2048, 1024, torch.bfloat16),
        (4, 2048, 1024, torch.bfloat16),
        (4096 // world.n_pes, 2040, 328, torch.bfloat16),  # two rounds of wide tiles on an H200
    ):
        parts = [matrix(rows, k, 1 + pe, dtype) for pe in range(world.n_pes)]
        b = matrix(k, n, 50 + world.pe, dtype)
        expected = (torch.cat(parts).float() @ b.float()).to(dtype).float()
        out = torch.empty(rows * world.n_pes, n, dtype=dtype, device=world.device)
        for factor in (b, by_columns(b)):
            for algorithm in usable(*GATHER, "two_level", "auto"):
                if (algorithm == "copy_engine" and rows % 128) or (algorithm == "push" and rows * world.n_pes <= 64):
                    continue
                call = partial(kernels.all_gather_gemm, parts[world.pe], factor, out, algorithm=algorithm)
                again_and_in_graphs(call, out, expected)


@check(gpu_only=True)
def gemm_reduce_patterns(world: World) -> None:
    for rows, n, k, dtype in (
        (256, 1160, 512, torch.bfloat16),
        (100, 640, 328, torch.float16),
        (4096 // world.n_pes, 2040, 328, torch.float16),  # two rounds of wide tiles on an H200
        (32, 2048, 1024, torch.bfloat16),
        (13, 641, 333, torch.float16),  # no multiple of anything
        (4, 40000, 264, torch.bfloat16),  # several tiles for some programs of an H200
        (1, 96, 40, torch.float32),
    ):
        m = rows * world.n_pes
        factors = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
        expected = torch.stack([a.float() @ b.float() for a, b in factors]).sum(0).to(dtype).float()
        assert expected.abs().max() < 2 ** (8 if dtype == torch.bfloat16 else 11), "sums are not exact"
        a, b = factors[world.pe]
        part = torch.empty(rows, n, dtype=dtype, device=world.device)
        whole = triton_dist.empty(m, n, dtype=dtype)
        mine = expected[rows * world.pe : rows * (world.pe + 1)]
        for factor in (b, by_columns(b)):
            for algorithm in usable(*REDUCE, "two_level", "auto"):
                if (algorithm == "ring" and rows % 128) or (algorithm == "fused" and not fits_small_m(m, world.n_pes)):
                    continue
                if algorithm == "direct" and (dtype == torch.float32 or n % 8 or k % 8):
                    continue  # for TMA rows begin at multiples of 16 bytes
                scatter = partial(kernels.gemm_reduce_scatter, a, factor, part, algorithm=algorithm)
                again_and_in_graphs(scatter, part, mine)
                reduce = partial(kernels.gemm_all_reduce, a, factor, whole, algorithm=algorithm)
                again_and_in_graphs(reduce, whole, expected)
        triton_dist.free(whole)


@check(gpu_only=True)
def sums_of_rows_in_bands(world: World) -> None:
    """``fused``, of more rows than a tile has, in one round of programs and several."""
    for m, n, k, dtype in (
        (129, 1160, 512, torch.bfloat16),
        (256, 5120, 264, torch.bfloat16),
        (300, 641, 333, torch.float16),  # no multiple of anything
        (512, 9000, 328, torch.float16),  # several tiles for some programs of an H200
    ):
        if not fits_bands(m, world.n_pes):
            continue
        operands = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
        expected = torch.stack([a.float() @ b.float() for a, b in operands]).sum(0).to(dtype).float()
        a, b = operands[world.pe]
        each, shared = m // world.n_pes, m % world.n_pes == 0
        out, part = (torch.empty(rows, n, dtype=dtype, device=world.device) for rows in (m, each))
        for given in (b, by_columns(b)):
            again_and_in_graphs(partial(kernels.gemm_all_reduce, a, given, out, algorithm="fused"), out, expected)
            if shared:
                scatter = partial(kernels.gemm_reduce_scatter, a, given, part, algorithm="fused")
                again_and_in_graphs(scatter, part, expected[world.pe * each :][:each])


@check(gpu_only=True, maps_all=True, own_gpu=True)
def gemms_of_rows_that_fill_no_tile(world: World) -> None:
    """The overlapped algorithms on Hopper, without and with a residual; M that PEs cannot share where they need not."""
    n, k, dtype, n_pes = 1296, 528, torch.bfloat16, world.n_pes
    b = matrix(k, n, 99 + world.pe, dtype)
    for rows in (1, 33, 130, 1000):
        m = rows * n_pes
        factors = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(n_pes)]
        total = torch.stack([x.float() @ y.float() for x, y in factors]).sum(0)
        assert total.abs().max() < 250, "sums are not exact"
        mine, own = factors[world.pe], slice(rows * world.pe, rows * (world.pe + 1))
        local = torch.empty(m, n, dtype=dtype, device=world.device)
        gathered = torch.cat([x[:rows] for x, _ in factors]).float() @ b.float()
        for factor in (b, by_columns(b)):
            for algorithm in ("copy_engine", "push") if m > 64 else ("copy_engine",):
                call = partial(kernels.all_gather_gemm, mine[0][:rows], factor, local, algorithm=algorithm)
                again_and_in_graphs(call, local, gathered)
        residual = matrix(m, n, 77, dtype)
        part, whole = local[:rows], triton_dist.empty(m, n, dtype=dtype)
        for added in (None, residual):
            expected = total if added is None else total + added.float()
            for algorithm in ("ring", "direct"):
                options = {"algorithm": algorithm, "residual": None if added is None else added[own]}
                call = partial(kernels.gemm_reduce_scatter, *mine, part, **options)
                again_and_in_graphs(call, part, expected[own])
            for odd, algorithm in itertools.product(dict.fromkeys((m, m - 1)), ("ring", "direct")):
                options = {"algorithm": algorithm, "residual": None if added is None else added[:odd]}
                call = partial(kernels.gemm_all_reduce, mine[0][:odd], mine[1], whole[:odd], **options)
                again_and_in_graphs(call, whole[:odd], expected[:odd])
        triton_dist.free(whole)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def sums_of_owners(world: World) -> None:
    """``direct``: tiles of both sizes, one round of programs and many, with parts along K, and fp8."""
    n_pes = world.n_pes
    for m, n, k, dtype in (
        (256, 1160, 512, torch.bfloat16),
        (1, 1296, 528, torch.float16),
        (100 * n_pes - 1, 640, 328, torch.float16),
        (4093, 2048, 328, torch.float16),
        (3997, 1296, 528, torch.bfloat16),
        (777, 5120, 512, torch.bfloat16),
        (256, 5120, 4352, torch.float16),
        (1024, 4096, 512, E4M3),
        (333, 1168, 512, E4M3),
        (2048, 72, 264, torch.float16),  # a single column of tiles
    ):
        of_c = torch.float16 if dtype == E4M3 else dtype
        factors = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(n_pes)]
        total = torch.stack([x.float() @ y.float() for x, y in factors]).sum(0)
        residual = matrix(m, n, 77, of_c)
        assert total.abs().max() < (255 if of_c == torch.bfloat16 else 2047), "sums are not exact"
        a, b = factors[world.pe]
        whole = triton_dist.empty(m, n, dtype=of_c)
        own = shard_of(m, each_of(m, n_pes), world.pe)
        mine, part = slice(own.start, own.stop), torch.empty(len(own), n, dtype=of_c, device=world.device)
        scales = SCALES if dtype == E4M3 else {}
        expected = exact(total) if scales else total
        for factor in (by_columns(b), *(() if scales else (b,))):
            call = partial(kernels.gemm_all_reduce, a, factor, whole, algorithm="direct", **scales)
            again_and_in_graphs(call, whole, expected)
            again_and_in_graphs(partial(call, residual=residual), whole, expected + residual.float())
            call = partial(kernels.gemm_reduce_scatter, a, factor, part, algorithm="direct", **scales)
            again_and_in_graphs(call, part, expected[mine])
            finished = (expected + residual.float())[mine]
            again_and_in_graphs(partial(call, residual=residual[mine]), part, finished)
        triton_dist.free(whole)
    random = torch.Generator(world.device).manual_seed(world.pe)
    a = torch.randn(777, 1024, generator=random, device=world.device).bfloat16()
    b = torch.randn(1024, 5120, generator=random, device=world.device).bfloat16()
    whole = triton_dist.empty(777, 5120, dtype=torch.bfloat16)
    first = kernels.gemm_all_reduce(a, b, whole, algorithm="direct").clone()
    for _ in range(20):
        assert torch.equal(kernels.gemm_all_reduce(a, b, whole, algorithm="direct"), first), "other bits"
    everywhere = triton_dist.empty(n_pes * 777, 5120, dtype=torch.bfloat16)
    kernels.all_gather(everywhere, first)
    assert all(torch.equal(part, first) for part in everywhere.view(n_pes, 777, 5120)), "other bits on another PE"
    triton_dist.free(everywhere)
    triton_dist.free(whole)


@check(gpu_only=True, maps_all=True)
def sums_of_late_peers(world: World) -> None:
    """Programs wait for a peer's tiles with several units of theirs ahead, before the epilogue and after it. On a GPU
    that PEs or other processes share every peer is late."""
    m, n, n_pes = 1024 * world.n_pes, 4096, world.n_pes
    own = slice(1024 * world.pe, 1024 * (world.pe + 1))
    bias, residual = matrix(1, n, 60, torch.float32)[0], matrix(m, n, 61, torch.float32)
    for dtype, of_c in ((E4M3, torch.float16), (torch.bfloat16, torch.bfloat16)):
        k = 1024 // torch.empty(0, dtype=dtype).itemsize // 2
        operands = [(matrix(m, k, 2 * pe, dtype), by_columns(matrix(k, n, 2 * pe + 1, dtype))) for pe in range(n_pes)]
        total = torch.stack([x.float() @ y.float() for x, y in operands]).sum(0) + bias + residual
        total = total.to(of_c).float()
        a, b = operands[world.pe]
        options: dict[str, Any] = {"bias": bias}
        if dtype == E4M3:
            ones = torch.ones(m, 1, device=world.device), torch.ones(1, n, device=world.device)
            options |= {"scale_a": ones[0], "scale_b": ones[1], "out_dtype": of_c}
        whole, part = triton_dist.empty(m, n, dtype=of_c), torch.empty(1024, n, dtype=of_c, device=world.device)
        for algorithm in ("ring", "direct"):
            reduce = partial(kernels.gemm_all_reduce, a, b, whole, residual=residual, algorithm=algorithm, **options)
            scatter = partial(
                kernels.gemm_reduce_scatter, a, b, part, residual=residual[own], algorithm=algorithm, **options
            )
            for call, out, expected in ((reduce, whole, total), (scatter, part, total[own])):
                for late in range(rounds(60, 10)):
                    if late % n_pes == world.pe:
                        torch.cuda._sleep(20_000 << late % 7)
                    call()
                    torch.cuda.synchronize()
                    expect_equal(out.float(), expected, f"{_said(call)}, {dtype}, call {late}")
                triton_dist.barrier_all()
        triton_dist.free(whole)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def gemms_of_many_rows_in_turn(world: World) -> None:
    """Plans, staging memory and flags of different numbers of rows, one launch after the other, without a pause."""
    n, k, dtype, n_pes = 640, 256, torch.bfloat16, world.n_pes
    most = 700 * n_pes
    factors = [(matrix(most, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(n_pes)]
    total = torch.stack([x.float() @ y.float() for x, y in factors]).sum(0)
    a, b = factors[world.pe]
    whole = triton_dist.empty(most, n, dtype=dtype)
    for seed in range(3):
        found = []
        for rows in torch.randint(1, 700, (12,), generator=torch.Generator().manual_seed(seed)).tolist():
            m = rows * n_pes
            part = kernels.gemm_reduce_scatter(a[:m], b, algorithm=("direct", "ring")[rows // 2 % 2])
            kernels.gemm_all_reduce(a[: m - 1], b, whole[: m - 1], algorithm=("ring", "direct")[rows % 2])
            gathers = "push" if rows % 2 and m > 64 else "copy_engine"
            local = kernels.all_gather_gemm(a[:rows], b, algorithm=gathers)
            found.append((rows, part, whole[: m - 1].clone(), local))
        torch.cuda.synchronize()
        for rows, part, summed, local in found:
            m = rows * n_pes
            assert torch.equal(part.float(), total[rows * world.pe : rows * (world.pe + 1)]), rows
            assert torch.equal(summed.float(), total[: m - 1]), rows
            assert torch.equal(local.float(), torch.cat([x[:rows] for x, _ in factors]).float() @ b.float()), rows
    assert kernels.gemm_all_reduce(a[:0], b, whole[:0]).shape == (0, n)
    triton_dist.free(whole)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def gemms_with_sm_margins(world: World) -> None:
    """All algorithms with fewer programs, in turn with all of them; 2 is the least that all can do with."""
    n_pes, k, dtype = world.n_pes, 512, torch.bfloat16
    for rows, n in ((512, 640), (16, 1160)):
        m = rows * n_pes
        factors = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(n_pes)]
        a, b = factors[world.pe]
        total = torch.stack([x.float() @ y.float() for x, y in factors]).sum(0).to(dtype).float()
        gathered = (torch.cat([x[:rows] for x, _ in factors]).float() @ b.float()).to(dtype).float()
        scattered = (factors[0][0].float() @ torch.cat([y for _, y in factors], 1).float()).to(dtype).float()
        whole, wide = triton_dist.empty(m, n, dtype=dtype), triton_dist.empty(m, n * n_pes, dtype=dtype)
        part, local = (torch.empty(size, n, dtype=dtype, device=world.device) for size in (rows, m))
        mine = total[rows * world.pe : rows * (world.pe + 1)]
        reduce = [name for name in REDUCE if (name != "ring" or rows % 128 == 0) and (name != "fused" or m <= 128)]
        gather = [name for name in GATHER if name == "bulk_synchronous" or rows % 128 == 0]
        for margin in (20, 0, sms() - 2, sms() // 2):
            for algorithms, call, out, expected in (
                (SCATTER, partial(kernels.gemm_all_scatter, factors[0][0], b, wide), wide, scattered),
                (gather, partial(kernels.all_gather_gemm, a[:rows], b, local), local, gathered),
                (reduce, partial(kernels.gemm_reduce_scatter, a, b, part), part, mine),
                (reduce, partial(kernels.gemm_all_reduce, a, b, whole), whole, total),
            ):
                for algorithm in (*algorithms, "auto"):
                    again_and_in_graphs(partial(call, algorithm=algorithm, sm_margin=margin), out, expected)
        triton_dist.free(whole)
        triton_dist.free(wide)


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SCALES = {"scale_a": 0.5, "scale_b": 0.5}


def fp8_cases(world: World) -> Iterator[tuple[int, torch.dtype, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Rows of each PE, the type of the result, and each PE's factors; what they give is exact in that type."""
    for rows, n, k, types, dtype in (
        (256, 1168, 512, (E4M3, E4M3), torch.bfloat16),
        (100, 1160, 336, (E4M3, E5M2), torch.float16),  # cuBLAS does not take this width
        (128, 640, 336, (E5M2, E5M2), torch.float32),  # nor this pair; and the kernel for Hopper makes no such results
        (4096 // world.n_pes, 2032, 336, (E4M3, E4M3), torch.bfloat16),  # two rounds of wide tiles on an H200
    ):
        m = rows * world.n_pes
        yield (
            rows,
            dtype,
            [(matrix(m, k, 2 * pe, types[0]), matrix(k, n, 2 * pe + 1, types[1])) for pe in range(world.n_pes)],
        )


def layouts(b: torch.Tensor, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, bool], ...]:
    """``b`` by columns and by rows, and whether the kernel for Hopper takes it."""
    return (by_columns(b), dtype.itemsize == 2), (b, False)


def exact(sums: torch.Tensor) -> torch.Tensor:
    """Sums of products, times both scales."""
    assert sums.abs().max() < 256, "sums are not exact"
    return sums / 4


@check(gpu_only=True, maps_all=True)
def fp8_gemm_all_scatter(world: World) -> None:
    for _, dtype, factors in fp8_cases(world):
        a = factors[0][0]
        expected = exact(torch.cat([a.float() @ b.float() for _, b in factors], 1))
        out = triton_dist.empty(*expected.shape, dtype=dtype)
        for b, hopper in layouts(factors[world.pe][1], dtype):
            for algorithm in (*(name for name in SCATTER if hopper or name not in HOPPER), "auto"):
                call = partial(kernels.gemm_all_scatter, a, b, out, algorithm=algorithm, **SCALES)
                again_and_in_graphs(call, out, expected)
        triton_dist.free(out)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def fp8_all_gather_gemm(world: World) -> None:
    for rows, dtype, factors in fp8_cases(world):
        parts = [a[pe * rows : (pe + 1) * rows] for pe, (a, _) in enumerate(factors)]
        expected = exact(torch.cat([part.float() for part in parts]) @ factors[world.pe][1].float())
        out = torch.empty(expected.shape, dtype=dtype, device=world.device)
        for b, hopper in layouts(factors[world.pe][1], dtype):
            overlapped = ("copy_engine", "push") if hopper and rows % 128 == 0 else ()
            for algorithm in ("bulk_synchronous", "auto", *overlapped):
                call = partial(kernels.all_gather_gemm, parts[world.pe], b, out, algorithm=algorithm, **SCALES)
                again_and_in_graphs(call, out, expected)


@check(gpu_only=True, maps_all=True)
def fp8_gemm_reduce(world: World) -> None:
    for rows, dtype, factors in fp8_cases(world):
        a = factors[world.pe][0]
        expected = exact(torch.stack([x.float() @ y.float() for x, y in factors]).sum(0))
        mine = expected[rows * world.pe : rows * (world.pe + 1)]
        part = torch.empty(mine.shape, dtype=dtype, device=world.device)
        whole = triton_dist.empty(*expected.shape, dtype=dtype)
        for b, hopper in layouts(factors[world.pe][1], dtype):
            for algorithm in ("bulk_synchronous", "auto", *(("ring",) if hopper and rows % 128 == 0 else ())):
                scatter = partial(kernels.gemm_reduce_scatter, a, b, part, algorithm=algorithm, **SCALES)
                again_and_in_graphs(scatter, part, mine)
                reduce = partial(kernels.gemm_all_reduce, a, b, whole, algorithm=algorithm, **SCALES)
                again_and_in_graphs(reduce, whole, expected)
        triton_dist.free(whole)


def scaled(x: torch.Tensor, scale: torch.Tensor, *block: int) -> torch.Tensor:
    """``x``, of which each block is multiplied by its scale."""
    whole = scale.double().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return x.double() * whole[: x.shape[0], : x.shape[1]]


@check(gpu_only=True, maps_all=True)
def fp8_with_scales_of_blocks(world: World) -> None:
    n_pes = world.n_pes
    for rows, n, k in ((256, 1168, 512), (13, 130, 128), (1024, 4096, 384)):
        m = rows * n_pes
        mine: list[tuple[torch.Tensor, torch.Tensor]] = []
        scales: list[tuple[torch.Tensor, torch.Tensor]] = []
        wide: list[tuple[torch.Tensor, torch.Tensor]] = []
        for pe in range(n_pes):
            a, b = matrix(m, k, 2 * pe, E4M3), matrix(k, n, 2 * pe + 1, E4M3)
            scale_a = 2.0 ** (matrix(m, k // 128, 40 + pe, torch.float32) - 1)
            scale_b = 2.0 ** matrix(k // 128, -(-n // 128), 80 + pe, torch.float32)
            mine.append((a, b))
            scales.append((scale_a, scale_b))
            wide.append((scaled(a, scale_a, 1, 128), scaled(b, scale_b, 128, 128)))
        (a, b), (scale_a, scale_b), own = (
            mine[world.pe],
            scales[world.pe],
            slice(rows * world.pe, rows * (world.pe + 1)),
        )
        total = torch.stack([x @ y for x, y in wide]).sum(0).float()
        gathered = (
            torch.cat([x[rows * i : rows * (i + 1)] for i, (x, _) in enumerate(wide)]) @ wide[world.pe][1]
        ).float()
        scattered = torch.cat([wide[0][0] @ y for _, y in wide], 1).float()
        f32 = torch.float32
        whole, outs = triton_dist.empty(m, n, dtype=f32), triton_dist.empty(m, n * n_pes, dtype=f32)
        part, local = (torch.empty(size, n, dtype=f32, device=world.device) for size in (rows, m))
        for factor in (b, by_columns(b)):
            options = {"scale_b": scale_b}
            for algorithm in (*(name for name in SCATTER if name not in HOPPER), "auto"):
                call = partial(kernels.gemm_all_scatter, mine[0][0], factor, outs, algorithm=algorithm, **options)
                again_and_in_graphs(partial(call, scale_a=scales[0][0]), outs, scattered)
            for algorithm in ("bulk_synchronous", "auto"):
                options |= {"algorithm": algorithm}
                call = partial(kernels.all_gather_gemm, a[own], factor, local, scale_a=scale_a[own], **options)
                again_and_in_graphs(call, local, gathered)
                call = partial(kernels.gemm_reduce_scatter, a, factor, part, scale_a=scale_a, **options)
                again_and_in_graphs(call, part, total[own])
                call = partial(kernels.gemm_all_reduce, a, factor, whole, scale_a=scale_a, **options)
                again_and_in_graphs(call, whole, total)
        triton_dist.free(whole)
        triton_dist.free(outs)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def scales_of_rows(world: World) -> None:
    """Each algorithm, with small integers, whose sums are exact in float16; rows that fill tiles, and others. SwiGLU is
    compared with PyTorch's."""
    n_pes, f16 = world.n_pes, torch.float16
    hopper = torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8
    for rows, n, k in ((256, 1168, 512), (13, 144, 256), (101, 640, 400), (1024, 4096, 512), (1, 2048, 1024)):
        m, own = rows * n_pes, slice(rows * world.pe, rows * (world.pe + 1))
        operands, wide = [], []
        for pe in range(n_pes):
            a, b = (matrix(*size, 2 * pe + i, torch.float32).clamp(-1, 1) for i, size in enumerate(((m, k), (k, n))))
            a, b = a.to(E4M3), by_columns(b.to(E4M3))
            scale_a = 2.0 ** matrix(m, 1, 40 + pe, torch.float32).clamp(0, 1)
            scale_b = 2.0 ** matrix(1, n, 80 + pe, torch.float32).clamp(0, 1)
            operands.append((a, b, scale_a, scale_b))
            wide.append((a.double() * scale_a, b.double() * scale_b))
        a, b, scale_a, scale_b = operands[world.pe]
        products = [x @ y for x, y in wide]
        bias, residual = matrix(1, n, 60, torch.float32)[0], matrix(m, n, 61, torch.float32)
        total = (torch.stack(products).sum(0) + bias + residual).float()
        of_all = torch.cat([operands[pe][2][rows * pe : rows * (pe + 1)] for pe in range(n_pes)])
        parts = [x[rows * pe : rows * (pe + 1)] for pe, (x, _) in enumerate(wide)]
        gathered = (torch.cat(parts) @ wide[world.pe][1] + bias).float()
        whole, outs = triton_dist.empty(m, n, dtype=f16), triton_dist.empty(m, n * n_pes, dtype=f16)
        part, local = (torch.empty(size, n, dtype=f16, device=world.device) for size in (rows, m))
        of_b = {"scale_b": scale_b, "bias": bias}
        for algorithm in ("bulk_synchronous", "auto", *(("copy_engine",) if hopper else ())):
            for of_a in (scale_a[own], of_all):
                options = {"algorithm": algorithm, "scale_a": of_a, **of_b}
                again_and_in_graphs(partial(kernels.all_gather_gemm, a[own], b, local, **options), local, gathered)
            gate, up = ((gathered - bias)[:, first::2] / 64 for first in (0, 1))
            options = {"algorithm": algorithm, "scale_a": scale_a[own] / 64, "scale_b": scale_b, "out_dtype": f16}
            folded = kernels.all_gather_gemm(a[own], b, activation="swiglu", **options).float()
            torch.testing.assert_close(folded, torch.nn.functional.silu(gate) * up, rtol=2e-3, atol=1e-2)
        for algorithm in ("bulk_synchronous", "auto", *(("ring", "direct") if hopper else ())):
            options = {"algorithm": algorithm, "scale_a": scale_a, **of_b}
            call = partial(kernels.gemm_reduce_scatter, a, b, part, residual=residual[own], **options)
            again_and_in_graphs(call, part, total[own])
            call = partial(kernels.gemm_all_reduce, a, b, whole, residual=residual, **options)
            again_and_in_graphs(call, whole, total)
        scattered = torch.cat([wide[0][0] @ y for _, y in wide], 1).float()
        for algorithm in (*SCATTER, "auto"):
            if hopper or algorithm not in HOPPER:
                options = {"algorithm": algorithm, "scale_a": operands[0][2], "scale_b": scale_b}
                again_and_in_graphs(
                    partial(kernels.gemm_all_scatter, operands[0][0], b, outs, **options), outs, scattered
                )
        triton_dist.free(whole)
        triton_dist.free(outs)


@check(gpu_only=True, maps_all=True)
def scales_of_rows_as_of_torch(world: World) -> None:
    """Random numbers, against ``torch._scaled_mm`` with the same scales, which keeps about as many bits of sums."""
    m, n, k = 512, 1024, 2048
    made = torch.Generator("cuda").manual_seed(7)
    a, b = (torch.randn(size, k, device="cuda", generator=made).to(E4M3) for size in (m, n))
    scale_a, scale_b = (torch.rand(size, 1, device="cuda", generator=made) + 0.5 for size in (m, n))
    b, scale_b = b.t(), scale_b.t()
    expected = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True).float()
    rows = slice(m // world.n_pes * world.pe, m // world.n_pes * (world.pe + 1))
    for algorithm in ("bulk_synchronous", "auto"):
        how = {"scale_a": scale_a[rows], "scale_b": scale_b, "algorithm": algorithm}
        found = kernels.all_gather_gemm(a[rows], b, **how).float()
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=0.5)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def scales_of_blocks_by_algorithm(world: World) -> None:
    """Each algorithm, with small integers, whose sums are exact in float16; rows that fill tiles, and others."""
    n_pes, f16 = world.n_pes, torch.float16
    hopper = torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8
    for rows, n, k in ((256, 1168, 512), (13, 136, 256), (100, 640, 384), (1024, 4096, 512), (1, 2048, 1024)):
        m, own = rows * n_pes, slice(rows * world.pe, rows * (world.pe + 1))
        operands, wide = [], []
        for pe in range(n_pes):
            a, b = matrix(m, k, 2 * pe, E4M3), by_columns(matrix(k, n, 2 * pe + 1, E4M3))
            scale_a = 2.0 ** matrix(m, k // 128, 40 + pe, torch.float32).clamp(min=0)
            scale_b = 2.0 ** matrix(k // 128, -(-n // 128), 80 + pe, torch.float32).clamp(min=0)
            operands.append((a, b, scale_a, scale_b))
            wide.append((scaled(a, scale_a, 1, 128), scaled(b, scale_b, 128, 128)))
        a, b, scale_a, scale_b = operands[world.pe]
        total = torch.stack([x @ y for x, y in wide]).sum(0).float()
        parts = [x[rows * pe : rows * (pe + 1)] for pe, (x, _) in enumerate(wide)]
        gathered = (torch.cat(parts) @ wide[world.pe][1]).float()
        whole = triton_dist.empty(m, n, dtype=f16)
        part, local = (torch.empty(size, n, dtype=f16, device=world.device) for size in (rows, m))
        for algorithm in ("bulk_synchronous", "auto", *(("copy_engine",) if hopper else ())):
            options = {"algorithm": algorithm, "scale_a": scale_a[own], "scale_b": scale_b}
            again_and_in_graphs(partial(kernels.all_gather_gemm, a[own], b, local, **options), local, gathered)
        for algorithm in ("bulk_synchronous", "auto", *(("ring", "direct") if hopper else ())):
            options = {"algorithm": algorithm, "scale_a": scale_a, "scale_b": scale_b}
            again_and_in_graphs(partial(kernels.gemm_reduce_scatter, a, b, part, **options), part, total[own])
            again_and_in_graphs(partial(kernels.gemm_all_reduce, a, b, whole, **options), whole, total)
        triton_dist.free(whole)


@check(gpu_only=True, maps_all=True, own_gpu=True)
def scales_of_blocks_that_share_a_line(world: World) -> None:
    """Call after call with other scales. Those of this PE's last rows and of a peer's first lie in one line of the L1
    cache, which the kernel may have read before the peer's arrived: then it would take those of the last call."""
    n_pes, rows, n, k = world.n_pes, 257, 2048, 896
    if torch.cuda.get_device_capability() != (9, 0) or n_pes > 8:
        return
    a, b = matrix(rows * n_pes, k, 1, E4M3), by_columns(matrix(k, n, 2, E4M3))
    scale_b = torch.ones(k // 128, n // 128, device=world.device)
    exact, own = b.double(), slice(rows * world.pe, rows * (world.pe + 1))
    for i in range(60):
        scale_a = 2.0 ** matrix(rows * n_pes, k // 128, 40 + i, torch.float32).clamp(min=0)
        found = kernels.all_gather_gemm(a[own], b, algorithm="copy_engine", scale_a=scale_a[own], scale_b=scale_b)
        assert torch.equal(found, (scaled(a, scale_a, 1, 128) @ exact).to(found.dtype)), f"call {i}"


@check(gpu_only=True, maps_all=True)
def scales_of_blocks_all_scatter(world: World) -> None:
    """The kernels for Hopper, whose results are exact in float16: rows that fill tiles, and others; also SwiGLU, whose
    sums are small enough to be compared with PyTorch's."""
    n_pes, f16 = world.n_pes, torch.float16
    hopper = torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8
    algorithms = "auto", *(("fused_producer_consumer", *HOPPER) if hopper else ())
    for m, n, k in ((512, 1168, 512), (13, 144, 256), (2048, 4096, 512)):
        a, scale_a = matrix(m, k, 0, E4M3), 2.0 ** matrix(m, k // 128, 40, torch.float32).clamp(min=0)
        parts = [by_columns(matrix(k, n, 1 + pe, E4M3)) for pe in range(n_pes)]
        scales = [2.0 ** matrix(k // 128, -(-n // 128), 80 + pe, torch.float32).clamp(min=0) for pe in range(n_pes)]
        wide = [scaled(b, scale, 128, 128) for b, scale in zip(parts, scales, strict=True)]
        expected = (scaled(a, scale_a, 1, 128) @ torch.cat(wide, 1)).float()
        out = triton_dist.empty(m, n * n_pes, dtype=f16)
        options = {"scale_a": scale_a, "scale_b": scales[world.pe]}
        for algorithm in algorithms:
            call = partial(kernels.gemm_all_scatter, a, parts[world.pe], out, algorithm=algorithm, **options)
            again_and_in_graphs(call, out, expected)
        gate, up = expected[:, ::2] / 64, expected[:, 1::2] / 64
        folded = triton_dist.empty(m, n // 2 * n_pes, dtype=f16)
        options["scale_a"] = scale_a / 64
        for algorithm in algorithms:
            folded.fill_(77)
            triton_dist.barrier_all()
            kernels.gemm_all_scatter(a, parts[world.pe], folded, algorithm=algorithm, activation="swiglu", **options)
            torch.cuda.synchronize()
            torch.testing.assert_close(folded.float(), torch.nn.functional.silu(gate) * up, rtol=2e-3, atol=1e-2)
            triton_dist.barrier_all()
        triton_dist.free(out)
        triton_dist.free(folded)


@check(gpu_only=True, maps_all=True)
def scales_of_blocks_with_epilogues(world: World) -> None:
    """Bias and residual of float32, added to the scaled sums, once."""
    n_pes, f16, rows, n, k = world.n_pes, torch.float16, 100, 640, 512
    m, own = rows * n_pes, slice(rows * world.pe, rows * (world.pe + 1))
    a, b = matrix(m, k, world.pe, E4M3), by_columns(matrix(k, n, 20 + world.pe, E4M3))
    scales = 2.0 * torch.ones(m, k // 128, device="cuda"), torch.ones(k // 128, n // 128, device="cuda")
    bias, residual = matrix(1, n, 60, torch.float32)[0], matrix(m, n, 61, torch.float32)
    both = [(matrix(m, k, pe, E4M3), matrix(k, n, 20 + pe, E4M3)) for pe in range(n_pes)]
    total = torch.stack([2 * x.float() @ y.float() for x, y in both]).sum(0) + bias
    whole = triton_dist.empty(m, n, dtype=f16)
    part, local = (torch.empty(size, n, dtype=f16, device=world.device) for size in (rows, m))
    names = ("bulk_synchronous", "auto")
    for algorithm in (*names, *(("ring",) if torch.cuda.get_device_capability() == (9, 0) and n_pes <= 8 else ())):
        options = {"algorithm": algorithm, "scale_a": scales[0], "scale_b": scales[1], "bias": bias}
        call = partial(kernels.gemm_reduce_scatter, a, b, part, residual=residual[own], **options)
        again_and_in_graphs(call, part, (total + residual)[own])
        call = partial(kernels.gemm_all_reduce, a, b, whole, residual=residual, **options)
        again_and_in_graphs(call, whole, total + residual)
    gathered = (
        2 * torch.cat([both[pe][0][rows * pe : rows * (pe + 1)].float() for pe in range(n_pes)]) @ b.float() + bias
    )
    for algorithm in names:
        options = {"algorithm": algorithm, "scale_a": scales[0][own], "scale_b": scales[1], "bias": bias}
        again_and_in_graphs(partial(kernels.all_gather_gemm, a[own], b, local, **options), local, gathered)
    triton_dist.free(whole)
