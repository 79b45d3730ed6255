"""Calls of experts that C++ makes again: what they return and are given are tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import fake_gpu
import pytest
import torch
from prepared_calls.calls import (
    EXPERTS,
    IDS,
    NEW_IN_STEPS,
    NEW_RESULTS,
    RECEIVED,
    ROUTED,
    ROWS,
    SCALES,
    SLICE,
    TOKENS,
    WEIGHTS,
)
from prepared_calls.calls import TOKENS8 as FP8
from prepared_calls.native import leave_nothing
from prepared_calls.native_steps import driven, launches_by_python
from prepared_calls.world import DRIVER, RECORDER, WORLD, calls, forget_plans

from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.local_launches import LocalLaunches
from triton_dist.kernels.moe.exchange import InFlight
from triton_dist.kernels.native import NativeCalls
from triton_dist.process_state import of_process

Call = Callable[[], Any]

OF_EXPERTS = "dispatch", "combine", "all_gather_grouped", "grouped_gemm", "gather_routing"
CALLS = {
    name: call
    for name, call in (NEW_RESULTS | NEW_IN_STEPS).items()
    if name.startswith(OF_EXPERTS) and not any(part in name for part in ("in halves", "no tokens"))
}


def is_native(call: Call) -> bool:
    """Whether C++ makes all launches of a call."""
    return not launches_by_python(calls(call))


def learnt(call: Call) -> Call:
    for _ in range(3):
        call()
    assert is_native(call)
    return call


def calls_of_experts_are_native() -> None:
    for name, call in CALLS.items():
        forget_plans()
        found = [driven(call) for _ in range(5)]
        assert found[0] and all(done == found[0] for done in found), name
        assert is_native(call), name


def results_are_those_of_ordinary_calls() -> None:
    """Of the same types, with the call's own tensors and otherwise new ones."""
    for name, call in CALLS.items():
        forget_plans()
        ordinary, repeated, *others = [call() for _ in range(8)]
        for result in (repeated, *others):
            assert type(result) is type(ordinary), name
            assert _said(result) == _said(ordinary), name
        if name.endswith("out="):
            assert all(result is ordinary for result in (repeated, *others)), name
            continue
        memory = [tensor.data_ptr() for result in (ordinary, repeated, *others) for tensor in _new(result)]
        assert len({*memory}) == len(memory), f"{name}: results share no memory"
    learnt(CALLS["dispatch"])
    ids, weights = IDS.clone(), WEIGHTS.clone()
    for _ in range(8):
        received = moe.dispatch(TOKENS, ids, weights, **EXPERTS)
        assert received.routing.ids is ids and received.routing.weights is weights


def _said(result: Any) -> list[Any]:
    """What a result says, but for where new tensors lie."""
    if isinstance(result, tuple):
        return [type(result), *map(_said, result)]
    if isinstance(result, torch.Tensor):
        known = [id(result)] if result is IDS or result is WEIGHTS else []
        return [*known, result.shape, result.stride(), result.dtype]
    return [result]


def _new(result: Any) -> list[torch.Tensor]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def results_may_be_given() -> None:
    """Of every function that takes ``out``; one that overlaps an operand is refused after calls that do not."""
    rows, slices = torch.zeros(ROUTED.rows, 64).bfloat16(), SLICE
    counts, offsets = torch.tensor([3, 0, 5, 1], dtype=torch.int32), torch.tensor([0, 3, 3, 8, 9], dtype=torch.int32)
    for function, given, out in (
        (moe.all_gather_grouped_gemm, (TOKENS, slices, ROUTED), torch.zeros(ROUTED.rows, 32).bfloat16()),
        (moe.grouped_gemm_reduce_scatter, (rows, slices, ROUTED), torch.zeros(8, 32).bfloat16()),
        (moe.grouped_gemm, (rows[:16], slices, offsets, counts), torch.zeros(16, 32).bfloat16()),
    ):
        function: Any
        call = learnt(partial(function, *given, out=out))
        assert call() is out
        other = torch.zeros_like(out)
        done = driven(partial(function, *given, out=other))
        assert is_native(partial(function, *given, out=other)) and function(*given, out=other) is other
        forget_plans()
        WORLD.own(LocalLaunches).close()
        assert driven(partial(function, *given, out=other)) == done
        inside = given[0].view(-1)[: out.numel()].view_as(out) if given[0].numel() >= out.numel() else None
        if inside is not None:
            learnt(call)
            with pytest.raises(ValueError, match="overlap"):
                function(*given, out=inside)


