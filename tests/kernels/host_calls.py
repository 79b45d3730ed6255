"""Checks of prepared calls on a GPU that is not there (``fake_gpu.py``): ``host_calls.py FOLDER``.

Prints for each check its name and ``ok``, or its traceback, as JSON.
"""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fake_gpu
import pytest
import torch
import triton
from triton import knobs

import triton_dist
from triton_dist import kernels
from triton_dist.compiler import transport
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.recorder import Tracing

DRIVER = fake_gpu.load_driver(Path(sys.argv[1]))
fake_gpu.use_torch_without_a_gpu()
fake_gpu.use_a_driver_s_streams()
WORLD = fake_gpu.begin_world(2)
RECORDER = fake_gpu.Recorder()


def symmetric(n: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    tensor: torch.Tensor = WORLD.empty((n,), dtype)
    return tensor.zero_()


PACKAGES = tuple(f"{Path(str(package.__file__)).parent}/" for package in (triton, triton_dist))


def calls(function: Callable[[], object]) -> Counter[str]:
    """How often ``function`` calls which functions of this package and of Triton."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, callee: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            found[frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name] += 1

    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def is_prepared(function: Callable[[], object]) -> bool:
    """Whether a call launches once, without Triton's binder."""
    before = DRIVER.fake_launches()
    found = calls(function)
    assert DRIVER.fake_launches() == before + 1, "a call is one launch"
    return found["JITFunction.run"] == 0 and found["PreparedLaunch.__call__"] == 1


def plans(comm: Any = None) -> dict[Any, Any]:
    return communicator_of(comm).own(Prepared)._plans


# ---- the checks


X, Y = symmetric(1024), symmetric(1024)
LARGE, OUT = symmetric(1 << 20), symmetric(1 << 20)
GATHERED, GATHERED_LARGE = symmetric(2048), symmetric(1 << 21)
PLAIN = torch.zeros(1024, dtype=torch.bfloat16)


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


A, B, BT = matrix(512, 256), matrix(256, 512), matrix(512, 256).t()
A8, B8 = A.to(torch.float8_e4m3fn), B.t().contiguous().to(torch.float8_e4m3fn).t()
FEW, FEW_OUT, OWN = matrix(16, 256), matrix(8, 512), matrix(256, 512)
BIAS, RESIDUAL = torch.zeros(512), matrix(16, 512)
OF_ALL = matrix(1024, 512)
TO_ALL, C, WIDE = (WORLD.empty(shape, torch.bfloat16) for shape in ((16, 512), (512, 512), (512, 1024)))
COMPLEX = torch.zeros(64, dtype=torch.complex64), torch.zeros(128, dtype=torch.complex64)

CALLS: dict[str, Callable[[], object]] = {
    "all_reduce in place": lambda: kernels.all_reduce(X),
    "all_reduce, out=": lambda: kernels.all_reduce(X, out=Y),
    "all_reduce, two_shot": lambda: kernels.all_reduce(X, out=Y, algorithm="two_shot"),
    "all_reduce, direct": lambda: kernels.all_reduce(LARGE, out=OUT, algorithm="direct"),
    "all_reduce, push": lambda: kernels.all_reduce(LARGE, out=OUT, algorithm="push"),
    "all_gather": lambda: kernels.all_gather(GATHERED, X),
    "all_gather, push": lambda: kernels.all_gather(GATHERED_LARGE, LARGE, algorithm="push"),
    "reduce_scatter": lambda: kernels.reduce_scatter(X, GATHERED),
    "reduce_scatter, push": lambda: kernels.reduce_scatter(LARGE, GATHERED_LARGE, algorithm="push"),
    "all_to_all": lambda: kernels.all_to_all(Y, X),
    "all_to_all, push": lambda: kernels.all_to_all(OUT, LARGE, algorithm="push"),
    "broadcast": lambda: kernels.broadcast(X, 1),
    "broadcast, push": lambda: kernels.broadcast(LARGE, 1, algorithm="push"),
    "gemm_all_reduce, fused": lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL, algorithm="fused"),
    "gemm_all_reduce, fused, by columns": lambda: kernels.gemm_all_reduce(FEW, BT, TO_ALL, algorithm="fused"),
    "gemm_all_reduce, fused, without TMA": lambda: kernels.gemm_all_reduce(FEW[:3], B, TO_ALL[:3], algorithm="fused"),
    "gemm_reduce_scatter, fused": lambda: kernels.gemm_reduce_scatter(FEW, B, FEW_OUT, algorithm="fused"),
    "gemm_all_reduce, ring": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="ring"),
    "gemm_all_reduce, ring, fp8": lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="ring"),
    "gemm_reduce_scatter, ring": lambda: kernels.gemm_reduce_scatter(A, B, OWN, algorithm="ring"),
    "gemm_reduce_scatter, ring, new": lambda: kernels.gemm_reduce_scatter(A, B, algorithm="ring"),
    "all_gather_gemm, copies": lambda: kernels.all_gather_gemm(A, B, OF_ALL, algorithm="copy_engine"),
    "gemm_all_reduce, ring, ragged": lambda: kernels.gemm_all_reduce(A[:333], B, C[:333], algorithm="ring"),
    "gemm_reduce_scatter, ring, ragged": lambda: kernels.gemm_reduce_scatter(A[:334], B, OWN[:167], algorithm="ring"),
    "all_gather_gemm, copies, ragged": lambda: kernels.all_gather_gemm(
        A[:200], B, OF_ALL[:400], algorithm="copy_engine"
    ),
    "all_gather_gemm, copies, new": lambda: kernels.all_gather_gemm(A, BT, algorithm="copy_engine"),
    "gemm_all_scatter, warps": lambda: kernels.gemm_all_scatter(A, B, WIDE, algorithm="warp_specialized"),
    "gemm_all_reduce, fused, silu": lambda: kernels.gemm_all_reduce(
        FEW, B, TO_ALL, algorithm="fused", activation="silu"
    ),
    "gemm_all_reduce, ring, gelu": lambda: kernels.gemm_all_reduce(A, B, C, algorithm="ring", activation="gelu"),
    "gemm_all_scatter, swiglu": lambda: kernels.gemm_all_scatter(
        A, B, C, algorithm="warp_specialized", activation="swiglu"
    ),
    "gemm_all_scatter, programs": lambda: kernels.gemm_all_scatter(A, B, WIDE, algorithm="fused_producer_consumer"),
    "gemm_all_reduce, fused, residual": lambda: kernels.gemm_all_reduce(
        FEW, B, TO_ALL, algorithm="fused", bias=BIAS, residual=RESIDUAL
    ),
}

