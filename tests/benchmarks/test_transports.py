"""What is left of a benchmark of transports when a part of it fails, or hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_SECONDS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

HANGS = """
import sys, time
from pathlib import Path
import measure
measure.PATIENCE_SECONDS = 2
report = measure.Report(Path(sys.argv[1]), 0)
report.found["signal"] = {"p2p signals": 1e-6}
report.add("the first step")
report.found["2"] = "half of a step"
time.sleep(1000)
"""


def test_a_part_that_hangs_ends_says_where_and_leaves_what_it_had(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    run = subprocess.run(
        [sys.executable, "-c", HANGS, str(file)],
        env={"PYTHONPATH": str(BENCHMARKS)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert run.returncode == 1
    assert "the first step" in run.stdout
    assert "Timeout" in run.stderr and "line 10 in <module>" in run.stderr, run.stderr
    assert json.loads(file.read_text()) == {"signal": {"p2p signals": 1e-6}}


def test_the_table_leaves_open_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import transports

    put = {"p2p ×32": {"8": 1e9, "64": 2e9}, "torch ×32": {"8": 3e9}}
    text = transports.table({"machine": None, "signal": {"p2p signals": 2e-6}, "4": {"put": put, "get": {}}})
    rows = [line.split() for line in text.splitlines()]
    assert ["8", "1.00", "3.00"] in rows and ["64", "2.00"] in rows
    assert "p2p signals   2.00" in text
