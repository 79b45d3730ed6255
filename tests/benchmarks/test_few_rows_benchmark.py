"""The benchmark of GEMMs of few rows: what it launches on a GPU that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptx import made_by


@pytest.mark.slow
def test_every_side_is_launched(tmp_path: Path) -> None:
    printed = made_by(Path(__file__).with_name("few_rows_calls.py"), tmp_path)
    outcomes = json.loads(printed.splitlines()[-1])
    assert set(outcomes.values()) == {"ok"}, "\n".join(outcomes.values())