IN_STEPS: dict[str, Callable[[], object]] = {
    f"{function.__name__}, {margin} SMs left": partial(
        function, A, B, out, algorithm="bulk_synchronous", sm_margin=margin, activation=activation
    )
    for margin, activation in ((0, None), (1, None), (1, "silu"))  # by cuBLAS, and by our kernel
    for function, out in (
        (kernels.all_gather_gemm, OF_ALL),
        (kernels.all_gather_gemm, None),
        (kernels.gemm_reduce_scatter, OWN),
        (kernels.gemm_all_reduce, C),
        (kernels.gemm_all_scatter, WIDE),
    )
}
"""Calls of several launches and functions of PyTorch."""

TOKENS, IDS, WEIGHTS = matrix(8, 64), torch.zeros(8, 2, dtype=torch.int64), torch.ones(8, 2)
TOKENS8, SCALES = TOKENS.to(torch.float8_e4m3fn), torch.ones(8, 4)
EXPERTS: dict[str, Any] = {"num_experts": 4, "max_tokens": 8}
RECEIVED = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS)
IN_ROUNDS = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24)
ROUTED = moe.gather_routing(IDS, WEIGHTS, **EXPERTS)
SLICE, SLICE8 = torch.zeros(4, 64, 32).bfloat16(), torch.zeros(4, 64, 32).to(torch.float8_e4m3fn)
OWN_EXPERTS = SLICE[:2]  # of 2 PEs
OF_SLICES: dict[str, Any] = {"a_scales": torch.ones(8, 1), "b_scales": torch.ones(4, 32)}
OF_ROWS = {"out": torch.zeros(ROUTED.rows, 32).bfloat16()}
ROWS = torch.zeros(ROUTED.rows, 64).bfloat16()

