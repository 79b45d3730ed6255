"""Grouped GEMMs: the machine code of Hopper's kernel, for a GPU that is not there; the tiles taken."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ptx import made_by, ptxas_report
from sass import ptx_that_fits

import triton_dist
from triton_dist.kernels.gemm.hopper import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm import config_for, portable_tile

COMPILE = Path(__file__).with_name("grouped_gemm_ptx.py")
HOPPER, ADA = 227 << 10, 99 << 10
"""Shared memory of a program, in bytes."""


@pytest.mark.parametrize(
    "cases",
    [("8-bf16", "8-swiglu"), pytest.param(("8-rows", "8-fp8"), marks=pytest.mark.slow)],
)
def test_it_loads_by_tma_and_does_not_spill(tmp_path: Path, cases: tuple[str, ...]) -> None:
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        report, ptx = ptxas_report(tmp_path / f"{case}.ptx"), (tmp_path / f"{case}.ptx").read_text()
        assert " 0 bytes spill stores" in report, (case, report)
        assert int((tmp_path / f"{case}.shared").read_text()) <= HOPPER
        assert "wgmma.mma_async" in ptx and "cp.async.bulk.tensor.2d.shared" in ptx
        # Whole blocks of results are stored by TMA, others 16 bytes at a time.
        assert "cp.async.bulk.tensor.2d.global" in ptx and "st.global.v4" in ptx
        assert not re.search(r"st\.global(?!\.v4)", ptx)
        assert "shfl.sync.bfly" not in ptx  # gate and up of SwiGLU are one thread's


@pytest.mark.parametrize(
    "cases",
    [
        ("8-blocks", "1024-blocks"),
        pytest.param(("8-blocks swiglu", "1024-blocks swiglu", "8-blocks half"), marks=pytest.mark.slow),
    ],
)
def test_scales_of_blocks_fit_and_do_not_spill(tmp_path: Path, cases: tuple[str, ...]) -> None:
    """Each block of 128 along K is four instructions, of which the first overwrites the sums; the sums of a tile are
    added to in float32 registers. Which half a column of a tile with SwiGLU is of is known when it is compiled."""
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        groups = 1 if case.startswith("8-") else 2
        ptx = ptx_that_fits(tmp_path, case)
        assert "setmaxnreg" in ptx and "cp.async.bulk.tensor.2d.shared" in ptx
        assert len(re.findall(r"wgmma\.mma_async\S+\.m64n128k32\.f32\.e4m3\.e4m3", ptx)) == 4 * groups, case
        assert "selp.f32" not in ptx, case
        assert not re.search(r"st\.global(?!\.v4)", ptx)


def test_what_the_hopper_kernel_takes_of_scales_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is the portable kernel's."""
    monkeypatch.setattr(grouped_gemm, "is_hopper", lambda: True)

    def taken(
        columns: int = 256, inner: int = 144, result: torch.dtype = torch.bfloat16, by_lines: bool = False,
        swiglu: bool = False,
    ) -> bool:  # fmt: skip
        a, b = torch.zeros(8, inner).to(torch.float8_e4m3fn), torch.zeros(2, columns, inner).to(torch.float8_e5m2).mT
        c = torch.zeros(8, columns // (1 + swiglu), dtype=result)
        return grouped_gemm.fits_grouped(a, b.contiguous() if by_lines else b, c, "blocks", swiglu)

    assert taken() and taken(result=torch.float16) and taken(columns=200) and taken(columns=8) and taken(inner=16)
    assert taken(swiglu=True) and taken(384, swiglu=True)
    assert not taken(272, swiglu=True)  # the 64 columns of up in a tile have two scales
    assert not taken(result=torch.float32)
    assert not taken(by_lines=True)
    assert not taken(inner=136)  # rows that TMA does not address


@pytest.mark.parametrize("operand", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
@pytest.mark.parametrize("shared_memory", [HOPPER, ADA])
def test_all_programs_of_an_sm_fit(operand: torch.dtype, shared_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")  # on which tiles depend
    result = torch.bfloat16 if operand.itemsize == 1 else operand
    for scales in ("none", "blocks") if operand.itemsize == 1 else ("none",):
        for average in (1, 16, 17, 64, 128, 129, 4096):
            tile = portable_tile(operand, result, scales, average, shared_memory)
            assert tile.block_m >= min(average, 64), "most experts have one row of tiles"
            stage = (tile.block_m + tile.block_n) * tile.block_k * operand.itemsize
            assert tile.programs * tile.stages * stage <= shared_memory
            assert tile.programs == 2 or average > 32 or operand.itemsize > 2
            assert tile.stages >= 2


def test_tiles_grow_with_rows() -> None:
    few, many = config_for(128, exchanges=True), config_for(129, exchanges=True)
    assert (few.block_m, few.groups, many.block_m, many.groups) == (64, 1, 128, 2)
    assert config_for(1) == config_for(4096) == many
    assert config_for(128, swiglu=True).c_columns == many.block_n // 2
    assert config_for(40, of_blocks=True) == replace(few, of_blocks=True)
    assert config_for(41, of_blocks=True) == replace(many, of_blocks=True)
