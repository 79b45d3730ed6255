"""New numbers of rows: the checks of ``bucket_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from host_checks import results_of

SLOW = (
    "a_new_m_in_a_prepared_bucket_compiles_nothing",
    "a_new_m_in_a_prepared_bucket_is_captured",
    "a_thousand_ms_grow_by_nothing",
    "a_thousand_numbers_of_tokens_of_experts_grow_by_nothing",
    "a_thousand_numbers_of_requests_grow_by_nothing",
)
"""They compile every overlapped operation for every bucket."""
OTHERS = (
    "fused_layers_on_hopper_compile_once",
    "more_than_was_reserved_is_refused_in_a_capture_only",
    "auto_times_nothing",
    "what_was_tuned_is_taken_at_once_and_by_later_communicators",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], dict[str, Any]]:
    """Those of a process that runs some checks."""
    return functools.cache(lambda checks: results_of("bucket_calls.py", tmp_path_factory, checks))


@pytest.mark.parametrize("check", [*OTHERS, *(pytest.param(check, marks=pytest.mark.slow) for check in SLOW)])
def test_buckets(results: Callable[[tuple[str, ...]], dict[str, Any]], check: str) -> None:
    found = results(SLOW if check in SLOW else OTHERS)
    assert found.keys() == {*SLOW, *OTHERS}
    assert found[check] == "ok", found[check]
