"""Dispatch and combine of a group on two hosts, which are several launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from prepared_calls.between_hosts import two_hosts
from prepared_calls.calls import EXPERTS, IDS, SCALES, TOKENS, TOKENS8, WEIGHTS
from prepared_calls.world import RECORDER, calls, forget_plans, plans

from triton_dist.kernels import moe


def _launches(call: Callable[[], object], memory: torch.Tensor | None) -> list[Any]:
    """What ``call`` launches. Addresses are numbers in the order in which they come, or places in a result's memory."""
    RECORDER.all.clear()
    result: Any = call()
    if isinstance(result, moe.Dispatched):
        memory = result.memory
    assert memory is not None
    begin, end = memory.data_ptr(), memory.data_ptr() + memory.nbytes
    known: dict[int, int] = {}

    def plain(argument: Any) -> Any:
        if not isinstance(argument, tuple) or argument[:1] != ("at",):
            return argument
        if begin <= argument[1] < end:
            return "memory", argument[1] - begin
        return known.setdefault(argument[1], len(known))

    return [[*how[:3], [plain(argument) for argument in of_kernel]] for *how, of_kernel in RECORDER.all]


def experts_between_hosts_are_prepared() -> None:
    """The same launches as of an ordinary call, which hand each other the call's own tensors."""
    _are_prepared(fp8=False)


def experts_of_fp8_between_hosts_are_prepared() -> None:
    _are_prepared(fp8=True)


def _are_prepared(*, fp8: bool) -> None:
    with two_hosts() as comm:
        sizes = EXPERTS | {"group": comm}
        dispatches: dict[str, Callable[[], Any]] = {
            "one kernel": partial(moe.dispatch, TOKENS, IDS, WEIGHTS, **sizes),
            "fp8": partial(moe.dispatch, TOKENS8, IDS, WEIGHTS, scales=SCALES, **sizes),
            "rounds": partial(moe.dispatch, TOKENS, IDS, WEIGHTS, **sizes, num_sms=24),
            "halves": lambda: moe.dispatch_receive(moe.dispatch_send(TOKENS, IDS, WEIGHTS, **sizes)),
            "halves, fp8": lambda: moe.dispatch_receive(
                moe.dispatch_send(TOKENS8, IDS, WEIGHTS, scales=SCALES, **sizes)
            ),
        }
        for name, call in dispatches.items():
            if ("fp8" in name) != fp8:
                continue
            received = call()
            combines: tuple[Callable[[], Any], ...] = ()
            if "fp8" not in name:
                combines = (partial(moe.combine, received.x, received),)
            if name == "halves":
                combines += (lambda: moe.combine_receive(moe.combine_send(received.x, received)),)  # noqa: B023
            for function in (call, *combines):
                function()
                forget_plans(comm)
                ordinary = _launches(function, received.memory)
                assert len(ordinary) > 1 and plans(comm), name
                counted = calls(function)
                assert not counted["JITFunction.run"] and not counted["check_routing"], name
                assert counted["PreparedLaunch.__call__"] == len(ordinary), name
                assert _launches(function, received.memory) == ordinary, name
