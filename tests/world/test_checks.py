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
    "numerics.py": (1,),
    "early_kernels.py": (1,),
    "autotuning.py": (2,),
}


@pytest.mark.parametrize(
    ("file", "n_pes", "check"),
    [
        pytest.param(file, n, check, id=f"{file.removesuffix('.py')}-{n}-{check}")
        for file, counts in RUNS.items()
        for n in counts
        for check in checks_of(file)
    ],
)
def test_check(file: str, n_pes: int, check: str) -> None:
    assert_passed(file, n_pes, check)
