"""What benchmarks say of their targets."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_targets_are_met_or_not_or_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from harness import Entry, Timing
    from targets import at_most, faster_than_peers, share_of_bound

    timings = {
        "ours": Timing(20.0, 19.0, 21.0),
        "ours, 24 SMs": Timing(25.0, 24.0, 26.0),
        "NCCL": Timing(30.0, 29.0, 31.0),
    }
    entry = Entry("a case", 14.0, timings)
    assert at_most(entry, 20.0).endswith("ours at most 20.0 µs: met (20.0)")
    assert at_most(entry, 19.9).endswith("not met (20.0)")
    assert at_most(entry, 1.0, "ours, rounds").endswith("ours, rounds at most 1.0 µs: not measured")
    assert share_of_bound(entry, 0.85, "ours").endswith("ours at 0.85 of the bound: not met (0.70)")
    assert share_of_bound(entry, 0.85, "ours", more=3.0).endswith(": met (0.85)")
    assert faster_than_peers(entry, 1.3).endswith("1.3 x the best peer: met (1.50, ours)")
    assert faster_than_peers(entry, 1.6).endswith("not met (1.50, ours)")
    del timings["NCCL"]
    assert faster_than_peers(entry, 1.3).endswith("not measured")
