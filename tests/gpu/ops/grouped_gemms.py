"""Grouped GEMMs of fp8 with scales of blocks: by Hopper's kernel what it takes, and by the portable kernel the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import triton_dist
from triton_dist.kernels import moe
from triton_dist.kernels.gemm.hopper.grouped_gemm import fits_grouped

__all__ = ["grouped_gemms_with_scales_of_blocks"]

ON_GPU = triton_dist.kind() == "gpu"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SIZES = ((512, 768), (400, 400), (2048, 1536), (16, 8), (144, 384)) if ON_GPU else ((40, 24),)
"""K and N: blocks that are whole, and not; with SwiGLU gates that end inside of a block, and between two."""
COUNTS = [0, 1, 130, 64, 3, 200, 0, 17, 300] if ON_GPU else [0, 3, 17]
OTHERS = [5, 0, 64, 129, 1, 0, 128, 300, 88] if ON_GPU else [4, 0, 16]
"""Rows of each expert, and in a later call with the same tensors."""
GAP = 3
"""Rows of no expert in front of those of each, so that they begin anywhere."""


class Case(NamedTuple):
    """One call; printed where it fails."""

    inner: int
    columns: int
    dtypes: tuple[torch.dtype, torch.dtype]
    by_columns: bool
    result: torch.dtype
    swiglu: bool
    expected_rows: int


def drawn(size: tuple[int, ...], least: int, behind: int, seed: int, device: torch.device) -> torch.Tensor:
    return torch.randint(least, behind, size, generator=torch.Generator().manual_seed(seed)).float().to(device)


def wide(scales: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """A scale for each element of blocks along a dimension."""
    return scales.repeat_interleave(128, dim).narrow(dim, 0, size)


def cases(sizes: tuple[int, int]) -> Iterator[Case]:
    """Of these sizes. Only of the first ones also other dtypes, results and layouts, as each is compiled."""
    for swiglu in (False, True):
        for expected_rows in (1, 1000):  # tiles of both heights, whatever comes
            yield Case(*sizes, (E4M3, E4M3), True, torch.bfloat16, swiglu, expected_rows)
            if sizes == SIZES[0]:
                yield Case(*sizes, (E5M2, E4M3), True, torch.float16, swiglu, expected_rows)
        if sizes == SIZES[0]:
            yield Case(*sizes, (E4M3, E4M3), True, torch.float32, swiglu, 1)
            yield Case(*sizes, (E4M3, E4M3), False, torch.bfloat16, swiglu, 1000)


def grouped_gemms_with_scales_of_blocks(world: Any) -> None:
    """Values and scales are such that sums are exact, so that results are equal but for SwiGLU's.

    Each call is made three times, by its plan from the second on, and then for other counts in the same tensor.
    """
    taken = 0
    for inner, columns in SIZES:
        rows, experts, k_blocks = sum(COUNTS) + GAP * len(COUNTS), len(COUNTS), -(-inner // 128)
        a = drawn((rows, inner), -1, 2, 1, world.device)
        b = drawn((experts, columns, inner), -1, 2, 2, world.device)
        a_scales = drawn((rows, k_blocks), -2, 2, 3, world.device).exp2()
        b_scales = drawn((experts, -(-columns // 128), k_blocks), -3, 1, 4, world.device).exp2()
        exact = (a * wide(a_scales, 1, inner)).double(), (b * wide(wide(b_scales, 2, inner), 1, columns)).double()
        for case in cases((inner, columns)):
            matrices = b.mT if case.by_columns else b.mT.contiguous()
            operands = a.to(case.dtypes[0]), matrices.to(case.dtypes[1])
            assert (operands[1].stride(1) == 1) == case.by_columns
            taken += calls_of(case, operands, (a_scales, b_scales), exact)
    is_hopper = ON_GPU and torch.cuda.get_device_capability(world.device) == (9, 0)
    assert taken > 0 or not is_hopper, "a Hopper GPU took no case by its kernel"


Pair = tuple[torch.Tensor, torch.Tensor]


def calls_of(case: Case, operands: Pair, scales: Pair, exact: Pair) -> bool:
    """Make and verify the calls of a case. Whether Hopper's kernel takes it."""
    a, b = operands
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=a.device)
    offsets = torch.empty_like(counts)
    out = torch.empty(len(a), case.columns // (1 + case.swiglu), dtype=case.result, device=a.device)
    takes = fits_grouped(a, b, out, "blocks", case.swiglu)
    for call in range(4):
        if call == 3:
            counts.copy_(torch.tensor(OTHERS))
        offsets.copy_((counts + GAP).cumsum(0) - counts)
        out.fill_(7)
        moe.grouped_gemm(
            a, b, offsets, counts, out=out, a_scales=scales[0], b_scales=scales[1], swiglu=case.swiglu,
            expected_rows=case.expected_rows,
        )  # fmt: skip
        wanted = expected(exact, offsets.tolist(), counts.tolist(), out, case.swiglu)
        problem = difference(out, wanted, case.swiglu, offsets.tolist(), counts.tolist())
        assert not problem, f"{'Hopper kernel' if takes else 'portable kernel'}, {case}, call {call}: {problem}"
    return takes


def expected(exact: Pair, offsets: list[int], counts: list[int], like: torch.Tensor, swiglu: bool) -> torch.Tensor:
    """The results, and 7 in rows of no expert."""
    out = torch.full_like(like, 7)
    for expert, (begin, count) in enumerate(zip(offsets, counts, strict=True)):
        sums = exact[0][begin : begin + count] @ exact[1][expert].t()
        if swiglu:
            gate, up = sums.to(like.dtype).float().chunk(2, 1)
            sums = torch.nn.functional.silu(gate) * up
        out[begin : begin + count] = sums.to(like.dtype)
    return out


def difference(
    found: torch.Tensor, wanted: torch.Tensor, swiglu: bool, offsets: list[int], counts: list[int]
) -> str | None:
    """What is wrong. Results are equal; with SwiGLU, whose exponentials differ in their last bits, nearly."""
    off = (found.float() - wanted.float()).abs()
    allowed = 2e-2 * wanted.float().abs() + 1e-3 if swiglu else torch.zeros_like(off)
    wrong = ~(off <= allowed)  # also where it is no number
    if not wrong.any():
        return None
    row, column = (int(i) for i in wrong.nonzero()[0])
    experts = [e for e, begin in enumerate(offsets) if begin <= row < begin + counts[e]]
    where = f"row {row - offsets[experts[0]]} of expert {experts[0]}" if experts else "a row of no expert"
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, in {int(wrong.any(1).sum())} rows and"
        f" {int(wrong.any(0).sum())} columns. The first: row {row}, {where}, column {column}, is"
        f" {found[row, column].item()} and not {wanted[row, column].item()}; counts {counts}"
    )