NEW_RESULTS: dict[str, Callable[[], object]] = {
    "dispatch": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS),
    "dispatch, fp8": lambda: moe.dispatch(TOKENS8, IDS, WEIGHTS, scales=SCALES, **EXPERTS),
    "dispatch, rounds": lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, num_sms=24),
    "combine": lambda: moe.combine(RECEIVED.x, RECEIVED),
    "combine, rounds": lambda: moe.combine(IN_ROUNDS.x, IN_ROUNDS),
    "all_gather_grouped_gemm": lambda: moe.all_gather_grouped_gemm(TOKENS, SLICE, ROUTED),
    "all_gather_grouped_gemm, out=": lambda: moe.all_gather_grouped_gemm(TOKENS, SLICE, ROUTED, **OF_ROWS),
    "all_gather_grouped_gemm, fp8": lambda: moe.all_gather_grouped_gemm(TOKENS8, SLICE8, ROUTED, **OF_SLICES),
    "grouped_gemm_reduce_scatter": lambda: moe.grouped_gemm_reduce_scatter(ROWS, SLICE, ROUTED),
    "dispatch_grouped_gemm": lambda: moe.dispatch_grouped_gemm(TOKENS, OWN_EXPERTS, ROUTED, swiglu=True),
    "grouped_gemm_combine": lambda: moe.grouped_gemm_combine(ROWS, OWN_EXPERTS, ROUTED),
}
"""Calls whose results are new tensors each time."""


def second_calls_are_prepared() -> None:
    for name, call in (CALLS | NEW_RESULTS).items():
        call()
        assert is_prepared(call), name


def calls_in_steps_are_prepared() -> None:
    """As many launches with the same arguments, none through Triton's binder, and nothing is checked again."""
    for name, call in IN_STEPS.items():
        call()
        plans().clear()
        RECORDER.all.clear()
        call()
        ordinary = [*RECORDER.all]
        assert ordinary and plans(), name
        RECORDER.all.clear()
        found = calls(call)
        assert len(RECORDER.all) == len(ordinary) == found["PreparedLaunch.__call__"], name
        assert RECORDER.all == ordinary or call.args[2] is None, name  # type: ignore[attr-defined]
        assert not found["JITFunction.run"] and not found["check_operands"] and not found["choose"], name


def results_in_steps_are_computed() -> None:
    """By cuBLAS, which is the CPU here, from what the call is given, to where it says."""
    a, b = torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()
    for _ in range(3):
        kernels.gemm_all_scatter(A, B, WIDE, algorithm="bulk_synchronous")
    kernels.gemm_all_scatter(a, b, WIDE, algorithm="bulk_synchronous")
    assert torch.equal(WIDE[:, :512], a @ b)
    gathered: Any = kernels.all_gather_gemm(a, b, algorithm="bulk_synchronous")
    again: Any = kernels.all_gather_gemm(a, b, algorithm="bulk_synchronous")
    assert gathered.data_ptr() != again.data_ptr() and torch.equal(gathered, again)


def calls_of_python_are_counted() -> None:
    """The bound is exact: who adds a call to the way of a prepared call says so here."""
    for name, bound in {
        "all_reduce in place": 29,
        "all_reduce, out=": 30,
        "all_gather": 29,
        "gemm_all_reduce, fused": 33,
        "gemm_all_reduce, fused, residual": 34,
        "dispatch": 32,
        "combine": 32,
    }.items():
        call = (CALLS | NEW_RESULTS)[name]
        call()
        call()  # descriptors of the operands are encoded
        found = calls(call)
        assert sum(found.values()) == bound, f"{name}: {sum(found.values())} calls: {dict(found)}"


def the_driver_gets_the_same_arguments() -> None:
    """Of a prepared call as of an ordinary one, and the pointers are those of the call."""
    for name, call in CALLS.items():
        if name.endswith("new"):
            continue
        plans().clear()
        fake_gpu.QUEUED.clear()
        call()
        ordinary, beside = RECORDER.last, [*fake_gpu.QUEUED]
        fake_gpu.QUEUED.clear()
        assert is_prepared(call)
        assert RECORDER.last == ordinary, name
        assert beside == fake_gpu.QUEUED, name
    kernels.all_reduce(X, out=Y)
    other = symmetric(1024)
    assert is_prepared(lambda: kernels.all_reduce(other, out=Y))
    assert RECORDER.pointers()[:2] == [Y.data_ptr(), other.data_ptr()]


def new_results_are_those_that_are_returned() -> None:
    """All arguments but the results are those of an ordinary call."""

    def launched(call: Callable[[], Any]) -> list[Any]:
        result = call()
        tensors = [tensor.data_ptr() for tensor in result if isinstance(tensor, torch.Tensor)]
        if isinstance(result, torch.Tensor):
            tensors = [result.data_ptr()]
        *how, arguments = RECORDER.last
        found = ["result" if isinstance(x, tuple) and x[:1] == ("at",) and x[1] in tensors else x for x in arguments]
        assert found.count("result") >= len(tensors)
        return [*how, found]

    for name, call in NEW_RESULTS.items():
        plans().clear()
        ordinary = launched(call)
        assert plans(), name
        assert launched(call) == ordinary, name


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


