"""Decode attention, halves of an exchange of tokens, and copies: calls whose tensors are new each time, in steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls import calls as given
from prepared_calls.calls import CACHE, CACHE8, EXPERTS, IDS, LENGTHS, PAGES, RECEIVED, TOKENS, WEIGHTS, A, B, Q
from prepared_calls.world import RECORDER, WORLD, calls, forget_plans, is_prepared, plans

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.dependent_launch import DependentLaunches

KNOWN = {
    tensor.data_ptr()
    for value in vars(given).values()
    for tensor in (value if isinstance(value, tuple) else (value,))
    if isinstance(tensor, torch.Tensor)
}
"""Where the tensors lie that calls are given."""


def launches(call: Callable[[], object]) -> list[Any]:
    """What the driver gets, and other work of streams. New tensors are told by which of them they are."""
    RECORDER.all.clear()
    fake_gpu.QUEUED.clear()
    call()
    plain = plainly()
    return [[*how, [*map(plain, arguments)]] for *how, arguments in RECORDER.all] + [*fake_gpu.QUEUED]


def plainly() -> Callable[[Any], Any]:
    """Makes of arguments of launches, one after the other, the same with new tensors told by which of them they are."""
    new: dict[int, int] = {}

    def plain(argument: Any) -> Any:
        if isinstance(argument, tuple) and argument[:1] in (("at",), ("map",)):
            place, address, *how = argument
            return place, address if address in KNOWN else f"new {new.setdefault(address, len(new))}", *how
        return argument

    return plain


def is_repeated(name: str, call: Callable[[], object]) -> None:
    """The first call leaves plans, and a later one makes the same launches by them."""
    call()
    forget_plans()
    ordinary = launches(call)
    assert ordinary and plans(), name
    assert launches(call) == ordinary, name
    found = calls(call)
    assert not found["JITFunction.run"] and found.repeated, f"{name}: {dict(found)}"
    assert not found["check_on_device"] and not found["check_routing"] and not found["check_tensors"], name


def calls_with_new_tensors_in_steps_are_prepared() -> None:
    for name in sorted(given.NEW_IN_STEPS.keys() - given.REPEATS):
        is_repeated(name, given.NEW_IN_STEPS[name])


def calls_of_other_dtypes_in_steps_are_prepared() -> None:
    for name in sorted(given.NEW_IN_STEPS.keys() & given.REPEATS):
        is_repeated(name, given.NEW_IN_STEPS[name])


def peers_get_their_parts_by_the_copy_engine() -> None:
    """Each its own; this world's peers all lie where this PE does."""
    part = given.LARGE.nbytes // 2
    for name, source in (("all_gather, copy_engine", 0), ("all_to_all, copy_engine", part)):
        out = given.OUT if source else given.GATHERED_LARGE
        for _ in range(2):
            fake_gpu.QUEUED.clear()
            given.NEW_IN_STEPS[name]()
            copies = [what for what in fake_gpu.QUEUED if what[1] == "copy"]
            nbytes = out.nbytes // 2
            assert copies == [(70, "copy", out.data_ptr(), given.LARGE.data_ptr() + source, nbytes)], name


def copies_go_where_the_call_s_result_lies() -> None:
    for _ in range(2):
        kernels.all_gather(given.GATHERED_LARGE, given.LARGE, algorithm="copy_engine")
    other = WORLD.empty(given.GATHERED_LARGE.shape, torch.bfloat16)
    for _ in range(2):
        fake_gpu.QUEUED.clear()
        kernels.all_gather(other, given.LARGE, algorithm="copy_engine")
        assert [what[2] for what in fake_gpu.QUEUED if what[1] == "copy"] == [other.data_ptr()]


def lengths_and_pages_need_no_new_plan() -> None:
    kernels.flash_decode(Q, CACHE, CACHE, LENGTHS)
    assert is_prepared(lambda: kernels.flash_decode(Q, CACHE, CACHE, torch.full((4,), 7, dtype=torch.int32)))
    kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, block_table=PAGES)
    others = Q.clone(), CACHE.clone(), LENGTHS.clone(), PAGES.clone()
    q, cache, lengths, pages = others
    assert is_prepared(lambda: kernels.flash_decode(q, cache, cache, lengths, block_table=pages))
    assert RECORDER.pointers()[:5] == [x.data_ptr() for x in (q, cache, cache, lengths, pages)]
    with torch.no_grad():
        assert is_prepared(
            lambda: kernels.flash_decode(torch.nn.Parameter(q), cache, cache, lengths, block_table=pages)
        )


def numbers_as_scales_are_those_of_the_call() -> None:
    kernels.flash_decode(Q, CACHE8, CACHE8, LENGTHS, k_scale=0.5, v_scale=2.0)
    full, made = torch.full, []

    def kept(*arguments: Any, **options: Any) -> torch.Tensor:
        made.append(full(*arguments, **options))
        return made[-1]

    with mock.patch.object(torch, "full", kept):
        assert is_prepared(lambda: kernels.flash_decode(Q, CACHE8, CACHE8, LENGTHS, k_scale=3.0, v_scale=4.0))
    assert [tensor.item() for tensor in made] == [3.0, 4.0]
    assert RECORDER.pointers()[8:10] == [tensor.data_ptr() for tensor in made]
    spread = torch.ones(4)[::2]
    for _ in range(2):
        launched = calls(lambda: kernels.flash_decode(Q, CACHE8, CACHE8, LENGTHS, k_scale=spread))
        assert launched["JITFunction.run"], "it is copied, and by the ordinary path"


