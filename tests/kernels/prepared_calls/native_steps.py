"""Calls of several parts that C++ makes again: launches, copies and flags beside them, PyTorch, calls within calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls import calls as given
from prepared_calls.between_hosts import CALLS as BETWEEN_HOSTS
from prepared_calls.between_hosts import two_hosts
from prepared_calls.calls import (
    BIAS,
    CALLS,
    EXPERTS,
    IDS,
    IN_STEPS,
    NEW_IN_STEPS,
    OF_ALL,
    TOKENS,
    WEIGHTS,
    WIDE,
    A,
    B,
    C,
    matrix,
)
from prepared_calls.decode import plainly
from prepared_calls.native import errors_of_threads, leave_nothing
from prepared_calls.world import DRIVER, RECORDER, WORLD, Calls, calls, forget_plans, symmetric
from torch.utils._python_dispatch import TorchDispatchMode

from triton_dist import kernels, native_calls
from triton_dist.kernels import cuda, moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.gemm.operation import IN_SLICES
from triton_dist.kernels.native import NativeCalls
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.process_state import of_process

Call = Callable[[], Any]

EVERY: dict[str, Call] = {
    **{name: call for name, call in CALLS.items() if "copies" in name},
    **IN_STEPS,
    **{name: NEW_IN_STEPS[name] for name in NEW_IN_STEPS.keys() - given.REPEATS},
}

WITH_PYTHON = {
    **{name: "PyTorch's function" for name in IN_STEPS if name.endswith("0 SMs left")},
    "flash_decode_projection, 300 requests": "a GEMM of as many rows",
    "dispatch, rounds by TMA, no tokens": "where a tensor without elements lies is not known",
    **dict.fromkeys((name for name in NEW_IN_STEPS if "in halves" in name), "what is received is looked up by Python"),
}
"""Calls of which Python does a part, and why."""


class Keeping(TorchDispatchMode):
    """Keeps every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._kept.append(function(*args, **(kwargs or {})))
        return self._kept[-1]


def driven(call: Call) -> list[Any]:
    """What the driver gets, in its order. New tensors are told by which of them they are: all are kept until the call
    has ended, as another may else have the address of one that is gone."""
    fake_gpu.DONE.clear()
    with Keeping():
        call()
    plain = plainly()
    return [[*done[:-1], [*map(plain, done[-1])]] if isinstance(done, list) else done for done in fake_gpu.DONE]


def learnt(call: Call, times: int = 3) -> Call:
    for _ in range(times):
        call()
    return call


def launches_by_python(found: Calls) -> int:
    return found["PreparedLaunch.__call__"] + found["JITFunction.run"]


def calls_of_several_parts_are_native() -> None:
    """The driver gets the same from an ordinary call, one that Python repeats, and those that C++ does."""
    for name, call in EVERY.items():
        forget_plans()
        found = [driven(call) for _ in range(5)]
        assert found[0] and all(done == found[0] for done in found), name
        of_python = calls(call)
        assert name in WITH_PYTHON or not launches_by_python(of_python), (name, dict(of_python))
        assert name not in WITH_PYTHON or sum(of_python.values()) > 1, f"{name}: nothing is left to Python"
        if name in IN_STEPS:
            assert not launches_by_python(of_python), (name, dict(of_python))


def functions_are_given_the_call_s_tensors() -> None:
    a, b, other = torch.randn(512, 256).bfloat16(), torch.randn(256, 512).bfloat16(), torch.randn(512, 256).bfloat16()
    out = symmetric(512 * 1024).view(512, 1024)
    learnt(lambda: kernels.gemm_all_reduce(a, b, C, algorithm="bulk_synchronous"), 4)
    call = learnt(lambda: kernels.all_gather_gemm(a, b, algorithm="bulk_synchronous"), 4)
    for x in (a, other):
        gathered = call() if x is a else kernels.all_gather_gemm(x, b, algorithm="bulk_synchronous")
        again = kernels.all_gather_gemm(x, b, algorithm="bulk_synchronous")
        assert gathered.data_ptr() != again.data_ptr() and torch.equal(gathered, again)
    with mock.patch.object(torch, "mm", wraps=torch.mm) as multiply:
        kernels.gemm_all_reduce(other, b, C, algorithm="bulk_synchronous")
        assert multiply.call_args.args[0] is other and multiply.call_args.args[1] is b
        product = multiply.call_args.kwargs["out"]
    assert torch.equal(product, other @ b)
    assert RECORDER.pointers()[:2] == [C.data_ptr(), product.data_ptr()]
    learnt(lambda: kernels.gemm_all_scatter(a, b, out, algorithm="bulk_synchronous", sm_margin=1))
    done = driven(lambda: kernels.gemm_all_scatter(other, b, out, algorithm="bulk_synchronous", sm_margin=1))
    forget_plans()
    assert done == driven(lambda: kernels.gemm_all_scatter(other, b, out, algorithm="bulk_synchronous", sm_margin=1))


