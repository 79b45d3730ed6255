"""The benchmarks of fused kernels check their contenders in the CPU world, where nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from forking import launch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", ["norm", "decode", "scales"])
def test_the_contenders_compute_the_right_thing(name: str) -> None:
    result = launch([BENCHMARKS / f"{name}.py"], 2, env={"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(BENCHMARKS)})
    assert result[0].stdout == f"{name}: checked, not measured. The CPU world interprets kernels.\n", result.report
