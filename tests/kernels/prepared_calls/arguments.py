"""A prepared call launches what an ordinary one does, in fewer calls of Python."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import fake_gpu
import pytest
import torch
from prepared_calls.calls import (
    CALLS,
    FEW,
    GATHERED,
    IN_STEPS,
    NEW_IN_STEPS,
    NEW_RESULTS,
    OPERATORS,
    REPEATS,
    TO_ALL,
    WIDE,
    A,
    B,
    C,
    X,
    Y,
)
from prepared_calls.world import (
    DRIVER,
    RECORDER,
    WORLD,
    calls,
    columns_of_scatter,
    forget_plans,
    is_prepared,
    plans,
    symmetric,
)

from triton_dist import kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.new_tensors import NewTensors


def second_calls_are_prepared() -> None:
    _second_calls_are_prepared((CALLS | NEW_RESULTS).keys() - REPEATS)


def calls_of_other_dtypes_and_layouts_are_prepared() -> None:
    _second_calls_are_prepared((CALLS | NEW_RESULTS).keys() & REPEATS)
    _the_driver_gets_the_same_arguments(CALLS.keys() & REPEATS)
    _new_results_are_those_that_are_returned(NEW_RESULTS.keys() & REPEATS)


def _second_calls_are_prepared(names: Collection[str]) -> None:
    for name in sorted(names):
        call = (CALLS | NEW_RESULTS)[name]
        call()
        assert is_prepared(call), name


def calls_in_steps_are_prepared() -> None:
    """As many launches with the same arguments, none through Triton's binder, and nothing is checked again."""
    for name, call in IN_STEPS.items():
        call()
        forget_plans()
        RECORDER.all.clear()
        fake_gpu.QUEUED.clear()
        call()
        ordinary, beside = [*RECORDER.all], [*fake_gpu.QUEUED]
        assert ordinary and plans(), name
        RECORDER.all.clear()
        fake_gpu.QUEUED.clear()
        found = calls(call)
        assert len(RECORDER.all) == len(ordinary) == found.repeated, name
        assert RECORDER.all == ordinary or call.args[2] is None, name  # type: ignore[attr-defined]
        assert beside == fake_gpu.QUEUED, f"{name}: streams get the same beside launches"
        assert not found["JITFunction.run"] and not found["check_operands"] and not found["choose"], name


def results_in_steps_are_computed() -> None:
    """By cuBLAS, which is the CPU here, from what the call is given, to where it says."""
    a, b = torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16()
    for _ in range(3):
        kernels.gemm_all_scatter(A, B, WIDE, algorithm="bulk_synchronous")
    kernels.gemm_all_scatter(a, b, WIDE, algorithm="bulk_synchronous")
    assert torch.equal(columns_of_scatter(512, 512), a @ b)
    gathered: Any = kernels.all_gather_gemm(a, b, algorithm="bulk_synchronous")
    again: Any = kernels.all_gather_gemm(a, b, algorithm="bulk_synchronous")
    assert gathered.data_ptr() != again.data_ptr() and torch.equal(gathered, again)


def calls_of_python_are_counted() -> None:
    """The bound is exact: who adds a call to the way of a prepared call says so here."""
    for name, bound in {
        "all_reduce in place": 1,
        "all_reduce, out=": 1,
        "all_gather": 1,
        "gemm_all_reduce, fused": 1,
        "gemm_all_reduce, fused, residual": 1,
        "gemm_all_reduce, ring, scale": 1,
        "gemm_all_reduce, ring, blocks": 1,
        "all_gather_gemm, copies, blocks": 1,
        "dispatch": 3,
        "combine": 2,
        "gather_routing": 3,
        "grouped_gemm_combine": 2,
        "flash_decode": 1,
        "flash_decode, pages, fp8": 1,
        "dispatch in halves": 31,
        "combine in halves": 28,
        "all_gather, copy_engine": 1,
        "all_reduce_norm, one_shot": 1,
        "all_reduce_norm, unfused": 1,
        "flash_decode_projection": 1,
        "gemm_all_reduce, 0 SMs left": 2,
        "gemm_all_reduce, 1 SMs left": 1,
        "gemm_all_scatter, producer_consumer": 1,
        "functional.all_reduce": 1,
        "functional.norm_gemm": 1,
    }.items():
        call = (CALLS | IN_STEPS | NEW_RESULTS | NEW_IN_STEPS | OPERATORS)[name]
        call()
        call()  # descriptors of the operands are encoded
        # A call whose new tensor lies where none lay before asks whether it is symmetric.
        found = min((calls(call) for _ in range(12)), key=lambda found: sum(found.values()))
        assert sum(found.values()) == bound, f"{name}: {sum(found.values())} calls: {dict(found)}"