def operands_and_results_are_those_of_the_call() -> None:
    """Wherever they lie: other memory, and views of one tensor."""
    large = symmetric(4 * 512 * 1024).view(4, 512, 1024)
    pair = torch.zeros(2, 512, 256).bfloat16()
    for algorithm in ("copy_engine", "producer_consumer", "fused_sequential"):
        for a, out in ((A, WIDE), (pair[0], large[0]), (pair[1], large[1]), (A, large[3]), (pair[0], WIDE)):
            call = partial(kernels.gemm_all_scatter, a, B, out, algorithm=algorithm)
            learnt(call)
            done = driven(call)
            assert not launches_by_python(calls(call))
            forget_plans()
            assert driven(call) == done, algorithm
    for out in (OF_ALL, torch.zeros_like(OF_ALL)):
        call = partial(kernels.all_gather_gemm, pair[1], B, out, algorithm="copy_engine")
        learnt(call)
        done = driven(call)
        forget_plans()
        assert driven(call) == done


def copies_follow_results_and_allocations() -> None:
    others = [symmetric(given.GATHERED_LARGE.numel()) for _ in range(3)]
    repeats = [
        learnt(partial(kernels.all_gather, out, given.LARGE, algorithm="copy_engine"))
        for out in (given.GATHERED_LARGE, *others)
    ]
    for call, out in zip(repeats, (given.GATHERED_LARGE, *others), strict=True):
        assert not launches_by_python(calls(call))
        assert [done[2] for done in driven(call) if done[1] == "copy"] == [out.data_ptr()]
    WORLD.free(others.pop())
    with pytest.raises(ValueError, match="must be symmetric"):
        repeats.pop()()
    moved = symmetric(8).data_ptr()
    with mock.patch.object(WORLD, "peer", lambda tensor, pe: mock.Mock(data_ptr=lambda: moved + pe)):
        for call in repeats:
            assert launches_by_python(calls(call)), "memory was freed"
            assert [done[2] for done in driven(call) if done[1] == "copy"] == [moved + 1]


def errors_in_the_middle_are_those_of_python() -> None:
    """The same text, the same work before it, side streams joined, and the communicator is free again."""

    def failing(call: Call, prepare: Callable[[], object], restore: Callable[[], object]) -> tuple[str, list[Any]]:
        prepare()
        fake_gpu.DONE.clear()
        try:
            with pytest.raises(RuntimeError) as error:
                call()
        finally:
            restore()
        return str(error.value), [*fake_gpu.DONE]

    for name in ("gemm_all_scatter, producer_consumer", "all_gather, copy_engine", "gemm_all_reduce, 1 SMs left"):
        call = EVERY[name]
        launches = sum(isinstance(done, list) for done in driven(call))
        for before in range(launches):
            prepare = lambda n=before: (DRIVER.fake_launch_before(n), DRIVER.fake_fail_launches(700))  # noqa: E731
            said = []
            for times in (0, 1, 3):
                forget_plans()
                learnt(call, times)
                said.append(failing(call, prepare, lambda: DRIVER.fake_fail_launches(0)))
            assert said[0] == said[1] == said[2], (name, before)
            assert "an error of the fake driver" in said[0][0]
            assert not launches_by_python(calls(call)), f"{name}: the communicator is free"
    call = learnt(EVERY["gemm_all_reduce, 0 SMs left"])
    with (
        mock.patch.object(torch, "mm", side_effect=ArithmeticError("of PyTorch")),
        pytest.raises(ArithmeticError, match="of PyTorch"),
    ):
        call()
    assert not launches_by_python(calls(call))