def tuples_are_those_of_the_call() -> None:
    """What a tuple holds, and not which tuple it is, decides on a call, and is what it takes."""
    learnt(CALLS["combine"])
    other = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS)
    call = learnt(lambda: moe.combine(other.x, other))
    call()
    assert RECORDER.pointers()[:3] == [other.x.data_ptr(), other.memory.data_ptr(), IDS.data_ptr()]
    differing = [
        moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS | {"max_tokens": 16}),
        moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, align=8),
        moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24),
        moe.dispatch(TOKENS[:4], IDS[:4], WEIGHTS[:4], **EXPERTS),
    ]
    for received in differing:
        call = partial(moe.combine, torch.zeros_like(received.x), received)
        ordinary = [driven(call) for _ in range(6)]
        forget_plans()
        learnt(CALLS["combine"])
        assert driven(call) == ordinary[-1] == ordinary[0]


def halves_are_sent_by_cpp() -> None:
    """The driver gets what it got, exchanges have numbers of their own, and each is received once."""
    halves: Any
    for halves in (
        (lambda: moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS), moe.dispatch_receive),
        (lambda: moe.dispatch_send(FP8, IDS, WEIGHTS, scales=SCALES, buffer=1, **EXPERTS), moe.dispatch_receive),
        (lambda: moe.combine_send(RECEIVED.x, RECEIVED), moe.combine_receive),
        (lambda: moe.combine_send(RECEIVED.x, RECEIVED, weighted=False, buffer=2), moe.combine_receive),
    ):
        send, receive = halves
        forget_plans()
        all_sent: list[Any] = []

        def noted(send: Any = send, all_sent: list[Any] = all_sent) -> None:
            all_sent.append(send())

        found = []
        for _ in range(6):
            found.append(driven(noted))
            with pytest.raises(RuntimeError, match="has been sent and not received"):
                send()
            receive(all_sent[-1])
            with pytest.raises(RuntimeError, match="it has been received"):
                receive(all_sent[-1])
        assert found[0] and all(done == found[0] for done in found)
        first, *others = all_sent
        assert [sent.number for sent in others] == [first.number + i + 1 for i in range(5)]
        assert all(_said(sent[:-1]) == _said(first[:-1]) and type(sent) is type(first) for sent in others)
        assert is_native(noted)
        receive(all_sent[-1])
        DRIVER.fake_fail_launches(700)
        with pytest.raises(RuntimeError):
            send()
        DRIVER.fake_fail_launches(0)
        receive(send())
    ids, weights = IDS.clone(), WEIGHTS.clone()
    for _ in range(6):
        found_sent = moe.dispatch_send(TOKENS, ids, weights, **EXPERTS)
        assert found_sent.routing.ids is ids and found_sent.routing.weights is weights
        received = moe.dispatch_receive(found_sent)
        sums = moe.combine_send(received.x, received)
        assert sums.memory is received.memory and sums.routing.ids is ids
        moe.combine_receive(sums)


def what_is_in_flight_is_refused() -> None:
    call = learnt(CALLS["dispatch"])
    sent = moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="has been sent and not received"):
            call()
    moe.dispatch_receive(sent)
    assert is_native(call)
    assert not communicator_of().own(InFlight).sent


