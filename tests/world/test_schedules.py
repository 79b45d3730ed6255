"""``TRITON_DIST_SCHEDULE``: every schedule runs right programs rightly, and a seed gives the same run again."""

from __future__ import annotations

import re

import pytest
from checking import ENVIRONMENT, HERE
from forking import Forker, Outcome

from triton_dist import environment


def run(forker: Forker, program: str, schedule: str, n_pes: int = 3, *arguments: str) -> Outcome:
    return forker.run(HERE / program, *arguments, n_pes=n_pes, **ENVIRONMENT, TRITON_DIST_SCHEDULE=schedule)


def printed(outcome: Outcome) -> list[str]:
    assert set(outcome.statuses) == {0}, outcome.output
    return sorted(outcome.output.splitlines())


def test_a_seed_gives_the_same_run_again_and_another_seed_another_one(forker: Forker) -> None:
    first, again, other = (printed(run(forker, "failing/order.py", f"random:{seed}")) for seed in (3, 3, 4))
    assert first == again != other
    tickets = [int(n) for line in first for n in re.findall(r"\d+", line.partition("tickets")[2])]
    assert sorted(tickets) == list(range(36))


def test_an_adversary_delays_puts_and_hastens_signals(forker: Forker) -> None:
    """PE 1 sees neither the put, since no fence precedes the signal, nor what the source held, since no quiet did."""
    assert "1 seen 0 in the end 2" in printed(run(forker, "failing/order.py", "adversarial"))
    assert "1 seen 1 in the end 1" in printed(run(forker, "failing/order.py", "round-robin"))


@pytest.mark.parametrize(
    ("file", "checks", "schedule"),
    [
        ("collectives.py", ("reduce", "many_in_a_row"), "random:1"),
        ("signals.py", ("data_comes_before_its_signal", "bounded_queue"), "adversarial"),
        *(
            pytest.param(file, (), schedule, marks=pytest.mark.slow)
            for file, schedule in (("collectives.py", "random:1"), ("signals.py", "adversarial"))
        ),
    ],
)
def test_right_programs_run_under_every_schedule(
    forker: Forker, file: str, checks: tuple[str, ...], schedule: str
) -> None:
    """All checks of a file, or those that are named."""
    found = printed(run(forker, f"checks/{file}", schedule, 2, *checks))
    assert all(found.count(f"passed: {check}") == 2 for check in checks), found
    assert "passed" in "\n".join(found)


def test_a_deadlock_is_known_at_once(forker: Forker) -> None:
    """And not after ``TRITON_DIST_WAIT_TIMEOUT``, which has another message."""
    outcome = run(forker, "failing/deadlock.py", "random:1", 2)
    assert outcome.statuses == [1, 1], outcome.output
    assert "no PE can go on" in outcome.output and "seen 3" in outcome.output
    assert "TRITON_DIST_WAIT_TIMEOUT" not in outcome.output, outcome.output


@pytest.mark.parametrize("text", ["random", "random:x", "random:-1", "round", "adversarial:3", ""])
def test_names_of_schedules(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DIST_SCHEDULE", text)
    with pytest.raises(
        ValueError, match=r"TRITON_DIST_SCHEDULE=.*expected round-robin, eager, adversarial or random:<seed>"
    ):
        environment.get("TRITON_DIST_SCHEDULE")
