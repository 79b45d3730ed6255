"""Checks of prepared calls on a GPU that is not there (``fake_gpu.py``): ``host_calls.py FOLDER CHECKS…``.

They are in ``prepared_calls/``. Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import fake_gpu
from prepared_calls import (
    arguments,
    backward,
    between_hosts,
    decode,
    epilogues,
    every,
    experts_between_hosts,
    lifetimes,
    local,
    refusals,
    scales,
    shards,
)

CHECKS = (
    arguments.second_calls_are_prepared,
    arguments.calls_of_other_dtypes_and_layouts_are_prepared,
    arguments.calls_in_steps_are_prepared,
    arguments.results_in_steps_are_computed,
    arguments.calls_of_python_are_counted,
    arguments.the_driver_gets_the_same_arguments,
    arguments.new_results_are_those_that_are_returned,
    refusals.experts_errors_are_those_of_ordinary_calls,
    arguments.matrices_may_lie_elsewhere,
    arguments.new_results_are_new,
    scales.calls_with_scales_are_prepared,
    scales.all_calls_with_scales_are_prepared,
    scales.scales_of_both_operands_are_multiplied,
    scales.scales_of_steps_are_the_call_s,
    scales.a_tensor_may_be_both_scales,
    scales.wrong_scales_are_refused,
    scales.plans_keep_no_scales,
    shards.calls_with_shards_that_differ_are_prepared,
    epilogues.calls_with_bias_and_residual_are_prepared,
    epilogues.all_calls_with_bias_and_residual_are_prepared,
    epilogues.a_bias_of_cublas_is_the_call_s,
    epilogues.a_bias_is_no_scale_of_cublas,
    epilogues.the_result_may_be_the_residual,
    between_hosts.gemms_between_hosts_are_prepared,
    experts_between_hosts.experts_between_hosts_are_prepared,
    every.every_function_and_algorithm_is_prepared_or_says_why_not,
    refusals.what_decides_on_kernels_is_compared,
    refusals.other_signatures_are_not_mixed_up,
    refusals.errors_are_those_of_ordinary_calls,
    refusals.unusual_calls_take_the_ordinary_path,
    local.grouped_gemms_are_launched_again,
    local.grouped_gemms_of_other_tensors_are_of_these,
    local.tiles_are_those_for_expected_rows,
    local.portable_grouped_gemms_take_the_ordinary_path,
    decode.calls_with_new_tensors_in_steps_are_prepared,
    decode.peers_get_their_parts_by_the_copy_engine,
    decode.copies_go_where_the_call_s_result_lies,
    decode.lengths_and_pages_need_no_new_plan,
    decode.numbers_as_scales_are_those_of_the_call,
    decode.errors_of_decode_are_those_of_ordinary_calls,
    decode.halves_follow_each_other,
    decode.norm_gemms_are_launched_again,
    decode.dependent_launches_are_prepared,
    backward.a_is_gathered_in_a_side_stream_without_kernels,
    backward.a_second_backward_is_prepared,
    backward.copies_are_of_the_call_s_operand,
    backward.weight_gradients_are_computed_from_what_was_gathered,
    backward.gradients_of_the_sum_are_multiplied_where_they_were_gathered,
    backward.tokens_of_experts_are_gathered_in_a_side_stream,
    backward.what_ends_in_an_error_joins,
    backward.small_operands_and_several_hosts_are_gathered_behind,
    backward.shapes_are_compared,
    lifetimes.communicators_have_plans_of_their_own,
    lifetimes.a_second_thread_finds_them,
    arguments.the_current_stream_is_used,
    arguments.every_call_is_compared,
    arguments.the_users_line_is_known,
    lifetimes.plans_keep_no_tensors_of_the_caller,
    lifetimes.plans_are_bounded,
    lifetimes.plans_end_with_the_world,
)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
