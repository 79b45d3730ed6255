"""One test for each check of ``checks/`` and each number of PEs it is made for."""

from __future__ import annotations

import pytest
from checking import assert_passed, checks_of

RUNS = {
    "copies.py": (1, 2, 4),
    "signals.py": (1, 2, 4),
    "one_sided.py": (1, 2, 4),
    "waits.py": (2, 4),
    "collectives.py": (1, 2, 4),
    "memory.py": (2,),
    "heap.py": (3,),
    "teams.py": (2, 4),
    "mistakes.py": (2,),
    "programs.py": (1,),
    "replaying.py": (1,),
    "polling.py": (1,),
    "gluon.py": (2,),
    "numerics.py": (1,),
    "early_kernels.py": (1,),
    "autotuning.py": (2,),
}
SLOW = (
    *("copies-1", "signals-1", "one_sided-1", "collectives-1"),
    *("copies-4", "signals-4", "one_sided-4", "collectives-4", "waits-4", "teams-2"),
)
"""Numbers of PEs at which only loops are longer or shorter."""


@pytest.mark.parametrize(
    ("file", "n_pes", "check"),
    [
        pytest.param(file, n, check, id=f"{run}-{check}", marks=pytest.mark.slow if run in SLOW else [])
        for file, counts in RUNS.items()
        for n in counts
        for run in [f"{file.removesuffix('.py')}-{n}"]
        for check in checks_of(file)
    ],
)
def test_check(file: str, n_pes: int, check: str) -> None:
    assert_passed(file, n_pes, check)
