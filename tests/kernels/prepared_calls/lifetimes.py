"""Whose plans are, what they keep, and when they end."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from prepared_calls.calls import (
    CALLS,
    GATHERED,
    A,
    B,
    C,
    X,
)
from prepared_calls.world import RECORDER, WORLD, is_prepared, plans

from triton_dist import kernels
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.prepared import Prepared


def communicators_have_plans_of_their_own() -> None:
    call = CALLS["all_gather"]
    call()
    with Communicator() as other:
        assert not is_prepared(lambda: kernels.all_gather(GATHERED, X, group=other))
        slots = RECORDER.pointers()[2]
        assert is_prepared(lambda: kernels.all_gather(GATHERED, X, group=other))
        assert RECORDER.pointers()[2] == slots
        call()
        assert RECORDER.pointers()[2] != slots, "its own workspace"
        prepared = other.own(Prepared)
        assert prepared._plans
    assert not prepared._plans, "they end with the communicator"


def a_second_thread_finds_them() -> None:
    call = CALLS["all_gather"]
    call()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(is_prepared(call)))
    thread.start()
    thread.join()
    assert found == [True]


def plans_keep_no_tensors_of_the_caller() -> None:
    mine = torch.zeros(1024, dtype=torch.bfloat16)
    for _ in range(2):
        kernels.all_reduce(mine)
    out = WORLD.empty(C.shape, torch.bfloat16)
    matrices = A.clone(), B.clone()
    for algorithm, rows in (("ring", 512), ("fused", 16)):
        for _ in range(2):
            kernels.gemm_all_reduce(matrices[0][:rows], matrices[1], out[:rows], algorithm=algorithm)
    bias, residual = torch.zeros(512, dtype=torch.bfloat16), torch.zeros(512, 512)
    for algorithm in ("ring", "bulk_synchronous"):
        for _ in range(2):
            kernels.gemm_all_reduce(*matrices, out, algorithm=algorithm, bias=bias, residual=residual)
            kernels.all_gather_gemm(*matrices, algorithm="bulk_synchronous", bias=bias)
    gone = [weakref.ref(tensor) for tensor in (mine, out, bias, residual, *matrices)]
    dropped = len(WORLD.registry.all_dropped())
    del mine, out, matrices, bias, residual
    gc.collect()
    assert [tensor() for tensor in gone] == [None] * 6
    assert len(WORLD.registry.all_dropped()) == dropped + 1, "nor their memory"


def plans_are_bounded() -> None:
    from triton_dist.kernels import prepared

    prepared._PLANS = len(plans()) + 2
    for n in range(8, 40, 8):
        kernels.all_reduce(X[:n])
    assert len(plans()) <= prepared._PLANS
    assert is_prepared(lambda: kernels.all_reduce(X[:32]))


def plans_end_with_the_world() -> None:
    kept = communicator_of().own(Prepared)
    assert kept._plans
    WORLD.finalize()
    assert not kept._plans
    with pytest.raises(RuntimeError, match="there is no world"):
        kernels.all_reduce(X)
