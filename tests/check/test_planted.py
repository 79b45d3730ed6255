"""Every class of bug: the planted one is found, with the lines of both sides; its correct twin gives no alarm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forking import Forker

from triton_dist.check import CLASSES

PLANTED = Path(__file__).parent / "planted"

# The program, and the class that its bug is of.
BUGS = {
    "early_read": "early-read",
    "early_read_store": "early-read",
    "torch_barrier": "early-read",
    "reuse": "reuse",
    "race": "race",
    "boxes": "race",
    "host_reset": "race",
    "source_of_nbi": "missing-quiet",
    "destination_of_nbi": "missing-quiet",
    "nbi_and_signal": "missing-quiet",
    "put_and_signal": "missing-fence",
    "proxy_fence": "missing-proxy-fence",
    "proxy_fence_gluon": "missing-proxy-fence",
    "narrow_atomic": "early-read",
    "local_flag": "early-read",
    "plain_flag": "early-read",
    "deadlock": "deadlock",
    "wrong_word": "deadlock",
    "barrier": "barrier",
    "unawaited_signal": "unawaited-signal",
    "put_outside": "outside",
    "store_outside": "outside",
    "leak": "leak",
}


SCHEDULES = {"reuse": "adversarial"}
"""Where the bug shows only if programs come to it in an unlucky order."""


def test_the_table_is_complete() -> None:
    assert {file.stem for file in PLANTED.glob("*.py")} == set(BUGS)
    elsewhere = {"lost-signal", "overlap", "use-after-free", "compile"}  # test_cases, test_compile_check
    assert set(BUGS.values()) | elsewhere == set(CLASSES)


def line_of(file: Path, mark: str) -> int | None:
    lines = file.read_text().splitlines()
    return next((i for i, line in enumerate(lines, 1) if f"# {mark}" in line), None)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(forker: Forker, bug: str) -> None:
    file = PLANTED / f"{bug}.py"
    outcome = forker.run(file, "bug", TRITON_DIST_CHECK="1", TRITON_DIST_SCHEDULE=SCHEDULES.get(bug, "round-robin"))
    assert outcome.statuses == [1, 1], outcome.output
    assert "Traceback" not in outcome.output, outcome.output
    kinds = re.findall(r"^error: .* \[(.*)\]$", outcome.output, re.MULTILINE)
    assert kinds == [BUGS[bug]], outcome.output
    for mark in ("one", "other", "named"):
        line = line_of(file, mark)
        assert line is None or f"{file.name}:{line}" in outcome.output, f"{mark} side, line {line}\n{outcome.output}"
    assert line_of(file, "one") is not None


@pytest.mark.parametrize("bug", BUGS)
def test_its_correct_twin_gives_no_alarm(forker: Forker, bug: str) -> None:
    outcome = forker.run(PLANTED / f"{bug}.py", "right", TRITON_DIST_CHECK="1")
    assert outcome.statuses == [0, 0] and "nothing found" in outcome.output, outcome.output