def errors_of_decode_are_those_of_ordinary_calls() -> None:
    kernels.flash_decode(Q, CACHE, CACHE, LENGTHS)
    kernels.flash_decode_projection(Q, CACHE, CACHE, LENGTHS, given.PROJECTION)
    moe.gather_routing(IDS, WEIGHTS, **EXPERTS)
    wrong: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "lengths must be of", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS.long())),
        (ValueError, "4 requests, and lengths 3", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS[:3])),
        (ValueError, "scale must be finite", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, scale=1e999)),
        (ValueError, "window must be in", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, window=0)),
        (ValueError, "is for caches of fp8", lambda: kernels.flash_decode(Q, CACHE, CACHE, LENGTHS, k_scale=1.0)),
        (
            ValueError,
            "requires a gradient",
            lambda: kernels.flash_decode(Q.clone().requires_grad_(), CACHE, CACHE, LENGTHS),
        ),
        (
            ValueError,
            "cannot be multiplied",
            lambda: kernels.flash_decode_projection(Q, CACHE, CACHE, LENGTHS, given.PROJECTION[:64]),
        ),
        (
            ValueError,
            "requires a gradient",
            lambda: moe.gather_routing(IDS, WEIGHTS.clone().requires_grad_(), **EXPERTS),
        ),
        (TypeError, "must be an int", lambda: moe.gather_routing(IDS, WEIGHTS, num_experts=4.0, max_tokens=8)),  # type: ignore[arg-type]
        (ValueError, "and max_tokens is 4", lambda: moe.gather_routing(IDS, WEIGHTS, num_experts=4, max_tokens=4)),
    ]
    for kind, text, call in wrong:
        for _ in range(2):
            with pytest.raises(kind, match=text):
                call()


def halves_follow_each_other() -> None:
    """Each send half has one receive half, prepared or not."""
    for _ in range(3):
        sent = moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
        with pytest.raises(RuntimeError, match="has been sent and not received"):
            moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
        received = moe.dispatch_receive(sent)
        with pytest.raises(RuntimeError, match="nothing is in flight"):
            moe.dispatch_receive(sent)
        returned = moe.combine_send(received.x, received)
        with pytest.raises(RuntimeError, match="has been sent and not received"):
            moe.combine_send(received.x, received)
        moe.combine_receive(returned)
        with pytest.raises(RuntimeError, match="nothing is in flight"):
            moe.combine_receive(returned)
        with pytest.raises(ValueError, match="requires a gradient"):
            moe.dispatch_send(TOKENS.clone().requires_grad_(), IDS, WEIGHTS, **EXPERTS)
        with pytest.raises(ValueError, match="requires a gradient"):
            moe.combine_send(received.x.clone().requires_grad_(), received)
        with pytest.raises(ValueError, match="y must have a row for each"):
            moe.combine_send(received.x[:-1], received)
    sent = moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
    assert is_prepared_into(sent, RECEIVED) and is_prepared_into(sent, RECEIVED)


def is_prepared_into(sent: Any, result: Any) -> bool:
    """Whether the receive half stores to tensors that it is given; the exchange is sent again if need be."""
    if not sent.exchange.is_in_flight():
        sent = moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
    found: Any = moe.dispatch_receive(sent, result)
    return found is result and RECORDER.pointers()[0] == result.x.data_ptr()


def norm_gemms_are_launched_again() -> None:
    rows, weight, bias = given.matrix(16, 256), torch.ones(256), torch.zeros(512)
    cases: Sequence[Callable[[], object]] = (
        lambda: kernels.norm_gemm(rows, B, weight),
        lambda: kernels.norm_gemm(rows, B, weight, bias=bias, activation="silu"),
        lambda: kernels.norm_gemm(rows, B, activation="swiglu"),
        lambda: kernels.norm_gemm(A[:96], B, weight.bfloat16()),  # the norm is a kernel of its own
    )
    for dependent in (False, True):
        switch = WORLD.own(DependentLaunches)
        with mock.patch.object(switch, "on", dependent):
            for i, call in enumerate(cases):
                before = launches(call)
                assert is_prepared(call), (i, dependent)
                assert launches(call) == before, (i, dependent)
    other = bias.clone()
    assert is_prepared(lambda: kernels.norm_gemm(rows, B, weight, bias=other, activation="silu"))
    assert other.data_ptr() in [x[1] for x in RECORDER.last[-1] if x[0] == "at"]
    with pytest.raises(ValueError, match="norm_weight must be 256"):
        kernels.norm_gemm(rows, B, weight[:128])
    with pytest.raises(ValueError, match="requires a gradient"):
        kernels.norm_gemm(rows, B, weight.clone().requires_grad_())


def dependent_launches_are_prepared() -> None:
    with mock.patch.object(WORLD.own(DependentLaunches), "on", True):
        is_repeated("fused", lambda: kernels.gemm_all_reduce(given.FEW, B, given.TO_ALL, algorithm="fused"))
        is_repeated(
            "with a bias",
            lambda: kernels.gemm_all_reduce(given.FEW, B, given.TO_ALL, algorithm="fused", bias=given.BIAS),
        )
        is_repeated("projection", given.NEW_IN_STEPS["flash_decode_projection"])