def captured_calls_have_streams_of_their_own() -> None:
    """Side streams of captures are Python's; what is on the capturing stream alone is C++'s."""
    beside, alone = learnt(EVERY["gemm_all_scatter, producer_consumer"]), learnt(EVERY["gemm_all_reduce, 1 SMs left"])
    direct = driven(beside)
    fake_gpu.CAPTURING[0] = True
    try:
        for _ in range(3):
            assert launches_by_python(calls(beside))
        assert not launches_by_python(calls(alone))
    finally:
        fake_gpu.CAPTURING[0] = False
    assert driven(beside) == direct and not launches_by_python(calls(beside))


def workspace_may_be_replaced() -> None:
    call = learnt(EVERY["gemm_all_reduce, 1 SMs left"])
    symmetric_workspace(communicator_of(), "one more", 16)
    assert launches_by_python(calls(call)), "what the plan keeps may have been replaced"
    learnt(call)
    larger = matrix(2048, 256), symmetric(2048 * 512).view(2048, 512)
    kernels.gemm_all_reduce(larger[0], B, larger[1], algorithm="bulk_synchronous", sm_margin=1)
    done = driven(call)
    learnt(call)
    forget_plans()
    assert driven(call) == done


def every_part_is_compared() -> None:
    """A call, and those in it, as often as in Python; what the members have not compared is left to Python."""
    comm = communicator_of()
    for name, parts in (("gemm_all_reduce, 0 SMs left", 2), ("all_gather_gemm, 1 SMs left", 2), ("all_gather", 1)):
        call = (EVERY | CALLS)[name]
        forget_plans()
        learnt(call, 1)
        said = []
        for _ in range(4):
            made = comm._made
            call()
            assert comm._made == made + parts, name
            said.append([comm._call_made(number) for number in range(made + 1, comm._made + 1)])
        assert said[0] == said[1] == said[2] == said[3], name
        for forgotten in [*comm._equal]:
            if forgotten == comm._last[comm._made % len(comm._last)]:
                del comm._equal[forgotten]
        compared = len(WORLD.compared)
        assert sum(calls(call).values()) > 5 and len(WORLD.compared) == compared + 1, name


def communicators_have_streams_and_memory_of_their_own() -> None:
    driver: Any = cuda.driver()
    with mock.patch.object(driver, "cuStreamCreate", side_effect=[(0, 71), (0, 72)]):
        with Communicator() as first, Communicator() as second:
            repeats = [
                partial(kernels.gemm_all_scatter, A, B, WIDE, algorithm="producer_consumer", group=group)
                for group in (first, second)
            ]
            ordinary = [driven(call) for call in repeats]
            native = of_process(NativeCalls)
            before = len(native)
            for call in repeats:
                learnt(call)
            assert len(native) == before + 2
            for call, expected, side in zip(repeats, ordinary, (71, 72), strict=True):
                done = driven(call)
                assert done == expected and not launches_by_python(calls(call))
                assert {how[3] for how in done if isinstance(how, list)} == {7, side}
        assert len(native) == before
    with pytest.raises(RuntimeError, match="was closed"):
        repeats[0]()


def threads_make_calls_of_several_parts() -> None:
    with Communicator() as first, Communicator() as second:
        outs = [symmetric(64 * 64).view(64, 64) for _ in range(2)]
        a, b = matrix(64, 32), matrix(32, 64)  # a CPU takes 100 ms for large ones
        repeats = [
            learnt(partial(kernels.gemm_all_reduce, a, b, out, algorithm="bulk_synchronous", group=group))
            for out, group in zip(outs, (first, second), strict=True)
        ]
        made = first._made, second._made
        assert not errors_of_threads(repeats, 100)
        assert (first._made, second._made) == (made[0] + 200, made[1] + 200)


def what_cannot_be_mapped_stays_with_python() -> None:
    """Memory that is made in each call, and launches that cannot be packed."""
    wide = torch.randn(512, 512).bfloat16()
    parts = [wide[:, :256], wide[:, 256:]]  # which are copied before they are gathered
    for part in (*parts, *parts):
        call = partial(kernels.all_gather_gemm, part, B, OF_ALL, algorithm="bulk_synchronous")
        found = calls(learnt(call, 4))
        assert found["PreparedLaunch.__call__"] == 1 and not found["JITFunction.run"], "the gather's"
        done = driven(call)
        forget_plans()
        assert len(driven(call)) == len(done)
    call = EVERY["gemm_all_scatter, fused_sequential"]
    with mock.patch.object(native_calls, "new_launch", mock.Mock(side_effect=ValueError("too many"))):
        forget_plans()
        learnt(call)
        assert launches_by_python(calls(call)) == 3
    forget_plans()
    assert not launches_by_python(calls(learnt(call)))


