"""The backward of all_gather_gemm: A is gathered by the copy engine while the gradient of ``a`` is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls.between_hosts import two_hosts
from prepared_calls.world import RECORDER, WORLD, calls, forget_plans

from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.functional import gemm_gradients as operators
from triton_dist.kernels.moe import functional as moe_functional
from triton_dist.kernels.protocols.workspace import Workspace

OPS: Any = torch.ops.triton_dist
CURRENT, SIDE = 7, 70
ROWS, K, N = 4096, 1024, 128  # 8 MiB of each PE
LARGE = torch.zeros(2 * ROWS, N).bfloat16(), torch.zeros(ROWS, K).bfloat16(), torch.zeros(K, N).bfloat16()


def gradients(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, name: str = "") -> Any:
    return OPS.all_gather_gemm_gradients(grad, a, b, 0, 2, name)


class Launches(list[Any]):
    """Has launches among what streams are given."""

    def append(self, launched: Any) -> None:
        fake_gpu.QUEUED.append((launched[3], "launch", launched[4]))


@contextmanager
def in_order() -> Iterator[list[tuple[Any, ...]]]:
    """What streams are given, launches included."""
    fake_gpu.QUEUED.clear()
    with mock.patch.object(RECORDER, "all", Launches()):
        yield fake_gpu.QUEUED


def gathered() -> torch.Tensor:
    """The memory in which A is gathered."""
    return communicator_of().own(Workspace).tensors["matrix: gathered"]


def a_is_gathered_in_a_side_stream_without_kernels() -> None:
    """And without waits for peers: barriers are in front of what forks, and behind what joins."""
    for _ in range(3):
        with in_order() as queued:
            gradients(*LARGE)
    to, (_, a, _) = gathered().data_ptr(), LARGE
    launches = [i for i, (stream, what, *_) in enumerate(queued) if what == "launch"]
    assert {queued[i][0] for i in launches} == {CURRENT}, "every kernel is on the current stream"
    side = [what for what in queued if what[0] == SIDE]
    copy = SIDE, "copy", to, a.data_ptr(), a.nbytes
    assert side == [(SIDE, "wait for", f"event of {CURRENT}"), copy, copy], "to the peer, which lies here, and here"
    forks, joins = queued.index(side[0]), queued.index((CURRENT, "wait for", f"event of {SIDE}"))
    before, *between, after = launches
    assert queued[before][2] == queued[after][2] != queued[between[0]][2], "both are barriers"
    assert before < forks < min(between) and max(between) < joins < after
    assert len(between) == 1, "the ring, or a reduce-scatter behind cuBLAS"


def a_second_backward_is_prepared() -> None:
    gradients(*LARGE)
    forget_plans()
    with in_order() as queued:
        gradients(*LARGE)
        ordinary = [*queued]
    with in_order() as queued:
        found = calls(lambda: gradients(*LARGE))
        assert queued == ordinary
    assert not found["JITFunction.run"] and not found["check_operands"], dict(found)
    assert found.repeated == sum(what == "launch" for _, what, *_ in queued) == 3


def copies_are_of_the_call_s_operand() -> None:
    """Also of one whose rows do not follow each other, which is copied first; and the plans keep none."""
    gradients(*LARGE)
    grad, a, b = LARGE
    other = a.clone()
    with in_order() as queued:
        gradients(grad, other, b)
        assert {what[3] for what in queued if what[1] == "copy"} == {other.data_ptr()}
    with in_order() as queued:
        gradients(grad, torch.zeros(ROWS, 2 * K).bfloat16()[:, :K], b)
        sources = {what[3] for what in queued if what[1] == "copy"}
        assert len(sources) == 1 and not sources & {other.data_ptr(), a.data_ptr()}


def weight_gradients_are_computed_from_what_was_gathered() -> None:
    torch.manual_seed(0)
    grad, a, b = (torch.randn(x.shape).bfloat16() for x in LARGE)
    mine = gathered()[: 2 * a.nbytes].view(torch.bfloat16).view(2 * ROWS, K)
    arrived = torch.randn(2 * ROWS, K).bfloat16()
    mine.copy_(arrived)  # the copy engine of this world copies nothing
    found = gradients(grad, a, b)[1]
    assert torch.equal(found, operators.weight_grad(arrived, grad, b))


def gradients_of_the_sum_are_multiplied_where_they_were_gathered() -> None:
    """For the backward of gemm_reduce_scatter: of this PE's rows, which are not sent, the call's."""
    torch.manual_seed(1)
    grad, a, b = torch.randn(ROWS, K).bfloat16(), torch.randn(2 * ROWS, N).bfloat16(), torch.randn(N, K).bfloat16()
    for _ in range(2):
        OPS.gemm_reduce_scatter_gradients(grad, a, b, 0, 2, "")
    all_of_it = gathered()[: 2 * grad.nbytes].view(torch.bfloat16).view(2 * ROWS, K)
    arrived = all_of_it.copy_(torch.randn(2 * ROWS, K)).clone()
    arrived[:ROWS] = grad
    made: list[Any] = []
    found = calls(lambda: made.extend(OPS.gemm_reduce_scatter_gradients(grad, a, b, 0, 2, "")))
    assert torch.equal(made[1], operators.weight_grad(a, arrived, b))
    assert not found["JITFunction.run"] and found.repeated, dict(found)


def what_ends_in_an_error_joins() -> None:
    """Later work waits for copies that were begun, and a later call is as any other."""
    with (
        in_order() as queued,
        mock.patch.object(operators, "gemm_reduce_scatter", side_effect=ArithmeticError),
        pytest.raises(ArithmeticError),
    ):
        gradients(*LARGE)
    assert queued[-1] == (CURRENT, "wait for", f"event of {SIDE}")
    with in_order() as queued:
        gradients(*LARGE)
        assert [what[1] for what in queued].count("launch") == 3


def tokens_of_experts_are_gathered_in_a_side_stream() -> None:
    """While their gradient is computed by one kernel; another computes that of the matrices."""
    tokens, top_k, experts, hidden, inner = 4096, 2, 4, 1024, 64
    ids = torch.zeros(tokens, top_k, dtype=torch.int64)
    routing = moe_functional.gather_routing(ids, num_experts=experts, max_tokens=tokens)
    a, b = torch.zeros(tokens, hidden).bfloat16(), torch.zeros(experts, hidden, inner).bfloat16()
    grad = torch.zeros(routing.rows, inner).bfloat16()
    for _ in range(3):
        with in_order() as queued:
            OPS.moe_all_gather_grouped_gemm_gradients(grad, a, b, routing.memory, top_k, 0, experts, tokens, 2, "")
    to = communicator_of().own(Workspace).tensors["moe: gathered tokens"].data_ptr()
    assert [what[:2] for what in queued] == [
        (CURRENT, "launch"),
        (SIDE, "wait for"),
        (SIDE, "copy"),
        (SIDE, "copy"),
        (CURRENT, "launch"),
        (CURRENT, "wait for"),
        (CURRENT, "launch"),
        (CURRENT, "launch"),
    ]
    assert {what[2] for what in queued if what[1] == "copy"} == {to}


def small_operands_and_several_hosts_are_gathered_behind() -> None:
    grad, a, b = LARGE

    def one_after_the_other(call: Callable[[], object]) -> bool:
        call()
        with mock.patch.object(operators, "gather_again", side_effect=AssertionError):
            call()
        return True

    assert one_after_the_other(lambda: gradients(grad[:512], a[:256], b))
    with two_hosts() as comm:
        assert one_after_the_other(lambda: gradients(*LARGE, comm.name))


def shapes_are_compared() -> None:
    """Before anything is copied: a member with fewer rows has less memory for them."""
    grad, a, b = LARGE
    fewer = grad[: 2 * (ROWS - 128)], a[: ROWS - 128], b
    forget_plans()
    communicator_of()._equal.clear()
    compared: list[tuple[str, int]] = []
    with in_order() as queued:

        def compare(group: object, number: int, call: str, made: object) -> None:
            compared.append((call, len(queued)))

        with mock.patch.object(WORLD, "compare_call", compare):
            gradients(*fewer)
    assert compared[0] == (f"all_gather_gemm_gradients({tuple(fewer[1].shape)}, torch.bfloat16)", 0)