def matrices_may_lie_elsewhere() -> None:
    """Where A and B lie is no part of a GEMM's plan; where the result lies is."""
    for algorithm, a, out in (("fused", FEW, TO_ALL), ("ring", A, C)):
        call = partial(kernels.gemm_all_reduce, algorithm=algorithm)
        call(a, B, out)
        others = a.clone(), B.clone()
        assert is_prepared(partial(call, *others, out))
        found = RECORDER.last
        plans().clear()
        call(*others, out)
        assert RECORDER.last == found, algorithm
        elsewhere = partial(call, a, B, WORLD.empty(out.shape, torch.bfloat16))
        assert not is_prepared(elsewhere)
        assert is_prepared(elsewhere)


def new_results_are_new() -> None:
    for name in ("gemm_reduce_scatter, ring, new", "all_gather_gemm, copies, new"):
        ordinary: Any = CALLS[name]()
        assert is_prepared(CALLS[name]), name
        found: Any = CALLS[name]()
        assert (found.shape, found.dtype) == (ordinary.shape, ordinary.dtype)
        assert found.data_ptr() != ordinary.data_ptr()
        maps = [argument[1] for argument in RECORDER.last[-1] if isinstance(argument, tuple) and argument[0] == "map"]
        assert found.data_ptr() in maps and ordinary.data_ptr() not in maps, name


def scales_take_the_ordinary_path() -> None:
    CALLS["gemm_all_reduce, ring, fp8"]()
    one = torch.ones(1)
    for _ in range(2):
        assert not is_prepared(lambda: kernels.gemm_all_reduce(A8, B8, C, algorithm="ring", scale_a=one))


WITH_EPILOGUES: dict[str, tuple[Callable[..., object], int]] = {
    # By name: what takes an epilogue, and how many rows its residual has; 0: it takes none.
    "gemm_all_reduce, fused": (partial(kernels.gemm_all_reduce, FEW, B, TO_ALL, algorithm="fused"), 16),
    "gemm_all_reduce, fused, without TMA": (
        partial(kernels.gemm_all_reduce, FEW[:3], B, TO_ALL[:3], algorithm="fused"),
        3,
    ),
    "gemm_reduce_scatter, fused": (partial(kernels.gemm_reduce_scatter, FEW, B, FEW_OUT, algorithm="fused"), 8),
    "gemm_all_reduce, ring": (partial(kernels.gemm_all_reduce, A, B, C, algorithm="ring"), 512),
    "gemm_reduce_scatter, ring": (partial(kernels.gemm_reduce_scatter, A, B, OWN, algorithm="ring"), 256),
    "gemm_reduce_scatter, ring, new": (partial(kernels.gemm_reduce_scatter, A, B, algorithm="ring"), 256),
    "gemm_all_reduce, bulk": (partial(kernels.gemm_all_reduce, A, B, C, algorithm="bulk_synchronous"), 512),
    "gemm_reduce_scatter, bulk": (partial(kernels.gemm_reduce_scatter, A, B, OWN, algorithm="bulk_synchronous"), 256),
    "all_gather_gemm, copies": (partial(kernels.all_gather_gemm, A, B, OF_ALL, algorithm="copy_engine"), 0),
    "all_gather_gemm, bulk": (partial(kernels.all_gather_gemm, A, B, OF_ALL, algorithm="bulk_synchronous"), 0),
    "all_gather_gemm, bulk, new": (partial(kernels.all_gather_gemm, A, B, algorithm="bulk_synchronous"), 0),
    "gemm_all_scatter, warps": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="warp_specialized"), 0),
    "gemm_all_scatter, bulk": (partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="bulk_synchronous"), 0),
}


def epilogues(rows: int) -> list[dict[str, torch.Tensor]]:
    """New tensors each time."""
    found = [{"bias": torch.zeros(512)}, {"bias": torch.zeros(512).bfloat16()}]
    if rows:
        found += [{"residual": matrix(rows, 512)}, {"bias": torch.zeros(512), "residual": torch.zeros(rows, 512)}]
    return found


