"""The Hopper GEMMs, in Gluon, as the CPU world interprets them: exact results of sizes that fill no tile.

TMA copies and products of tensor cores are done early or late, by chance, so waits and fences that lack would show.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from epilogues import fractions
from gemms import by_columns, matrix, powers, same, scaled
from harness import main as run
from harness import raises, some

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.gemm import portable
from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.hopper.direct import by_rows, by_turns, direct_schedule
from triton_dist.kernels.protocols.stream_work import StreamWork, give, take

FP8 = torch.float8_e4m3fn
SUMS = tuple(
    (algorithm, function)
    for function in (kernels.gemm_all_reduce, kernels.gemm_reduce_scatter)
    for algorithm in ("ring", "direct")
)
SIZES = (
    (65, 16, 64, torch.bfloat16, False),
    (130, 272, 80, torch.float16, True),
    (257, 144, 192, torch.float16, False),
    (300, 528, 128, FP8, True),
    (70, 64, 2112, torch.float16, True),  # split along K
)
"""Rows, columns, K, a dtype, and whether B has contiguous columns."""
SCATTERS = "copy_engine", "warp_specialized", "fused_producer_consumer", "fused_sequential", "bulk_synchronous"


def operands(world: Any, m: int, n: int, k: int, dtype: torch.dtype, transposed: bool) -> list[Any]:
    made = [(matrix(m, k, 2 * pe, dtype), matrix(k, n, 2 * pe + 1, dtype)) for pe in range(world.n_pes)]
    return [(a, by_columns(b) if transposed else b) for a, b in made]


def summed(products: list[torch.Tensor]) -> torch.Tensor:
    """What PEs add up that each round once: integers, which are exact in the results here."""
    total: torch.Tensor = sum(products)  # type: ignore[assignment]
    assert total.abs().max() <= 2048  # (of bfloat16 256, which sums of 64 products hardly reach)
    return total


def part(world: Any, function: Callable[..., torch.Tensor], whole: torch.Tensor) -> torch.Tensor:
    """What this PE gets of a sum."""
    if function is kernels.gemm_all_reduce:
        return whole
    each = -(-whole.shape[0] // world.n_pes)
    return whole[world.pe * each : (world.pe + 1) * each]


def result(dtype: torch.dtype) -> torch.dtype:
    return torch.float16 if dtype == FP8 else dtype


def available(world: Any, *algorithms: str) -> list[str]:
    """Those that the world has: the checker takes turns, and a copy engine takes none."""
    return [name for name in algorithms if world.turns is None or name != "copy_engine"]


def check_hopper_sums(world: Any) -> None:
    assert is_hopper()
    for m, n, k, dtype, transposed in some(SIZES, 3):
        given = operands(world, m, n, k, dtype, transposed)
        whole = summed([a.float() @ b.float() for a, b in given])
        for algorithm, function in SUMS:
            for _ in range(2):
                found = function(*given[world.pe], algorithm=algorithm, out_dtype=result(dtype))
                same(found, part(world, function, whole))


def check_hopper_rows_to_all(world: Any) -> None:
    """GEMM and all-scatter, by every kernel, of rows and columns of any number."""
    for m, n, k, dtype, transposed in some((*SIZES[1:], SIZES[0]), 3):
        given = operands(world, m, n, k, dtype, transposed)
        a = given[0][0]
        out = triton_dist.empty(m, n * world.n_pes, dtype=result(dtype))
        expected = torch.cat([a.float() @ b.float() for _, b in given], 1).to(result(dtype)).float()
        for algorithm in available(world, *SCATTERS):
            for _ in range(2):
                kernels.gemm_all_scatter(a, given[world.pe][1], out.fill_(7), algorithm=algorithm)
                same(out, expected)
                triton_dist.barrier_all()
        triton_dist.free(out)


def check_hopper_epilogues(world: Any) -> None:
    """The bias and the residual of sums, and an activation of rows for all."""
    m, n, k, me = 150, 256, 128, world.pe
    given = operands(world, m, n, k, torch.float16, True)
    a, b = given[me]
    bias, residual = fractions(n, seed=1), fractions(m, n, seed=2, dtype=torch.float16)
    whole = summed([x.float() @ y.float() for x, y in given])
    expected = (whole + bias + residual.float()).half().float()
    for algorithm, function in SUMS:
        own = part(world, function, residual).contiguous()
        same(function(a, b, algorithm=algorithm, bias=bias, residual=own), part(world, function, expected))
    out = triton_dist.empty(m, n // 2 * world.n_pes, dtype=torch.float16)
    kernels.gemm_all_scatter(given[0][0], b, out, algorithm="warp_specialized", activation="swiglu")
    products = [given[0][0].float() @ y.float() for _, y in given]
    expected = torch.cat([torch.nn.functional.silu(one[:, ::2]) * one[:, 1::2] for one in products], 1)
    torch.testing.assert_close(out.float(), expected, rtol=1e-3, atol=1e-3)
    triton_dist.free(out)


def check_hopper_scales(world: Any) -> None:
    m, n, k, me = 150, 256, 256, world.pe
    given = operands(world, m, n, k, FP8, True)
    forms = {
        "tensor": ((1,), (1,)),
        "rows": ((m, 1), (1, n)),
        "blocks": ((m, k // 128), (k // 128, n // 128)),
    }
    for form, (of_a, of_b) in forms.items():
        scales = [(powers(*of_a, seed=3 * pe), powers(*of_b, seed=3 * pe + 1)) for pe in range(world.n_pes)]
        products = []
        for (a, b), (left, right) in zip(given, scales, strict=True):
            if form == "blocks":
                products.append(scaled(a, left, 1, 128) @ scaled(b, right, 128, 128))
            else:
                products.append((a.double() @ b.double()) * left * right)
        whole = torch.stack([one.half().double() for one in products]).sum(0)
        a, b = given[me]
        for algorithm, function in SUMS:
            found = function(
                a, b, algorithm=algorithm, out_dtype=torch.float16, scale_a=scales[me][0], scale_b=scales[me][1]
            )
            torch.testing.assert_close(found.double(), part(world, function, whole), rtol=1e-3, atol=0.25)


def check_hopper_sums_of_owners(world: Any) -> None:
    """Tiles of both sizes, an own tile one round and two rounds behind; rows in turn through one communicator."""
    for function, dealt, few, shards in (
        (kernels.gemm_all_reduce, by_turns, 300, 1),
        (kernels.gemm_reduce_scatter, by_rows, 100, world.n_pes),
    ):
        config = set()
        for m, n in ((1300, 512), (few, 640), (1300, 512)):
            given = operands(world, m, n, 64, torch.float16, False)
            whole = summed([a.float() @ b.float() for a, b in given])
            same(function(*given[world.pe], algorithm="direct"), part(world, function, whole))
            a, c = given[0][0], torch.empty(ring_rows(m, shards), n, device="meta")
            shares = direct_schedule(a, c, dealt, portable.programs(0), world.n_pes, world.pe)[1]
            config.add(shares.config.block_n)
        assert config == {128, 256}, config


def check_hopper_groups(world: Any) -> None:
    """The first two PEs with fewer SMs while others have calls of their own, and all of them after that."""
    pair = world.team_world.split_strided(0, 1, 2)
    given = operands(world, 150, 256, 64, torch.float16, False)
    for _ in range(2):
        for team in filter(None, (pair, world.team_world)):
            whole = summed([a.float() @ b.float() for a, b in given[: team.n_pes]])
            for algorithm in ("ring", "direct"):
                same(kernels.gemm_all_reduce(*given[world.pe], algorithm=algorithm, group=team, sm_margin=1), whole)
                found = kernels.gemm_reduce_scatter(*given[world.pe], algorithm=algorithm, group=team, sm_margin=1)
                each = -(-whole.shape[0] // team.n_pes)
                same(found, whole[team.my_pe * each : (team.my_pe + 1) * each])


def check_hopper_rows_of_all(world: Any) -> None:
    """Shards that fill no tile, the last with fewer rows, or none; A by the copy engine, and by the GEMM's programs."""
    me, n_pes = world.pe, world.n_pes
    for m, n, k, dtype, transposed in some(((1, 64, 64, torch.float16, False), *SIZES)):
        a, b = matrix(m, k, 1, dtype), matrix(k, n, 2 + me, dtype)
        each = -(-m // n_pes)
        mine = a[me * each : (me + 1) * each].contiguous()
        for algorithm in available(world, *(("copy_engine", "push") * 2 if m > 64 else ("copy_engine",))):
            found = kernels.all_gather_gemm(
                mine, by_columns(b) if transposed or dtype == FP8 else b, algorithm=algorithm, rows=m,
                out_dtype=result(dtype),
            )  # fmt: skip
            same(found, (a.float() @ b.float()).to(result(dtype)).float())


def check_hopper_scales_of_rows_of_all(world: Any) -> None:
    """Scales are gathered in front of their rows."""
    if not available(world, "copy_engine"):
        return
    m, n, k, me = 75, 256, 256, world.pe
    given = operands(world, m, n, k, FP8, True)
    b = given[me][1]
    for of_a, of_b, block in (((m, 1), (1, n), 0), ((m, k // 128), (k // 128, n // 128), 128)):
        scales = [powers(*of_a, seed=3 * pe) for pe in range(world.n_pes)]
        right = powers(*of_b, seed=me)
        found = kernels.all_gather_gemm(
            given[me][0], b, algorithm="copy_engine", out_dtype=torch.float16, scale_a=scales[me], scale_b=right
        )
        if block:
            exact = [
                scaled(a, left, 1, 128) @ scaled(b, right, 128, 128) for (a, _), left in zip(given, scales, strict=True)
            ]
        else:
            exact = [(a.double() @ b.double()) * left * right for (a, _), left in zip(given, scales, strict=True)]
        torch.testing.assert_close(found.double(), torch.cat(exact), rtol=1e-3, atol=1e-3)


def check_hopper_copies_that_wait_in_vain(world: Any) -> None:
    """The copy engine names the flag."""
    flag = triton_dist.zeros(4, dtype=torch.int32)
    with (
        mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="0.3"),
        raises(RuntimeError, r"has waited for 0.3 s .* for the flag at .*element 1 of the symmetric tensor .* to be 1"),
    ):
        StreamWork([take(flag.data_ptr() + 4)])(0)
    StreamWork([give(flag.data_ptr() + 8), take(flag.data_ptr() + 8)])(0)
    assert not flag.any()


if __name__ == "__main__":
    run(globals())
