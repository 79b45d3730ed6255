"""A PE that ends while others are in calls of the kernel library: they end, and say which PE is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from forking import launch

WORKER = Path(__file__).parents[1] / "gpu/worker_lost.py"
ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_CPU_CAPABILITY": "9.0", "TRITON_DIST_WAIT_TIMEOUT": "300"}


@pytest.mark.parametrize("call", ["tokens", "gemm_all_reduce"])
def test_a_pe_that_is_killed_is_named(call: str) -> None:
    result = launch([WORKER, "kill", "1", call], 3, env=ENVIRONMENT, timeout=90)
    assert not result.timed_out and result[1].returncode == -9, result.report
    for pe in (0, 2):
        assert "PE 1 is lost: its process" in result[pe].stderr, result.report
