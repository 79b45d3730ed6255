"""The kernels in the CPU world: a test for each check of ``checks/`` and each number of PEs, one launch a file."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from forking import COMPILER, launch

from triton_dist.testing import Result

CHECKS = Path(__file__).parent / "checks"
HARNESS = Path(__file__).parents[1] / "world" / "checks"  # whose harness.py runs the checks of a file on one PE
ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "600", "TRITON_DIST_SYMMETRIC_SIZE": "64M"}
RUNS = {
    "barrier.py": (3,),
    "collectives.py": (1, 3),
    "groups.py": (4,),
    "process_groups.py": (4,),
    "gemms.py": (3,),
    "epilogues.py": (3,),
    "moe.py": (3,),
    "moe_assertions.py": (2,),
    "moe_layers.py": (2,),
    "moe_tensor.py": (3,),
    "moe_tensor_layers.py": (2,),
    "deep_ep.py": (2,),
    "norms.py": (3,),
    "decode.py": (3,),
    "sm_margin.py": (2,),
    "tracing.py": (3,),
    "tuning.py": (2, 3),
    "reserving.py": (2, 3),
    "operators.py": (2,),
    "tensor_parallel.py": (2,),
    "inductor.py": (3,),
}


@functools.cache
def launched(file: str, n_pes: int) -> Result:
    environment = ENVIRONMENT | {"PYTHONPATH": str(HARNESS)}
    return launch([CHECKS / file], n_pes, env=environment, modules=COMPILER)


@pytest.mark.parametrize(
    ("file", "n_pes", "check"),
    [
        pytest.param(file, n, check, id=f"{file.removesuffix('.py')}-{n}-{check}")
        for file, counts in RUNS.items()
        for n in counts
        for check in re.findall(r"^def check_(\w+)\(", (CHECKS / file).read_text(), re.MULTILINE)
    ],
)
def test_check(file: str, n_pes: int, check: str) -> None:
    result = launched(file, n_pes)
    missing = [pe.pe for pe in result if f"passed: {check}\n" not in pe.stdout]
    if missing:
        pytest.fail(f"{check} did not pass on PE {missing}\n{result.report}", pytrace=False)


def test_compiled_before_any_world() -> None:
    """The error says what is missing, also where nothing has looked for a world before."""
    program = """
import torch
from triton_dist.kernels import functional
torch.compile(functional.all_reduce, backend="aot_eager", fullgraph=True)(torch.ones(2))
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT)
    assert "there is no world: call triton_dist.init() first" in result[0].stderr, result.report