def errors_of_experts_are_those_of_python() -> None:
    learnt(CALLS["dispatch"])
    learnt(CALLS["combine"])
    learnt(CALLS["grouped_gemm_reduce_scatter"])
    wants = RECEIVED.x.clone().requires_grad_()
    short: Any = RECEIVED.x[:-1].clone()
    wrong: list[tuple[type[Exception], str, Call]] = [
        (TypeError, "dispatched must be what moe.dispatch returns", lambda: moe.combine(RECEIVED.x, tuple(RECEIVED))),  # type: ignore[arg-type]
        (ValueError, "y must have a row for each", lambda: moe.combine(short, RECEIVED)),
        (ValueError, "requires a gradient", lambda: moe.combine(wants, RECEIVED)),
        (ValueError, "weights", lambda: moe.dispatch(TOKENS, IDS, WEIGHTS[:4], **EXPERTS)),
        (ValueError, "has room for", lambda: moe.grouped_gemm_reduce_scatter(ROWS[:-1], SLICE, ROUTED)),
        (TypeError, "x", lambda: moe.dispatch((TOKENS,), IDS, WEIGHTS, **EXPERTS)),  # type: ignore[arg-type]
    ]
    for kind, text, call in wrong:
        for _ in range(3):
            with pytest.raises(kind, match=text):
                call()
    call = learnt(CALLS["combine"])
    said = set()
    for native in (True, False):
        if not native:
            forget_plans()
        DRIVER.fake_fail_launches(700)
        with pytest.raises(RuntimeError) as error:
            call()
        DRIVER.fake_fail_launches(0)
        said.add(str(error.value))
    assert len(said) == 1
    learnt(call)


def groups_of_experts_are_their_communicators() -> None:
    with Communicator() as other:
        received = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, group=other)
        native = of_process(NativeCalls)
        before = len(native)
        learnt(lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, group=other))
        call = learnt(lambda: moe.combine(received.x, received))
        mine = driven(call)
        assert len(native) == before + 2 and mine != driven(CALLS["combine"])
        forget_plans(other)
        assert driven(call) == mine
    with pytest.raises(RuntimeError, match="was closed"):
        call()


class _Deep(NamedTuple):
    inner: Any


def unusual_tuples_go_through_python() -> None:
    """Those that are nested deeply, long, or hold what is compared by its value."""
    table = of_process(NativeCalls)._table
    learnt(CALLS["combine"])
    deep: Any = TOKENS
    for _ in range(1000):
        deep = _Deep(deep)
    itself: list[Any] = []
    circle = (itself,)
    itself.append(circle)
    for value in (deep, circle, tuple(range(1000)), (FP8,) * 1000, ([],), ({},), (b"",), (1j,)):
        assert table.call("combine", (RECEIVED.x, value), {}) is None


def layers_call_them() -> None:
    w13, w2 = torch.zeros(2, 64, 64).bfloat16(), torch.zeros(2, 64, 32).bfloat16()
    for algorithm, launched in (("separate", 4), ("fused", 6)):
        call = partial(moe.moe_layer, TOKENS, IDS, WEIGHTS, w13, w2, num_experts=4, max_tokens=8, algorithm=algorithm)
        WORLD.own(LocalLaunches).close()
        forget_plans()
        found = [driven(call) for _ in range(6)]
        assert all(done == found[0] for done in found), algorithm
        assert sum(isinstance(done, list) for done in found[0]) == launched
        assert is_native(call), algorithm


def nothing_leaks_of_experts() -> None:
    repeats = [learnt(CALLS[name]) for name in ("dispatch", "combine", "gather_routing", "grouped_gemm_combine")]
    RECORDER.all.clear()
    fake_gpu.DONE.clear()
    counted = TOKENS, IDS, WEIGHTS, RECEIVED.x, RECEIVED.memory, RECEIVED.routing, communicator_of(), type(RECEIVED)
    leave_nothing([(call, 5_000) for call in repeats], counted)
