"""Benchmarks of one GPU: what they launch on a GPU that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptx import made_by


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["decode_gemms", "grouped_gemm", "tile_order"])
def test_every_contender_is_launched(tmp_path: Path, benchmark: str) -> None:
    printed = made_by(Path(__file__).with_name(f"{benchmark}_calls.py"), tmp_path)
    outcomes = json.loads(printed.splitlines()[-1])
    assert set(outcomes.values()) == {"ok"}, "\n".join(outcomes.values())
