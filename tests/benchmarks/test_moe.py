"""The benchmark of dispatch and combine compares what it would time, in the CPU world, too."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from forking import COMPILER, launch

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "moe.py"


def test_tiny_sizes_are_compared() -> None:
    env = {"TRITON_DIST_WORLD": "cpu", "PYTHONPATH": str(BENCHMARK.parent)}
    result = launch([BENCHMARK], 2, env=env, timeout=120, modules=COMPILER).check()
    assert result[0].stdout.startswith("moe: compared."), result.report


@pytest.mark.parametrize(
    ("routing", "busiest"), [("uniform", (1.0, 2.0)), ("zipf", (2.5, 7.0)), ("one PE", (3.5, 6.0))]
)
def test_routings_are_as_skewed_as_they_are_called(
    monkeypatch: pytest.MonkeyPatch, routing: str, busiest: tuple[float, float]
) -> None:
    """How many times the mean of all experts the busiest one is chosen: 4 times if one of 4 PEs has all choices."""
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    cases = importlib.import_module("moe_cases")
    # Few: this process forks others, and should start no threads of PyTorch's.
    shape = cases.Shape("", 60, 8, 16, 2, routing)
    ids = cases.choices(shape, 4, torch.Generator().manual_seed(1))
    assert ids.shape == (4, 60, 2) and all(len(set(row)) == 2 for row in ids.flatten(0, 1).tolist())
    counts = torch.bincount(ids.flatten(), minlength=16)
    share = counts.max() * 16 / counts.sum()
    assert busiest[0] <= share <= busiest[1], share
    assert (counts[4:].sum() == 0) == (routing == "one PE")
