"""New numbers of rows: the checks of ``bucket_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import pytest
from host_checks import results_of

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
    return results_of("bucket_calls.py", tmp_path_factory)


@pytest.mark.parametrize("check", CHECKS)
def test_buckets(results: dict[str, str], check: str) -> None:
    assert results.keys() == set(CHECKS)
    assert results[check] == "ok", results[check]
