"""The backward of a layer of experts: which stream gets which kernel, and which of them are beside communication."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls.backward import CURRENT, SIDE
from prepared_calls.world import RECORDER, calls

from triton_dist.kernels import moe
from triton_dist.kernels.moe import functional_layer, rounds
from triton_dist.kernels.moe.combine import moe_combine_receive, moe_combine_send
from triton_dist.kernels.moe.dispatch_messages import moe_dispatch_one_round
from triton_dist.kernels.moe.grouped_gemm import moe_grouped_gemm_weight_grad

OPS: Any = torch.ops.triton_dist
TOKENS, HIDDEN, INNER, EXPERTS = 16, 256, 128, 4
FORKED, JOINED = (SIDE, "wait for", f"event of {CURRENT}"), (CURRENT, "wait for", f"event of {SIDE}")
KERNELS = {
    "dispatch": moe_dispatch_one_round,
    "dispatch in rounds": rounds.moe_dispatch_rounds,
    "combine in rounds": rounds.moe_combine_rounds,
    "send": moe_combine_send,
    "receive": moe_combine_receive,
    "weight": moe_grouped_gemm_weight_grad,
}


def backward(num_sms: int) -> Callable[[], None]:
    """That of a layer, of which everything wants a gradient."""
    ids = torch.zeros(TOKENS, 2, dtype=torch.int64)
    x, weights = torch.zeros(TOKENS, HIDDEN).bfloat16(), torch.zeros(TOKENS, 2)
    matrices = torch.zeros(EXPERTS // 2, 2 * INNER, HIDDEN), torch.zeros(EXPERTS // 2, HIDDEN, INNER)
    leaves = [tensor.requires_grad_() for tensor in (x, weights, *(matrix.bfloat16() for matrix in matrices))]
    sizes: dict[str, Any] = {"num_experts": EXPERTS, "max_tokens": TOKENS, "num_sms": num_sms}
    out = moe.moe_layer(leaves[0], ids, *leaves[1:], **sizes)
    grad = torch.zeros_like(out)
    return lambda: torch.autograd.backward(out, grad, retain_graph=True)


class Launches(list[Any]):
    """Has launches, by names of kernels, among what streams are given. Others are GEMMs."""

    def append(self, launched: Any) -> None:
        fake_gpu.QUEUED.append((launched[3], _name_of(launched[4])))


def _name_of(handle: int) -> str:
    for name, kernel in KERNELS.items():
        if any(compiled.function == handle for compiled in kernel.device_caches[0][0].values()):
            return name
    return "gemm"


def queued(call: Callable[[], object]) -> list[tuple[Any, ...]]:
    fake_gpu.QUEUED.clear()
    with mock.patch.object(RECORDER, "all", Launches()):
        call()
    return [*fake_gpu.QUEUED]


def gradients_of_matrices_are_computed_between_halves() -> None:
    """Those of the second GEMM, while the sums of tokens' weights are in flight, and then those of the first one, while
    the gradients of tokens are. All is on the current stream."""
    call = backward(0)
    for _ in range(3):
        found = queued(call)
        assert {stream for stream, _ in found} == {CURRENT}, found
        between = ["send", "weight", "receive"]
        assert [what for _, what in found] == ["dispatch", *between, "gemm", "gemm", *between], found


def gradients_of_matrices_are_computed_beside_rounds() -> None:
    """On the side stream, which waits for no peer; what does is on the current one, and is given to the GPU first."""
    call = backward(24)
    beside = [FORKED, (CURRENT, "combine in rounds"), (SIDE, "weight"), JOINED]
    for _ in range(3):
        found = queued(call)
        expected = [(CURRENT, "dispatch in rounds"), *beside, *[(CURRENT, "gemm")] * 2, *beside]
        assert found == expected, found


def exchanges_of_backward_are_prepared() -> None:
    """All launches but the two of gradients of matrices, which Triton makes."""
    for num_sms in (0, 24):
        call = backward(num_sms)
        for _ in range(2):  # the first one makes workspace, behind some of its plans
            call()
        found = calls(call)
        launches = sum(1 for what in queued(call) if what[1] in {*KERNELS, "gemm"})
        assert (found["JITFunction.run"], found.repeated) == (2, launches - 2), dict(found)


def _fails(call: Callable[[], None]) -> None:
    with pytest.raises(ArithmeticError):
        call()


def an_error_beside_a_combine_joins() -> None:
    """What was sent is received, and a side stream joins; the next backward is as any other."""
    for num_sms, last in ((0, (CURRENT, "receive")), (24, JOINED)):
        call = backward(num_sms)
        expected = queued(call)
        with mock.patch.object(functional_layer, "grouped_weight_grad", side_effect=ArithmeticError):
            assert queued(partial(_fails, call))[-1] == last
        assert queued(call) == expected


def tensors_of_a_side_stream_are_of_the_current_one() -> None:
    """Memory that PyTorch allocates for a side stream is used again by later work of that stream only."""
    call = backward(24)
    call()
    made: list[int] = []
    new = torch.Tensor.new_empty

    def noted(tensor: torch.Tensor, *size: Any, **options: Any) -> torch.Tensor:
        made.append(fake_gpu.STREAM[0])
        return new(tensor, *size, **options)

    with mock.patch.object(torch.Tensor, "new_empty", noted):
        call()
    assert made and {*made} == {CURRENT}


def gradients_of_slices_are_gathered_by_the_gemm() -> None:
    """Two kernels, of which the first one gathers, and no side stream."""
    ids = torch.zeros(TOKENS, 2, dtype=torch.int64)
    routing = moe.functional.gather_routing(ids, num_experts=EXPERTS, max_tokens=TOKENS)
    a, b = torch.zeros(routing.rows, INNER).bfloat16(), torch.zeros(EXPERTS, INNER, HIDDEN).bfloat16()
    grad = torch.zeros(TOKENS, HIDDEN).bfloat16()
    where = routing.memory, 2, True, 0, EXPERTS, TOKENS, 2, ""
    for _ in range(3):
        found = queued(lambda: OPS.moe_grouped_gemm_reduce_scatter_gradients(grad, a, b, *where))
        assert found == [(CURRENT, "gemm"), (CURRENT, "weight")], found
