"""The portable products of 8-bit floats: multiplied as they are, on Ada and Hopper, with b by rows and by columns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from ptx import made_by, ptxas_report

from triton_dist.kernels.gemm.fp8 import check_capability


@pytest.mark.parametrize("contiguous", [pytest.param("b_row", marks=pytest.mark.slow), "b_column"])
@pytest.mark.parametrize("capability", ["90", pytest.param("89", marks=pytest.mark.slow)])
def test_8_bit_floats_are_multiplied_as_they_are_and_nothing_spills(
    tmp_path: Path, capability: str, contiguous: str
) -> None:
    script = Path(__file__).with_name("fp8_gemms_ptx.py")
    compiled: dict[str, str] = json.loads(made_by(script, capability, contiguous))
    assert len(compiled) == 6
    for name, ptx in compiled.items():
        architecture, _, a, b, *_ = name.split()
        operation = {"89": r"mma\.sync\.aligned\.m16n8k32\S*", "90": r"wgmma\.mma_async\S*k32"}[architecture]
        assert re.search(rf"{operation}\.f32\.{a}\.{b}", ptx), name
        (tmp_path / "kernel.ptx").write_text(ptx)
        target = {"89": "sm_89", "90": "sm_90a"}[architecture]
        report = ptxas_report(tmp_path / "kernel.ptx", target)
        spilt = max(int(number) for number in re.findall(r"(\d+) bytes spill stores", report))
        assert spilt == 0, f"{name}: {report}"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_gpus_without_them_are_named(dtype: torch.dtype) -> None:
    check_capability("gemm", dtype, "NVIDIA L4", (8, 9))
    with pytest.raises(
        ValueError, match=rf"gemm: .*{dtype}, which this GPU, NVIDIA A100 of compute capability 8\.0, does"
    ):
        check_capability("gemm", dtype, "NVIDIA A100", (8, 0))
