"""What the host does in a call: the checks of ``host_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import pytest
from host_checks import results_of

CHECKS = (
    "second_calls_are_prepared",
    "calls_in_steps_are_prepared",
    "results_in_steps_are_computed",
    "calls_of_python_are_counted",
    "the_driver_gets_the_same_arguments",
    "new_results_are_those_that_are_returned",
    "experts_errors_are_those_of_ordinary_calls",
    "matrices_may_lie_elsewhere",
    "new_results_are_new",
    "calls_with_scales_are_prepared",
    "scales_of_both_operands_are_multiplied",
    "scales_of_steps_are_the_call_s",
    "a_tensor_may_be_both_scales",
    "wrong_scales_are_refused",
    "plans_keep_no_scales",
    "calls_with_bias_and_residual_are_prepared",
    "a_bias_of_cublas_is_the_call_s",
    "a_bias_is_no_scale_of_cublas",
    "the_result_may_be_the_residual",
    "gemms_between_hosts_are_prepared",
    "what_decides_on_kernels_is_compared",
    "other_signatures_are_not_mixed_up",
    "errors_are_those_of_ordinary_calls",
    "unusual_calls_take_the_ordinary_path",
    "communicators_have_plans_of_their_own",
    "a_second_thread_finds_them",
    "the_current_stream_is_used",
    "every_call_is_compared",
    "grouped_gemms_are_launched_again",
    "grouped_gemms_of_other_tensors_are_of_these",
    "tiles_are_those_for_expected_rows",
    "portable_grouped_gemms_take_the_ordinary_path",
    "the_users_line_is_known",
    "plans_keep_no_tensors_of_the_caller",
    "plans_are_bounded",
    "plans_end_with_the_world",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return results_of("host_calls.py", tmp_path_factory)


@pytest.mark.parametrize("check", CHECKS)
def test_prepared_calls(results: dict[str, str], check: str) -> None:
    assert results.keys() == set(CHECKS)
    assert results[check] == "ok", results[check]
