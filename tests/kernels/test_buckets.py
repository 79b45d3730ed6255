"""New numbers of rows: the checks of ``bucket_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

from typing import Any

import pytest
from host_checks import results_of

SLOW = (
    "a_new_m_in_a_prepared_bucket_compiles_nothing",
    "a_new_m_in_a_prepared_bucket_is_captured",
    "a_thousand_ms_grow_by_nothing",
)
"""They compile every overlapped operation for every bucket."""
OTHERS = (
    "more_than_was_reserved_is_refused_in_a_capture_only",
    "auto_times_nothing",
    "what_was_tuned_is_taken_at_once_and_by_later_communicators",
)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results_of("bucket_calls.py", tmp_path_factory, request.param)


@pytest.mark.parametrize(
    ("results", "check"),
    [
        *(pytest.param(OTHERS, check, id=check) for check in OTHERS),
        *(pytest.param(SLOW, check, id=check, marks=pytest.mark.slow) for check in SLOW),
    ],
    indirect=["results"],
)
def test_buckets(results: dict[str, Any], check: str) -> None:
    assert results.keys() == {*SLOW, *OTHERS}
    assert results[check] == "ok", results[check]
