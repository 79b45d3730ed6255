"""New numbers of rows: the checks of ``bucket_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_SECONDS

CHECKS = (
    "a_new_m_in_a_prepared_bucket_compiles_nothing",
    "a_new_m_in_a_prepared_bucket_is_captured",
    "a_thousand_ms_grow_by_nothing",
    "more_than_was_reserved_is_refused_in_a_capture_only",
    "auto_times_nothing",
    "what_was_tuned_is_taken_at_once_and_by_later_communicators",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "NVSHMEM_"))}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    environment["TRITON_DIST_TUNING_DIR"] = str(tmp_path_factory.mktemp("tuning"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("bucket_calls.py"), tmp_path_factory.mktemp("driver")],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_buckets(results: dict[str, str], check: str) -> None:
    assert results.keys() == set(CHECKS)
    assert results[check] == "ok", results[check]
