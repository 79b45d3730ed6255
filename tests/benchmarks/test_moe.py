"""The benchmark of dispatch and combine compares what it would time, in the CPU world, too."""

from __future__ import annotations

from pathlib import Path

from forking import launch

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "moe.py"


def test_tiny_sizes_are_compared() -> None:
    env = {"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(BENCHMARK.parent)}
    result = launch([BENCHMARK], 2, env=env, timeout=120).check()
    assert result[0].stdout.startswith("moe: compared."), result.report
