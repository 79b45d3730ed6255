"""What the host does in a call: the checks of ``host_calls.py``, in a process with a GPU that is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from host_checks import results_of

PREPARED = (
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
    "calls_with_shards_that_differ_are_prepared",
    "calls_with_bias_and_residual_are_prepared",
    "a_bias_of_cublas_is_the_call_s",
    "a_bias_is_no_scale_of_cublas",
    "the_result_may_be_the_residual",
    "gemms_between_hosts_are_prepared",
    "slices_are_computed_beside_exchanges",
    "experts_between_hosts_are_prepared",
    "every_function_and_algorithm_is_prepared_or_says_why_not",
)
IN_STEPS = (
    "what_decides_on_kernels_is_compared",
    "other_signatures_are_not_mixed_up",
    "errors_are_those_of_ordinary_calls",
    "unusual_calls_take_the_ordinary_path",
    "calls_with_new_tensors_in_steps_are_prepared",
    "peers_get_their_parts_by_the_copy_engine",
    "copies_go_where_the_call_s_result_lies",
    "streams_get_what_they_got",
    "streams_get_it_in_one_call",
    "what_the_driver_refuses_is_an_error",
    "other_threads_run_while_a_queue_is_full",
    "captures_have_events_of_their_own",
    "lengths_and_pages_need_no_new_plan",
    "numbers_as_scales_are_those_of_the_call",
    "errors_of_decode_are_those_of_ordinary_calls",
    "halves_follow_each_other",
    "norm_gemms_are_launched_again",
    "dependent_launches_are_prepared",
    "a_is_gathered_in_a_side_stream_without_kernels",
    "a_second_backward_is_prepared",
    "copies_are_of_the_call_s_operand",
    "weight_gradients_are_computed_from_what_was_gathered",
    "gradients_of_the_sum_are_multiplied_where_they_were_gathered",
    "tokens_of_experts_are_gathered_in_a_side_stream",
    "what_ends_in_an_error_joins",
    "small_operands_and_several_hosts_are_gathered_behind",
    "shapes_are_compared",
    "gradients_of_matrices_are_computed_between_halves",
    "gradients_of_matrices_are_computed_beside_rounds",
    "exchanges_of_backward_are_prepared",
    "an_error_beside_a_combine_joins",
    "tensors_of_a_side_stream_are_of_the_current_one",
    "gradients_of_slices_are_gathered_by_the_gemm",
    "communicators_have_plans_of_their_own",
    "a_second_thread_finds_them",
    "the_current_stream_is_used",
    "kept_tensors_are_not_asked_about",
    "every_call_is_compared",
    "grouped_gemms_are_launched_again",
    "grouped_gemms_of_other_tensors_are_of_these",
    "tiles_are_those_for_expected_rows",
    "portable_grouped_gemms_take_the_ordinary_path",
    "tokens_are_grouped_and_added_up_again",
    "the_users_line_is_known",
)
NATIVE = (
    "third_calls_are_native",
    "results_are_returned",
    "other_tensors_are_those_of_the_call",
    "unlike_calls_are_not_mixed_up",
    "errors_are_those_of_python",
    "unusual_calls_go_through_python",
    "the_world_is_asked_in_every_call",
    "groups_have_calls_of_their_own",
    "native_calls_are_compared",
    "streams_are_those_of_the_call",
    "errors_of_the_driver_keep_their_words",
    "threads_run_while_a_native_call_waits",
    "threads_have_communicators_of_their_own",
    "nothing_leaks",
    "what_was_learnt_is_bounded_and_keeps_no_tensors",
    "without_the_library_python_repeats_calls",
    "launches_that_cannot_be_packed_go_through_triton",
    "native_calls_are_one_of_python",
    "new_tensors_of_native_calls_are_those_of_ordinary_ones",
    "options_of_native_calls_are_not_mixed_up",
    "numbers_as_scales_of_a_cache_stay_with_python",
    "errors_of_calls_with_new_results_are_those_of_python",
    "unusual_calls_with_new_results_go_through_python",
    "local_calls_work_on_the_current_stream",
    "nothing_leaks_of_new_results",
    "calls_of_several_parts_are_native",
    "functions_are_given_the_call_s_tensors",
    "operands_and_results_are_those_of_the_call",
    "copies_follow_results_and_allocations",
    "errors_in_the_middle_are_those_of_python",
    "captured_calls_have_streams_of_their_own",
    "workspace_may_be_replaced",
    "every_part_is_compared",
    "communicators_have_streams_and_memory_of_their_own",
    "threads_make_calls_of_several_parts",
    "what_cannot_be_mapped_stays_with_python",
    "wrong_actions_are_refused",
    "nothing_leaks_of_several_parts",
    "calls_between_hosts_are_those_of_python",
    "calls_of_experts_are_native",
    "results_are_those_of_ordinary_calls",
    "results_may_be_given",
    "tuples_are_those_of_the_call",
    "halves_are_sent_by_cpp",
    "what_is_in_flight_is_refused",
    "errors_of_experts_are_those_of_python",
    "groups_of_experts_are_their_communicators",
    "unusual_tuples_go_through_python",
    "layers_call_them",
    "nothing_leaks_of_experts",
    "functional_calls_are_native",
    "profiled_calls_are_ranges_and_native",
    "proton_sees_every_launch",
    "what_is_more_than_a_launch_stays_with_python",
    "observed_functional_calls_go_through_the_dispatcher",
    "functional_groups_are_those_of_the_call",
    "results_do_not_depend_on_symmetric_arguments",
    "nothing_leaks_of_functional_calls",
    "plans_keep_no_tensors_of_the_caller",
    "plans_are_bounded",
    "plans_end_with_the_world",
)
SLOW = (
    *("all_calls_with_bias_and_residual_are_prepared", "all_calls_with_scales_are_prepared"),
    *("calls_of_other_dtypes_and_layouts_are_prepared", "calls_of_other_dtypes_in_steps_are_prepared"),
    "experts_of_fp8_between_hosts_are_prepared",
)
"""They compile each kernel of a GEMM with each epilogue, and for other operands."""
GROUPS = PREPARED, IN_STEPS, NATIVE, SLOW
"""Each has a process of its own, which may take as long as what hangs is waited for."""
OF_PE_1 = ("operands_and_results_are_those_of_the_call",)
SLOW_OF_PE_1 = "calls_of_several_parts_are_native", "calls_of_experts_are_native"
"""Those that are made as PE 1, too: its columns of a result do not begin where the result does."""
Results = Callable[[tuple[str, ...]], dict[str, str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Those of a process that runs a group of checks."""
    return functools.cache(lambda checks: results_of("host_calls.py", tmp_path_factory, checks))


@pytest.fixture(scope="module")
def results_of_pe_1(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return functools.cache(lambda checks: results_of("host_calls.py", tmp_path_factory, checks, pe=1))


@pytest.mark.parametrize(
    ("group", "check"),
    [
        pytest.param(group, check, id=check, marks=[pytest.mark.slow] if group is SLOW else [])
        for group in GROUPS
        for check in group
    ],
)
def test_prepared_calls(results: Results, group: tuple[str, ...], check: str) -> None:
    found = results(group)
    assert found.keys() == {check for group in GROUPS for check in group}
    assert found[check] == "ok", found[check]


@pytest.mark.parametrize(
    ("group", "check"),
    [
        pytest.param(group, check, id=check, marks=[pytest.mark.slow] if group is SLOW_OF_PE_1 else [])
        for group in (OF_PE_1, SLOW_OF_PE_1)
        for check in group
    ],
)
def test_prepared_calls_of_another_pe(results_of_pe_1: Results, group: tuple[str, ...], check: str) -> None:
    found = results_of_pe_1(group)[check]
    assert found == "ok", found
