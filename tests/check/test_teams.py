"""What orders the PEs of a team orders them for the check, too."""

from __future__ import annotations

from pathlib import Path

from forking import Forker

ROWS = Path(__file__).parent / "teams" / "rows.py"


def test_a_missing_barrier_of_a_team_is_found(forker: Forker) -> None:
    outcome = forker.run(ROWS, "bug", n_pes=4, TRITON_DIST_CHECK="1")
    assert outcome.statuses == [1] * 4, outcome.output
    assert "[early-read]" in outcome.output and outcome.output.count("error: ") == 1, outcome.output


def test_barriers_of_teams_give_no_alarm(forker: Forker) -> None:
    outcome = forker.run(ROWS, "right", n_pes=4, TRITON_DIST_CHECK="1")
    assert outcome.statuses == [0] * 4 and "nothing found" in outcome.output, outcome.output
