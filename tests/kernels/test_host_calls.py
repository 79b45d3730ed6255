"""What the host does in a call: the checks of ``host_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_SECONDS

CHECKS = (
    "second_calls_are_prepared",
    "calls_of_python_are_counted",
    "the_driver_gets_the_same_arguments",
    "new_results_are_those_that_are_returned",
    "experts_errors_are_those_of_ordinary_calls",
    "matrices_may_lie_elsewhere",
    "new_results_are_new",
    "scales_take_the_ordinary_path",
    "epilogues_with_tensors_take_the_ordinary_path",
    "other_signatures_are_not_mixed_up",
    "errors_are_those_of_ordinary_calls",
    "unusual_calls_take_the_ordinary_path",
    "communicators_have_plans_of_their_own",
    "a_second_thread_finds_them",
    "the_current_stream_is_used",
    "every_call_is_compared",
    "the_users_line_is_known",
    "plans_keep_no_tensors_of_the_caller",
    "plans_are_bounded",
    "plans_end_with_the_world",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("driver")
    program = Path(__file__).with_name("host_calls.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "NVSHMEM_"))}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_prepared_calls(results: dict[str, str], check: str) -> None:
    assert results.keys() == set(CHECKS)
    assert results[check] == "ok", results[check]
