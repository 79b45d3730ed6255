"""Grouped GEMMs: Hopper's machine code, made for a GPU that is not there, and the tiles that are taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from ptx import made_by, ptxas_report

import triton_dist
from triton_dist.kernels.moe.grouped_gemm import config_for, portable_tile

COMPILE = Path(__file__).with_name("grouped_gemm_ptx.py")
HOPPER, ADA = 227 << 10, 99 << 10
"""Shared memory of a program, in bytes."""


@pytest.mark.parametrize(
    "cases",
    [("8-bf16", "1024-swiglu"), pytest.param(("8-rows", "8-swiglu", "8-fp8", "1024-bf16"), marks=pytest.mark.slow)],
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
    few, many = config_for(128), config_for(129)
    assert (few.block_m, few.groups, many.block_m, many.groups) == (64, 1, 128, 2)
    assert config_for(128, swiglu=True).c_columns == few.block_n // 2
