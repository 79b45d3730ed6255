"""Under the checker puts to another host arrive late and in another order, unless a fence forbids it."""

from __future__ import annotations

from pathlib import Path

import pytest
from forking import Forker

PROGRAM = Path(__file__).with_name("late_puts.py")


@pytest.mark.parametrize("op", ["putmem", "p", "iput", "ibput"])
@pytest.mark.parametrize(
    ("topology", "schedule", "how", "found"),
    [
        ("2x1", "round-robin", "no fence", "behind the signal [1, 1], at the end [1, 1]"),
        ("2x1", "eager", "no fence", "behind the signal [0, 0], at the end [1, 1]"),
        ("2x1", "eager", "fence", "behind the signal [2, 2], at the end [2, 2]"),
        ("1x2", "eager", "no fence", "behind the signal [2, 2], at the end [2, 2]"),
    ],
)
def test_puts_between_hosts(forker: Forker, topology: str, schedule: str, how: str, found: str, op: str) -> None:
    env = {"TRITON_DIST_CHECK": "1", "TRITON_DIST_SCHEDULE": schedule, "TRITON_DIST_TOPOLOGY": topology}
    outcome = forker.run(PROGRAM, op, how, **env)
    assert found in outcome.output, outcome.output
    assert ("nothing found" in outcome.output) == (how == "fence"), outcome.output