def the_driver_gets_the_same_arguments() -> None:
    """Of a prepared call as of an ordinary one, and the pointers are those of the call."""
    _the_driver_gets_the_same_arguments(CALLS.keys() - REPEATS)
    kernels.all_reduce(X, out=Y)
    other = symmetric(1024)
    assert is_prepared(lambda: kernels.all_reduce(other, out=Y))
    assert RECORDER.pointers()[:2] == [Y.data_ptr(), other.data_ptr()]


def _the_driver_gets_the_same_arguments(names: Collection[str]) -> None:
    for name in sorted(names):
        if name.endswith("new"):
            continue
        call = CALLS[name]
        forget_plans()
        fake_gpu.QUEUED.clear()
        call()
        ordinary, beside = RECORDER.last, [*fake_gpu.QUEUED]
        fake_gpu.QUEUED.clear()
        assert is_prepared(call)
        assert RECORDER.last == ordinary, name
        assert beside == fake_gpu.QUEUED, name


def new_results_are_those_that_are_returned() -> None:
    _new_results_are_those_that_are_returned(NEW_RESULTS.keys() - REPEATS)


def _new_results_are_those_that_are_returned(names: Collection[str]) -> None:
    """All arguments but new tensors are those of an ordinary call; of these, a call keeps some to itself."""
    new_empty, made = torch.Tensor.new_empty, []
    make = NewTensors.tensors

    def kept(*arguments: Any, **options: Any) -> torch.Tensor:
        made.append(new_empty(*arguments, **options))
        return made[-1]

    def kept_too(new: NewTensors) -> list[torch.Tensor]:
        found = make(new)
        made.extend(found)
        return found

    def launched(call: Callable[[], Any]) -> list[Any]:
        made.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "new_empty", kept)
            patch.setattr(NewTensors, "tensors", kept_too)
            result = call()
        tensors = [tensor.data_ptr() for tensor in result if isinstance(tensor, torch.Tensor)]
        if isinstance(result, torch.Tensor):
            tensors = [result.data_ptr()]
        *how, arguments = RECORDER.last
        found = ["result" if isinstance(x, tuple) and x[:1] == ("at",) and x[1] in tensors else x for x in arguments]
        assert found.count("result") >= len(tensors)
        places = [("at", tensor.data_ptr()) for tensor in made]
        return [*how, ["new" if x in places else x for x in found]]

    for name in sorted(names):
        forget_plans()
        ordinary = launched(NEW_RESULTS[name])
        assert plans(), name
        assert launched(NEW_RESULTS[name]) == ordinary, name


def matrices_may_lie_elsewhere() -> None:
    """Where A and B lie is no part of a GEMM's plan; where the result lies is."""
    for algorithm, a, out in (("fused", FEW, TO_ALL), ("ring", A, C)):
        call = partial(kernels.gemm_all_reduce, algorithm=algorithm)
        call(a, B, out)
        others = a.clone(), B.clone()
        assert is_prepared(partial(call, *others, out))
        found = RECORDER.last
        weight = torch.nn.Parameter(others[1])
        with torch.no_grad():
            assert is_prepared(partial(call, others[0], weight, out)) and RECORDER.last == found, "a model's weight"
        forget_plans()
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


def the_current_stream_is_used() -> None:
    call = CALLS["all_gather"]
    call()
    fake_gpu.STREAM[0] = 9
    assert is_prepared(call) and RECORDER.stream == 9
    fake_gpu.STREAM[0] = 7
    assert is_prepared(call) and RECORDER.stream == 7


def kept_tensors_are_not_asked_about() -> None:
    """Triton asks the driver about each tensor of a launch. Of a prepared one these are the call's own."""
    for name, own in (
        ("all_reduce, out=", 2),
        ("all_gather", 2),
        ("all_gather, push", 2),
        ("all_gather, copy_engine", 0),
    ):
        call = (CALLS | NEW_IN_STEPS)[name]
        forget_plans()
        before = DRIVER.fake_pointer_queries()
        call()
        ordinary = DRIVER.fake_pointer_queries() - before
        call()
        assert DRIVER.fake_pointer_queries() - before - ordinary == own < ordinary, name


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
    assert any(kernel.launch_line().endswith(f"{Path(__file__).name}:{here}") for kernel in launched)
