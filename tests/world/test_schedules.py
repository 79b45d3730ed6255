"""``TRITON_DIST_SCHEDULE``: every schedule runs right programs rightly, and a seed gives the same run again."""

from __future__ import annotations

import re

import pytest
from checking import ENVIRONMENT, HERE

from triton_dist import environment
from triton_dist.testing import Result, launch


def run(program: str, schedule: str, n_pes: int = 3) -> Result:
    return launch([HERE / program], n_pes, env={**ENVIRONMENT, "TRITON_DIST_SCHEDULE": schedule}, timeout=60)


def printed(result: Result) -> list[str]:
    return [pe.stdout for pe in result.check()]


def test_a_seed_gives_the_same_run_again_and_another_seed_another_one() -> None:
    first, again, other = (printed(run("failing/order.py", f"random:{seed}")) for seed in (3, 3, 4))
    assert first == again != other
    tickets = [int(n) for text in first for n in re.findall(r"\d+", text.splitlines()[0])]
    assert sorted(tickets) == list(range(36))


def test_an_adversary_delays_puts_and_hastens_signals() -> None:
    """PE 1 sees neither the put, since no fence precedes the signal, nor what the source held, since no quiet did."""
    adversarial, round_robin = (printed(run("failing/order.py", how))[1] for how in ("adversarial", "round-robin"))
    assert "seen 0 in the end 2" in adversarial
    assert "seen 1 in the end 1" in round_robin


@pytest.mark.parametrize(("checks", "schedule"), [("collectives.py", "random:1"), ("signals.py", "adversarial")])
def test_right_programs_run_under_every_schedule(checks: str, schedule: str) -> None:
    assert "passed" in printed(run(f"checks/{checks}", schedule, 2))[0]


def test_a_deadlock_is_known_at_once() -> None:
    result = run("failing/deadlock.py", "random:1", 2)
    assert not result.ok and result.seconds < 15, result.report
    text = result[0].stderr + result[1].stderr
    assert "no PE can go on" in text and "seen 3" in text, result.report


@pytest.mark.parametrize("text", ["random", "random:x", "random:-1", "round", "adversarial:3", ""])
def test_names_of_schedules(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DIST_SCHEDULE", text)
    with pytest.raises(
        ValueError, match=r"TRITON_DIST_SCHEDULE=.*expected round-robin, random:<seed> .* or adversarial"
    ):
        environment.get("TRITON_DIST_SCHEDULE")