def calls_with_bias_and_residual_are_prepared() -> None:
    """As many launches as an ordinary call makes, with the same arguments but for the tensors of an epilogue, which are
    the call's own; none through Triton's binder, and nothing is checked again."""
    for name, (call, rows) in WITH_EPILOGUES.items():
        for first, second in zip(epilogues(rows), epilogues(rows), strict=True):
            call()
            before = len(plans())
            call(**first)
            assert len(plans()) == before + 1, f"{name}: no plan of a call without an epilogue is taken for one"
            RECORDER.all.clear()
            found = calls(partial(call, **second))
            again = [*RECORDER.all]
            assert not found["JITFunction.run"] and not found["check_operands"] and not found["check_epilogue"], name
            assert len(again) == found["PreparedLaunch.__call__"], name
            plans().clear()
            RECORDER.all.clear()
            call(**second)
            assert again == RECORDER.all or name.endswith("new"), name
            if rows or not name.endswith("bulk"):  # there cuBLAS takes the bias
                given = [x for one in again for part in one[-1] if isinstance(part, tuple) for x in part]
                assert {("at", tensor.data_ptr()) for tensor in second.values()} <= {*given} or "bulk" in name, name


def a_bias_of_cublas_is_the_call_s() -> None:
    a, b = torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()
    plans().clear()
    for seed in range(3):
        bias = torch.full((512,), float(seed)).bfloat16()
        found = calls(partial(kernels.gemm_all_scatter, a, b, WIDE, algorithm="bulk_synchronous", bias=bias))
        assert (seed == 0) == bool(found["check_operands"])
        assert torch.equal(WIDE[:, :512], torch.addmm(bias, a, b))


def the_result_may_be_the_residual() -> None:
    call = partial(kernels.gemm_all_reduce, FEW, B, TO_ALL, algorithm="fused", residual=TO_ALL)
    call()
    assert is_prepared(call)
    assert not is_prepared(partial(call, residual=TO_ALL.clone())), "symmetric or not is a part of the signature"


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


def errors_are_those_of_ordinary_calls() -> None:
    kernels.all_reduce(X, out=Y)
    kernels.all_gather(GATHERED_LARGE, LARGE, algorithm="push")
    kernels.all_gather(COMPLEX[1], COMPLEX[0])
    CALLS["gemm_all_reduce, fused"]()
    freed = symmetric(1 << 21)
    wrong: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "out has shape", lambda: kernels.all_reduce(X, out=Y[:512])),
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
        (ValueError, "out must be symmetric", lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL.clone())),
        (ValueError, "resolve_neg", lambda: kernels.all_reduce(torch._neg_view(X), out=Y)),
    ]
    for kind, text, call in wrong:
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


def the_current_stream_is_used() -> None:
    call = CALLS["all_gather"]
    call()
    fake_gpu.STREAM[0] = 9
    assert is_prepared(call) and RECORDER.stream == 9
    fake_gpu.STREAM[0] = 7
    assert is_prepared(call) and RECORDER.stream == 7


def every_call_is_compared() -> None:
    call = CALLS["all_gather"]
    call()
    comm, compared = communicator_of(), len(WORLD.compared)
    made = comm._made
    call()
    assert comm._made == made + 1 and len(WORLD.compared) == compared
    comm._equal.clear()
    call()
    assert len(WORLD.compared) == compared + 1, "forgotten ones anew"


def the_users_line_is_known() -> None:
    from triton_dist.gpu.waiting_kernels import WaitingKernels
    from triton_dist.process_state import of_process

    for _ in range(3):
        kernels.all_gather(GATHERED, X)  # HERE
    here = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# HERE"))
    launched = of_process(WaitingKernels)._kernels
    assert any(kernel.launch_line().endswith(f"host_calls.py:{here}") for kernel in launched)


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
    dropped = len(WORLD.ledger.all_dropped())
    del mine, out, matrices, bias, residual
    gc.collect()
    assert [tensor() for tensor in gone] == [None] * 6
    assert len(WORLD.ledger.all_dropped()) == dropped + 1, "nor their memory"


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


CHECKS = (
    second_calls_are_prepared,
    calls_in_steps_are_prepared,
    results_in_steps_are_computed,
    calls_of_python_are_counted,
    the_driver_gets_the_same_arguments,
    new_results_are_those_that_are_returned,
    experts_errors_are_those_of_ordinary_calls,
    matrices_may_lie_elsewhere,
    new_results_are_new,
    scales_take_the_ordinary_path,
    calls_with_bias_and_residual_are_prepared,
    a_bias_of_cublas_is_the_call_s,
    the_result_may_be_the_residual,
    other_signatures_are_not_mixed_up,
    errors_are_those_of_ordinary_calls,
    unusual_calls_take_the_ordinary_path,
    communicators_have_plans_of_their_own,
    a_second_thread_finds_them,
    the_current_stream_is_used,
    every_call_is_compared,
    the_users_line_is_known,
    plans_keep_no_tensors_of_the_caller,
    plans_are_bounded,
    plans_end_with_the_world,
)


if __name__ == "__main__":
    fake_gpu.run_checks(CHECKS)