def wrong_actions_are_refused() -> None:
    table, owner = of_process(NativeCalls)._table, communicator_of().own(Prepared)._owner
    for action, kind, text in (
        (("launch",), TypeError, "6 arguments"),
        (("launch", False, 1, 2, (), None), TypeError, "no Launch"),
        (("put", False, bytes(56), ()), ValueError, "streams of which nothing is known"),
        (("put", False, bytes(55), ()), ValueError, "another size"),
        (("put", False, bytes(56), (None,) * 3), ValueError, "more than two"),
        (("fork",), ValueError, "streams of which nothing is known"),
        (("call", print, ((),)), TypeError, "argument"),
        (("compare", None), TypeError, "tuple"),
        (("sleep",), ValueError, "no such action"),
        ((), ValueError, "no such action"),
    ):
        with pytest.raises(kind, match=text):
            table.learn("x", (A,), {}, owner, ((action,), None, ()), (A,), A, (), None, ())
    made = _a_launch()
    for takes_more in (
        ("call", print, ((1, None),)),
        ("launch", False, made.launch, made.encode, ((0, 0),) * (made.takes - 1), None),
        ("launch", False, made.launch, made.encode, ((0, 0),) * 17, None),
        ("launch", False, made.launch, made.encode, ((1, 0),) * made.takes, None),
        ("launch", False, made.launch, made.encode, (None,) * made.takes, None),
    ):
        assert not table.learn("x", (A,), {}, owner, ((takes_more,), None, ()), (A,), A, (), None, ())
    assert not table.learn("x", (A,), {}, owner, ((), None, ()), (A,) * 17, A, (), None, ())


def _a_launch() -> Any:
    """A launch of two tensors."""
    forget_plans()
    learnt(CALLS["all_reduce, out="])
    (plan,) = communicator_of().own(Prepared)._plans.values()
    native = plan.launch.native(native_calls)
    return mock.Mock(launch=native.launch, encode=native.encode, takes=plan.launch.takes)


def nothing_leaks_of_several_parts() -> None:
    names = (
        *("all_gather, copy_engine", "all_gather_gemm, copies", "gemm_all_scatter, producer_consumer"),
        *("gemm_all_reduce, 1 SMs left", "flash_decode_projection"),
    )
    repeats = [learnt(EVERY[name]) for name in names]

    def failing() -> None:
        DRIVER.fake_launch_before(1)
        DRIVER.fake_fail_launches(700)
        with pytest.raises(RuntimeError):
            repeats[2]()
        DRIVER.fake_fail_launches(0)

    RECORDER.all.clear()
    fake_gpu.DONE.clear()
    library: Any = DRIVER
    library.fake_report_to(None)
    try:
        counted = A, B, C, WIDE, OF_ALL, given.LARGE, given.Q, communicator_of(), EXPERTS
        leave_nothing((*((call, 5_000) for call in repeats), (failing, 200)), counted)
    finally:
        library.fake_report_to(fake_gpu._queued)


def calls_between_hosts_are_those_of_python() -> None:
    """Whichever of them C++ makes: their steps take parts of memory that is cut in each call."""
    with two_hosts() as comm:
        for function, out, _ in BETWEEN_HOSTS:
            for algorithm in ("auto", "bulk_synchronous", "two_level"):
                if algorithm == "two_level" and function.__name__ not in IN_SLICES:
                    continue
                call = partial(function, A, B, out, bias=BIAS, group=comm, algorithm=algorithm)
                forget_plans(comm)
                found = [driven(call) for _ in range(6)]
                assert found[0] and all(done == found[0] for done in found), (function.__name__, algorithm)
        received = moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, group=comm)
        for call in (
            lambda: moe.dispatch(TOKENS, IDS, WEIGHTS, **EXPERTS, group=comm),
            lambda: moe.combine(received.x, received),
        ):
            found = [driven(call) for _ in range(6)]
            assert found[0] and all(len(done) == len(found[0]) for done in found)
            assert launches_by_python(calls(call)), "hosts exchange by functions of Python"
