"""How the checks of ``checks/`` are run: real processes, one launch for all checks of a file and a number of PEs.

A check is a function ``check_…(world)`` that every PE calls. Making a world takes a while, so a launch runs all checks
of its file one after the other, and each of them is a test that looks for its own outcome.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import check_files
import pytest
from forking import launch
from limits import HANG_SECONDS

from triton_dist import testing
from triton_dist.testing import Result

HERE = Path(__file__).parent
ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "600", "TRITON_DIST_SYMMETRIC_SIZE": "64M"}
BETWEEN_HOSTS = {
    "copies.py": 3,
    "signals.py": 4,
    "one_sided.py": 4,
    "waits.py": 2,
    "collectives.py": 3,
    "memory.py": 2,
    "heap.py": 3,
    "teams.py": 4,
}
"""Files of checks that also run where PEs do not reach each other by load and store, with their numbers of PEs."""

IMPORT_TRITON_FIRST = {"early_kernels.py"}
"""Checks that a fork of a process with everything imported cannot run."""


def checks_of(file: str) -> list[str]:
    return check_files.checks_of(HERE / "checks" / file)


def assert_passed(file: str, n_pes: int, check: str, **environment: str) -> None:
    """``environment``: variables of the launch besides. Checks that load from and store to peers count as passed where
    that is out of reach."""
    result = _launched(file, n_pes, tuple(sorted(environment.items())))
    missing = [pe.pe for pe in result if not re.search(f"^(passed|out of reach): {check}$", pe.stdout, re.MULTILINE)]
    if missing:
        pytest.fail(f"{check} did not pass on PE {missing}\n{result.report}", pytrace=False)


@functools.cache
def _launched(file: str, n_pes: int, environment: tuple[tuple[str, str], ...] = ()) -> Result:
    start = testing.launch if file in IMPORT_TRITON_FIRST else launch
    return start([HERE / "checks" / file], n_pes, env=ENVIRONMENT | dict(environment), timeout=HANG_SECONDS)
