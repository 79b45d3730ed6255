"""Layers of experts by the kernels for Hopper, in Gluon, as the CPU world interprets them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from harness import launches, some
from harness import main as run
from moe_whole import Layer, close

from triton_dist.kernels.gemm.config import Config
from triton_dist.kernels.gemm.hopper.grouped_gemm import run_grouped
from triton_dist.kernels.moe import layer_steps

Case = tuple[list[int], str, int, tuple[int, ...]]
"""Tokens of each PE, how they are routed, experts of a PE, and how many programs move rows, launch after launch."""


def verify(world: Any, *cases: Case, **options: Any) -> None:
    """``fused_hopper`` against the kernels for any GPU."""
    given: dict[str, Any] = {"dtype": torch.float16, "hidden": 48, "inner": 40, "max_tokens": 40, "top_k": 3} | options
    for seed, (tokens, routing, local, senders) in enumerate(cases):
        layer = Layer(world, tokens, routing=routing, local=local, seed=seed, **given)
        expected = layer("fused", num_sms=1)
        for num_sms in senders:
            with launches() as launched:
                found = layer("fused_hopper", num_sms=num_sms)
            seen = {launch.kernel for launch in launched}
            assert seen >= {"moe_dispatch_grouped_gemm_kernel", "moe_grouped_gemm_combine_kernel"}, seen
            close(found, expected)


def check_hopper_layers(world: Any) -> None:
    """Rows of one PE and of several in a tile, around an expert's end; experts and PEs without any; and again."""
    verify(world, ([37, 0, 5], "any", 3, (1, 2)), ([5, 17, 1], "some", 5, (2, 3)))


def check_hopper_layers_of_many_tokens(world: Any) -> None:
    """Also for one expert, for many, and for none."""
    verify(
        world,
        ([37, 0, 40], "any", 3, (1, 2)),
        ([40, 40, 33], "one", 1, (1,)),
        ([0, 0, 0], "any", 2, (3,)),
        ([5, 40, 1], "some", 9, (2,)),
    )
    verify(world, ([150, 0, 137], "any", 2, (1, 3)), ([150, 150, 1], "even", 2, (2,)), max_tokens=150)


def check_hopper_layers_what_auto_takes(world: Any) -> None:
    """With a number of SMs tokens cross once by TMA, if rows are long enough for it."""
    given: dict[str, Any] = {"dtype": torch.float16, "inner": 8, "top_k": 2}
    with patch.object(layer_steps, "_FUSED_FROM", 40):
        for hidden, most, taken in (
            (512, 39, "tokens"), (512, 40, "tokens"), (48, 39, "separate"), (48, 40, "fused_hopper"),
        ):  # fmt: skip
            layer = Layer(world, [5, 0, 3], routing="some", hidden=hidden, max_tokens=most, **given)
            with launches() as launched:
                found = layer("auto", num_sms=1)
            with launches() as expected:
                same = layer(taken, num_sms=1)
            assert [launch.kernel for launch in launched] == [launch.kernel for launch in expected], (hidden, most)
            assert torch.equal(found, same)


