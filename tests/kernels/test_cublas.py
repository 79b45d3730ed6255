"""Local GEMMs that go to cuBLAS: the checks of ``cublas_calls.py``, in a process with neither a GPU nor cuBLAS."""

from __future__ import annotations

import pytest
from host_checks import results_of

CHECKS = (
    "a_library_that_is_not_loaded_is_not_used",
    "layouts_are_those_of_torch",
    "what_cublas_does_not_take_is_torch_s",
    "cpp_makes_the_call_again",
    "layouts_of_calls_are_theirs",
    "streams_are_those_of_the_call",
    "flags_are_read_in_each_call",
    "errors_are_those_of_python",
    "without_a_handle_gemms_are_torch_s",
    "nothing_waits_for_kernels_of_an_aborted_world",
    "communicators_have_handles_of_their_own",
    "nothing_is_made_in_captures",
    "threads_run_while_a_gemm_waits",
    "workspaces_are_as_large_as_pytorch_s",
    "gemms_within_other_calls_are_cublas_s",
    "gemms_of_another_call_lie_where_its_tensors_do",
    "wrong_gemms_are_refused",
    "nothing_leaks_of_gemms",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return results_of("cublas_calls.py", tmp_path_factory)


@pytest.mark.parametrize("check", CHECKS)
def test_local_gemms(results: dict[str, str], check: str) -> None:
    assert results.keys() == {*CHECKS}
    assert results[check] == "ok", results[check]
