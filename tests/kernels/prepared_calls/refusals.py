"""Calls that take the ordinary path: of other signatures, with mistakes, or of which more is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from prepared_calls.calls import (
    CALLS,
    COMPLEX,
    EXPERTS,
    FEW,
    GATHERED,
    GATHERED_LARGE,
    IDS,
    LARGE,
    NEW_RESULTS,
    PLAIN,
    TO_ALL,
    TOKENS,
    WEIGHTS,
    WIDE_TOKENS,
    A,
    B,
    C,
    X,
    Y,
    matrix,
)
from prepared_calls.world import WORLD, is_prepared, symmetric
from triton import knobs

from triton_dist import kernels
from triton_dist.compiler import transport
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.recorder import Tracing


def experts_errors_are_those_of_ordinary_calls() -> None:
    received = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS)
    moe.combine(received.x, received)
    wants = TOKENS.clone().requires_grad_()
    sent = moe.dispatch_send(TOKENS, IDS, WEIGHTS, **EXPERTS)
    returned = moe.combine_send(received.x, received)
    for _ in range(2):
        with pytest.raises(ValueError, match="requires a gradient"):
            moe.dispatch(wants, IDS, WEIGHTS, **EXPERTS)
        with pytest.raises(ValueError, match="requires a gradient"):
            moe.combine(received.x.clone().requires_grad_(), received)
        with pytest.raises(RuntimeError, match="has been sent and not received"):
            moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS)
        with pytest.raises(RuntimeError, match="has been sent and not received"):
            moe.combine(received.x, received)
        with pytest.raises(ValueError, match="x has 8 tokens, and max_tokens is 4"):
            moe.dispatch(TOKENS, IDS, WEIGHTS, num_experts=4, max_tokens=4)
        with pytest.raises(ValueError, match="y must have a row for each"):
            moe.combine(received.x[:-1], received)
    moe.dispatch_receive(sent)
    moe.combine_receive(returned)
    with torch.no_grad():
        moe.dispatch(wants, IDS, WEIGHTS, **EXPERTS)
    assert is_prepared(NEW_RESULTS["dispatch"]) and is_prepared(lambda: moe.combine(received.x, received))
    other = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, capacity=20)
    assert other.x.shape[0] == 20 and received.x.shape[0] == 32, "another capacity is another signature"


def what_decides_on_kernels_is_compared() -> None:
    """Matrices that TMA can address and others have other kernels, which would wait for each other for ever; where each
    PE chooses for itself, they may differ."""

    def compared(a: torch.Tensor, b: torch.Tensor, algorithm: str) -> str:
        communicator_of()._equal.clear()
        before = len(WORLD.compared)
        kernels.gemm_all_reduce(a, b, C, algorithm=algorithm)
        return next(text for text in WORLD.compared[before:] if text.startswith("gemm_all_reduce"))

    aligned, other = matrix(512, 256), matrix(513, 256).view(-1)[1 : 1 + 512 * 256].view(512, 256)
    for a, text in ((aligned, ", 0, for TMA, out from"), (other, ", 0, not for TMA, out from")):
        assert text in compared(a, B, "auto")
        assert ", bulk_synchronous, 0, out from" in compared(a, B, "bulk_synchronous")
    for algorithm, text in (
        ("auto", ", num_sms=24, Plan(lanes=2, batch=8, senders=0, headers=32))"),
        ("portable", ", num_sms=24, None)"),
    ):
        communicator_of()._equal.clear()
        moe.dispatch(WIDE_TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24, algorithm=algorithm)
        assert WORLD.compared[-1].startswith("dispatch(") and WORLD.compared[-1].endswith(text)
    fp8 = aligned.to(torch.float8_e4m3fn), B.to(torch.float8_e5m2)
    assert ", 0, result of torch.bfloat16, out from" in compared(*fp8, "bulk_synchronous")


def other_signatures_are_not_mixed_up() -> None:
    kernels.all_reduce(X, out=Y)
    differing: dict[str, Callable[[], object]] = {
        "another size": lambda: kernels.all_reduce(X[:512], out=Y[:512]),
        "another shape": lambda: kernels.all_reduce(X.view(32, 32), out=Y.view(32, 32)),
        "another dtype": lambda: kernels.all_reduce(X.view(torch.float16), out=Y.view(torch.float16)),
        "another alignment": lambda: kernels.all_reduce(X[2:514], out=Y[2:514]),
        "not symmetric": lambda: kernels.all_reduce(PLAIN, out=torch.zeros_like(PLAIN)),
        "another algorithm": lambda: kernels.all_reduce(X[:64], out=Y[:64], algorithm="two_shot"),
        "in place": lambda: kernels.all_reduce(Y[:128]),
        "an activation": lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL, algorithm="fused", activation="gelu_tanh"),
    }
    for name, call in differing.items():
        assert not is_prepared(call), name
        assert is_prepared(call), name


def wrong_calls() -> list[tuple[type[Exception], str, Callable[[], object]]]:
    """Each with the error that it ends in."""
    shared = symmetric(2048)
    return [
        (ValueError, "out has shape", lambda: kernels.all_reduce(X, out=Y[:512])),
        (ValueError, "out and tensor overlap", lambda: kernels.all_reduce(shared[:1024], out=shared[8:1032])),
        (ValueError, "op must be", lambda: kernels.all_reduce(X, "median", Y)),
        (ValueError, "op must be", lambda: kernels.all_reduce(X, [], Y)),  # type: ignore[arg-type]
        (ValueError, "algorithm must be", lambda: kernels.all_reduce(X, out=Y, algorithm="none")),
        (TypeError, "must be a torch.Tensor", lambda: kernels.all_reduce([1.0], out=Y)),  # type: ignore[arg-type]
        (ValueError, "must be contiguous", lambda: kernels.all_reduce(GATHERED[::2], out=Y)),
        (ValueError, "and this PE's device is", lambda: kernels.all_reduce(X.to("meta"), out=Y)),
        (ValueError, "requires a gradient", lambda: kernels.all_reduce(PLAIN.clone().requires_grad_(), out=Y)),
        (
            ValueError,
            "must be symmetric",
            lambda: kernels.all_gather(torch.zeros_like(GATHERED_LARGE), LARGE, algorithm="push"),
        ),
        (ValueError, "resolve_conj", lambda: kernels.all_gather(COMPLEX[1], COMPLEX[0].conj())),
        (ValueError, "resolve_neg", lambda: kernels.gemm_all_reduce(FEW, torch._neg_view(B), TO_ALL)),
        (ValueError, "cannot be multiplied", lambda: kernels.gemm_all_reduce(FEW, B[:128], TO_ALL)),
        (ValueError, "out must be contiguous", lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL[:8])),
        (ValueError, "out must be symmetric", lambda: kernels.gemm_all_reduce(A, B, C.clone())),
        (ValueError, "resolve_neg", lambda: kernels.all_reduce(torch._neg_view(X), out=Y)),
    ]


def errors_are_those_of_ordinary_calls() -> None:
    kernels.all_reduce(X, out=Y)
    kernels.all_gather(GATHERED_LARGE, LARGE, algorithm="push")
    kernels.all_gather(COMPLEX[1], COMPLEX[0])
    CALLS["gemm_all_reduce, fused"]()
    freed = symmetric(1 << 21)
    for kind, text, call in wrong_calls():
        for _ in range(2):
            with pytest.raises(kind, match=re.escape(text)):
                call()
    kernels.all_gather(freed, LARGE, algorithm="push")
    assert is_prepared(lambda: kernels.all_gather(freed, LARGE, algorithm="push"))
    WORLD.free(freed)
    with pytest.raises(ValueError, match="must be symmetric"):
        kernels.all_gather(freed, LARGE, algorithm="push")


def unusual_calls_take_the_ordinary_path() -> None:
    call = CALLS["all_gather"]
    call()
    assert is_prepared(call)
    seen: list[Any] = []
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        chain.add(seen.append)
        assert not is_prepared(call)
        chain.remove(seen.append)
        call()
        assert is_prepared(call)
    assert len(seen) == 2, "a hook on launches sees every launch"
    with transport.using("p2p"):
        assert not is_prepared(call)
    knobs.runtime.debug = True
    assert not is_prepared(call)
    knobs.runtime.debug = False
    call()
    assert is_prepared(call)
    tracing = WORLD.own(Tracing)
    tracing.session = object()
    assert communicator_of().own(Prepared).signature(("all_gather", "auto"), GATHERED, X) is None
    tracing.session = None
    assert is_prepared(call)
    symmetric_workspace(communicator_of(), "a new one", 16)
    assert not is_prepared(call), "the workspace may be another"
    assert is_prepared(call)
