"""The example of docs/checking.md and its report."""

from __future__ import annotations

import re
from pathlib import Path

from forking import ROOT, Forker


def test_the_report_is_what_the_example_gives(forker: Forker, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "checking.md").read_text()
    program, report = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text"))
    assert program and report
    script = tmp_path / "exchange.py"
    script.write_text(program[1])
    outcome = forker.run(script, TRITON_DIST_CHECK="1")
    assert outcome.statuses == [1, 1]
    shown = report[1].rpartition("triton-dist-check: to repeat")[0]  # which the command adds
    assert outcome.output.replace(f"{tmp_path}/", "") == shown
    script.write_text(program[1].replace("    dl.signal_op(", "    dl.fence()\n    dl.signal_op("))
    outcome = forker.run(script, TRITON_DIST_CHECK="1")
    assert outcome.statuses == [0, 0], outcome.output
