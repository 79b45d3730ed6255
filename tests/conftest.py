"""What every test gets: the gpu marker's skips, caches, and the numbers of PEs to launch programs with."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# PyTorch is imported by functions: the process that starts others, which run the tests, does not need it.
if TYPE_CHECKING:
    from forking import Forker

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
providers._get_local_constants = providers.Constants  # tests/world/checks/harness.py says why

# Images of containers often ask for no bytecode, and then each of the processes that tests start compiles this package
# anew, and each run of pytest all of the tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Triton's key of a compiled kernel has the text of its source and not its path, so a cache of several source trees
# returns kernels whose lines are those of another tree. The processes that tests start inherit these variables.
for variable, name in {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}.items():
    os.environ.setdefault(variable, str(ROOT / "build" / "cache" / name))


LONGEST = (
    *("kernels/test_kernels.py", "kernels/test_two_level.py", "kernels/test_host_calls.py", "world/test_oshmem.py"),
    *("kernels/test_moe_ptx.py", "world/test_checks.py", "gpu/test_workers_without_gpus.py", "check/test_no_alarm.py"),
    *("build/test_packages.py", "models/test_models.py", "kernels/test_hopper_gemms.py", "world/test_kill.py"),
    *("world/test_failures.py", "device/test_collectives.py", "check/test_cases.py", "check/test_compile_check.py"),
    "build/test_ways_to_install.py",
)
"""Files that begin first, with or without their slow tests, so that no process is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first. Skip tests marked ``gpu`` where there are fewer GPUs than they ask for.

    ``@pytest.mark.gpu(count)`` says how many; the default is 1.
    """
    import torch

    order = {ROOT / "tests" / file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    have = torch.cuda.device_count()
    for item in items:
        marker = item.get_closest_marker("gpu")
        if marker is not None:
            need = marker.args[0] if marker.args else 1
            if have < need:
                item.add_marker(pytest.mark.skip(reason=f"needs {need} GPUs, and PyTorch sees {have}"))


def pytest_collection_finish() -> None:
    """Leave what has been imported out of garbage collections, and collect less often: that took a seventh."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(params=[1, 2, pytest.param(4, marks=pytest.mark.slow)], ids="{}pes".format)
def n_pes(request: pytest.FixtureRequest) -> int:
    """How many PEs to launch in the CPU world."""
    return int(request.param)


@pytest.fixture(params=[2, pytest.param(0, id="all")], ids="{}gpus".format)
def n_gpus(request: pytest.FixtureRequest) -> int:
    """How many GPUs to launch on: two, and all there are."""
    import torch

    if request.param == 0 and torch.cuda.device_count() == 2:
        pytest.skip("all GPUs are two, which is tested already")
    return request.param or torch.cuda.device_count()


@pytest.fixture(scope="session")
def forker() -> Forker:
    """Starts PEs of the CPU world quickly."""
    import forking

    return forking.forker()
