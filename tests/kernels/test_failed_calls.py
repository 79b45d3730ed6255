"""A call that fails on one PE, whose program goes on: no later call gives a result that mixes calls, and none hangs."""

from __future__ import annotations

import re

import pytest
from forking import launch

ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_WAIT_TIMEOUT": "300", "TRITON_DIST_SYMMETRIC_SIZE": "32M"}

BEGIN = """
import sys, torch, triton_dist
from unittest import mock
from triton_dist import kernels
from triton_dist.kernels import moe

def tried(call, *arguments, **named):
    try:
        return call(*arguments, **named)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)

world = triton_dist.init()
"""


def test_nothing_follows_a_kernel_that_failed_here() -> None:
    """PE 0 chooses an expert that is not. What its next call sends, PE 1 would take for its part of the failed one."""
    program = f"""{BEGIN}
sizes = {{"num_experts": 2, "max_tokens": 4, "num_sms": 2}}
x, right = torch.full((4, 8), 1.0 + world.pe), torch.arange(8).reshape(4, 2) % 2
wrong = right.clone()
wrong[0, 0] = 99 * (world.pe == 0)
tried(moe.dispatch, x, wrong, **sizes)
tried(moe.dispatch, x, right, **sizes)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=90)
    assert not result.timed_out, result.report
    first, second = result[0].stdout.splitlines()
    assert first.startswith("KernelError") and "an expert id is not in [-1, num_experts)" in first, result.report
    failed = r"dispatch: an earlier call of <communicator of PEs 0, 1> failed in the middle of what .*"
    failed += r" The call was dispatch\(.*the error was KernelError: PE 0, .*num_experts\)"
    assert re.fullmatch(rf"RuntimeError: {failed}", second), result.report
    assert re.search(rf"^KernelError: PE 1, kernel moe_dispatch_rounds: PE 0 cannot go on. {failed}", result[1].stdout)


@pytest.mark.parametrize(("error", "in_a_kernel"), [("KeyboardInterrupt", True), ("RuntimeError('no memory')", False)])
def test_the_others_do_not_get_what_was_meant_for_another_call(error: str, in_a_kernel: bool) -> None:
    """PE 1 fails between the comparison and its kernel, and goes on with the next call, which PE 0 has not come to."""
    program = f"""{BEGIN}
x = torch.full((4,), 1.0 + world.pe)
kernels.all_reduce(x.clone())
where = "triton_dist.kernels.collectives.all_reduce.reduced_words"
with mock.patch(where, side_effect={error}) if world.pe else mock.patch("sys.flags"):
    results = [tried(kernels.all_reduce, torch.full((5,), 10.0 + world.pe))]
results.append(tried(kernels.all_reduce, 100 * x))
print([None if found is None else found.tolist() for found in results], flush=True)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=90)
    assert not result.timed_out, result.report
    for pe in result:
        assert pe.stdout.splitlines()[-1] == "[None, None]", result.report
    if not in_a_kernel:
        said = "all_reduce, the first call of <communicator of PEs 0, 1> after one that failed"
        assert f"no program can go on: all other PEs wait for this one, PE 1 in {said}" in result[0].stdout, (
            result.report
        )
        assert f"PE 1 cannot complete {said}: PE 0" in result[1].stdout, result.report
    else:
        assert "PE 1 cannot go on. all_reduce: an earlier call of" in result[0].stdout, result.report


def test_all_go_on_if_all_have_failed_outside_of_kernels() -> None:
    program = f"""{BEGIN}
x = torch.full((4,), 1.0 + world.pe)
with mock.patch("triton_dist.kernels.collectives.all_reduce.reduced_words", side_effect=RuntimeError("no memory")):
    tried(kernels.all_reduce, x)
assert kernels.all_reduce(x).tolist() == [3.0] * 4
triton_dist.finalize()
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=90)
    assert [pe.returncode for pe in result] == [0, 0], result.report
    assert [pe.stdout for pe in result] == ["RuntimeError: no memory\n"] * 2, result.report


def test_what_comes_up_while_a_kernel_waits_is_an_error_in_a_kernel() -> None:
    """As by a handler of signals: PE 0 waits in its kernel for PE 1, and it is no error of a program's line."""
    program = f"""{BEGIN}
import time
x = torch.full((4,), 1.0 + world.pe)
kernels.all_reduce(x.clone())
time.sleep(world.pe)
where = "triton_dist.cpu.scheduler.Scheduler._check_others"
with mock.patch(where, side_effect=TimeoutError("too long")) if world.pe == 0 else mock.patch("sys.flags"):
    tried(kernels.all_reduce, x.clone())
tried(kernels.all_reduce, x.clone())
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=90)
    assert not result.timed_out, result.report
    first, second = result[0].stdout.splitlines()
    assert first == "TimeoutError: too long", result.report
    assert re.match("RuntimeError: all_reduce: an earlier call of .* failed in the middle", second), result.report