def check_hopper_grouped_gemm_with_scales_of_blocks(world: Any) -> None:
    """Experts without rows, with one, with several tiles; rows that begin anywhere, and rows of none in between; blocks
    that are not whole. Gates end within a block of scales of columns."""
    counts, offsets, inner, fp8 = [0, 1, 37, 16, 0, 70], [5, 3, 4, 43, 60, 66], 208, torch.float8_e4m3fn
    rows, experts = 136, len(counts)
    generator = torch.Generator().manual_seed(3)

    def drawn(least: int, behind: int, *size: int) -> torch.Tensor:
        return torch.randint(least, behind, size, generator=generator).float()

    for config in (
        Config(64, 128, 3, 2), Config(32, 128, 4, 1), Config(64, 128, 3, 2, fold=2), Config(32, 64, 4, 1, fold=2),
    ):  # fmt: skip
        columns = (192 if config.fold == 2 else 208) * config.fold
        a, b = drawn(-1, 2, rows, inner), drawn(-1, 2, experts, columns, inner)
        a_scales, b_scales = drawn(-5, -1, rows, 2).exp2(), drawn(-3, 2, experts, -(-columns // 128), 2).exp2()
        found = torch.full((rows, columns // config.fold), torch.nan, dtype=torch.float16)
        run_grouped(
            a.to(fp8), b.to(fp8).transpose(1, 2), found, a_scales, b_scales, torch.tensor([*offsets, rows]).int(),
            torch.tensor(counts).int(), replace(config, of_blocks=True), 3,
        )  # fmt: skip
        wide = b_scales.repeat_interleave(128, 1)[:, :columns].repeat_interleave(128, 2)[:, :, :inner]
        exact = a * a_scales.repeat_interleave(128, 1)[:, :inner], b * wide
        expected = torch.full_like(found, torch.nan)
        for expert, (begin, count) in enumerate(zip(offsets, counts, strict=True)):
            sums = exact[0][begin : begin + count] @ exact[1][expert].t()
            if config.fold == 2:
                gate, up = sums.half().float().chunk(2, 1)
                sums = torch.nn.functional.silu(gate) * up
            expected[begin : begin + count] = sums.half()
        tolerance = 2e-3 if config.fold == 2 else 0
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_hopper_grouped_gemm_of_uneven_experts(world: Any) -> None:
    """Rows that are left for one group, for both, for none; one, two and an odd number of columns of tiles; experts of
    which C has not all rows."""
    counts, offsets = [0, 1, 16, 32, 33, 64, 65, 96, 0, 150, 40], [0, 0, 1, 17, 50, 90, 154, 220, 316, 316, 466]
    rows, inner, experts = 490, 192, 11
    generator = torch.Generator().manual_seed(3)
    for columns, fold, by_columns in (
        (40, 1, True), (64, 1, False), (200, 1, True), (328, 1, False), (64, 2, True), (400, 2, True),
    ):  # fmt: skip
        a = torch.randint(-2, 3, (rows, inner), generator=generator).to(torch.bfloat16)
        b = torch.randint(-2, 3, (experts, inner, columns), generator=generator).to(torch.bfloat16)
        found = torch.full((rows, columns // fold), torch.nan, dtype=torch.bfloat16)
        of_columns = b.transpose(1, 2).contiguous().transpose(1, 2)
        run_grouped(
            a, of_columns if by_columns else b, found, None, None, torch.tensor([*offsets, rows]).int(),
            torch.tensor(counts).int(), Config(64, 64, 2, 2, fold=fold), 5,
        )  # fmt: skip
        expected = torch.full_like(found, torch.nan)
        for expert, (begin, count) in enumerate(zip(offsets, counts, strict=True)):
            sums = (a[begin : begin + count].float() @ b[expert].float()).to(torch.bfloat16)
            if fold == 2:
                gate, up = sums.float().chunk(2, 1)
                sums = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16)
            expected[begin : begin + count] = sums
        tolerance = 1e-2 if fold == 2 else 0
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_hopper_layers_of_every_algorithm(world: Any) -> None:
    """Which kernels they take."""
    for counts in some(([30, 0, 17], [70, 0, 37])):
        layer = Layer(world, counts, hidden=512, inner=64, max_tokens=counts[0], dtype=torch.float16)
        with torch.no_grad():
            layer.w13 /= 8
        expected = layer("fused", num_sms=1)
        for algorithm, num_sms, kernels in (
            ("separate", 0, {"moe_grouped_gemm_kernel"}),
            ("separate", 2, {"moe_grouped_gemm_kernel", "moe_dispatch_rounds_by_tma", "moe_combine_rounds_by_tma"}),
            ("tokens", 2, {"moe_grouped_gemm_kernel", "moe_dispatch_tokens_by_tma", "moe_combine_tokens_by_tma"}),
        ):
            for _ in range(2):
                with launches() as launched:
                    found = layer(algorithm, num_sms=num_sms)
                seen = {launch.kernel for launch in launched}
                assert kernels <= seen, (algorithm, seen)
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    run(globals())
