"""Calls that C++ makes again: what it launches, when it leaves a call to Python, what it holds."""

from __future__ import annotations

import gc
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls.calls import (
    CALLS,
    COMPLEX,
    FEW,
    GATHERED,
    LARGE,
    OUT,
    PLAIN,
    TO_ALL,
    A,
    B,
    C,
    X,
    Y,
    matrix,
)
from prepared_calls.refusals import wrong_calls
from prepared_calls.world import DRIVER, RECORDER, WORLD, calls, forget_plans, is_native, is_prepared, symmetric
from triton import knobs

from triton_dist import kernels, native_calls
from triton_dist.compiler import transport
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.dependent_launch import DependentLaunches
from triton_dist.kernels.native import NativeCalls
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.tracing.recorder import Tracing
from triton_dist.process_state import of_process
from triton_dist.triton_api import packing
from triton_dist.world.teams import Team

NEW = {"gemm_reduce_scatter, ring, new", "all_gather_gemm, copies, new"}


def learnt(call: Callable[[], object]) -> Callable[[], object]:
    """A call that C++ makes from now on."""
    call()
    call()
    assert is_native(call)
    return call


def third_calls_are_native() -> None:
    """The first is an ordinary one, the second is repeated by Python, the third by C++: the driver gets the same."""
    for name in sorted(CALLS):
        call = CALLS[name]
        forget_plans()
        found = []
        for _ in range(4):
            call()
            found.append(RECORDER.last)
        assert name in NEW or is_native(call), name
        assert name in NEW or RECORDER.last == found[0], name
        assert name in NEW or found[0] == found[1] == found[2] == found[3], name


def results_are_returned() -> None:
    """The caller's own tensors, or new ones."""
    for call, result in (
        (lambda: kernels.all_reduce(X), X),
        (lambda: kernels.all_reduce(X, "max", Y), Y),
        (lambda: kernels.all_reduce(tensor=X, out=Y), Y),
        (lambda: kernels.all_reduce(out=Y, tensor=X), Y),
        (lambda: kernels.all_gather(GATHERED, X), GATHERED),
        (lambda: kernels.gemm_all_reduce(FEW, B, TO_ALL, algorithm="fused"), TO_ALL),
        (lambda: kernels.gemm_all_reduce(FEW, B, out=TO_ALL, algorithm="fused"), TO_ALL),
    ):
        assert learnt(call)() is result
    new: Callable[[], Any] = CALLS["gemm_reduce_scatter, ring, new"]
    first = second = new()
    for _ in range(100):
        before = RECORDER.by_triton
        first, second = second, new()
        if RECORDER.by_triton == before:  # where new tensors lie is known by now
            break
    assert RECORDER.by_triton == before
    assert (first.shape, first.dtype) == (second.shape, second.dtype) and first.data_ptr() != second.data_ptr()
    maps = [x[1] for x in RECORDER.last[-1] if x[0] == "map"]
    assert second.data_ptr() in maps and first.data_ptr() not in maps


def other_tensors_are_those_of_the_call() -> None:
    """Wherever they lie, also a GEMM's matrices, whose descriptors Python has encoded."""
    learnt(CALLS["all_reduce, out="])
    plain, into = torch.zeros(1024, dtype=torch.bfloat16), torch.zeros(1024, dtype=torch.bfloat16)
    call = learnt(lambda: kernels.all_reduce(plain, out=into))
    call()
    assert RECORDER.pointers()[:2] == [into.data_ptr(), plain.data_ptr()]
    learnt(CALLS["gemm_all_reduce, ring"])
    others = matrix(512, 256), matrix(256, 512)
    call = partial(kernels.gemm_all_reduce, *others, C, algorithm="ring")
    assert is_native(call), "it is found out whether these are symmetric"
    assert {tensor.data_ptr() for tensor in others} <= {x[1] for x in RECORDER.last[-1] if x[0] == "map"}
    elsewhere = partial(kernels.gemm_all_reduce, *others, WORLD.empty(C.shape, torch.bfloat16), algorithm="ring")
    assert not is_native(elsewhere), "where the result lies is a part of the plan"
    learnt(elsewhere)
    weight = torch.nn.Parameter(B)
    with torch.no_grad():
        learnt(lambda: kernels.gemm_all_reduce(FEW, weight, TO_ALL, algorithm="fused"))


def unlike_calls_are_not_mixed_up() -> None:
    learnt(CALLS["all_reduce, out="])
    differing: dict[str, Callable[[], object]] = {
        "another size": lambda: kernels.all_reduce(X[:520], out=Y[:520]),
        "another shape": lambda: kernels.all_reduce(X.view(16, 64), out=Y.view(16, 64)),
        "another dtype": lambda: kernels.all_reduce(X.view(torch.float16), out=Y.view(torch.float16)),
        "another alignment": lambda: kernels.all_reduce(X[4:516], out=Y[4:516]),
        "not symmetric": lambda: kernels.all_reduce(PLAIN, out=torch.zeros(1024, dtype=torch.bfloat16)),
        "another op": lambda: kernels.all_reduce(X, "min", out=Y),
        "another algorithm": lambda: kernels.all_reduce(X, out=Y, algorithm="two_shot"),
        "the other way round": lambda: kernels.all_reduce(out=Y, tensor=X, op="sum"),
        "a margin": lambda: kernels.all_reduce(X, out=Y, sm_margin=1),
        "in place": lambda: kernels.all_reduce(Y),
        "in place, twice": lambda: kernels.all_reduce(Y, out=Y),
        "another function": lambda: kernels.all_to_all(Y, X),
        "strides of a dimension of one": lambda: kernels.all_reduce(
            X.as_strided((1, 1024), (7, 1)), out=Y.as_strided((1, 1024), (7, 1))
        ),
    }
    for name, call in differing.items():
        forget_plans()
        learnt(CALLS["all_reduce, out="])
        assert not is_native(call), name
        ordinary = RECORDER.last
        call()
        assert is_native(call) or name == "not symmetric", name
        assert RECORDER.last == ordinary or name == "not symmetric", name
    learnt(lambda: kernels.broadcast(X, 1))
    assert not is_native(lambda: kernels.broadcast(X, True)), "equal, but of another type"


def errors_are_those_of_python() -> None:
    learnt(CALLS["all_reduce, out="])
    learnt(CALLS["all_gather"])
    learnt(CALLS["gemm_all_reduce, fused"])
    learnt(lambda: kernels.all_gather(COMPLEX[1], COMPLEX[0]))
    for kind, text, call in wrong_calls():
        for _ in range(3):
            with pytest.raises(kind, match=re.escape(text)):
                call()
    freed = symmetric(1 << 21)
    learnt(lambda: kernels.all_gather(freed, LARGE, algorithm="push"))
    WORLD.free(freed)
    for _ in range(3):
        with pytest.raises(ValueError, match="must be symmetric"):
            kernels.all_gather(freed, LARGE, algorithm="push")


class _Subclass(torch.Tensor):
    pass


def unusual_calls_go_through_python() -> None:
    """Whatever they ask for, and native ones after them go on."""
    call = learnt(CALLS["all_gather"])
    seen: list[Any] = []
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        chain.add(seen.append)
        assert not is_native(call)
        chain.remove(seen.append)
        learnt(call)
    assert len(seen) == 2, "a hook on launches sees every launch"
    with mock.patch.object(knobs, "runtime", knobs.runtime.copy()):
        assert not is_native(call)
    learnt(call)
    with transport.using("p2p"):
        assert not is_native(call)
    assert is_native(call)
    knobs.runtime.debug = True
    assert not is_native(call)
    knobs.runtime.debug = False
    learnt(call)
    with mock.patch.object(WORLD.own(DependentLaunches), "on", True):
        assert not is_native(call)
    learnt(call)
    with mock.patch.object(WORLD.own(Tracing), "session", object()), pytest.raises(AttributeError):
        call()
    assert not is_native(call), "the call after one that failed begins with a barrier of hosts"
    assert is_native(call)
    with mock.patch.object(fake_gpu, "DEVICE", [1]):
        assert not is_native(call), "another GPU is the current one"
    learnt(call)
    symmetric_workspace(communicator_of(), "another new one", 16)
    assert not is_native(call), "the workspace may be another"
    learnt(call)
    wants = PLAIN.clone().requires_grad_()
    with torch.no_grad():
        learnt(lambda: kernels.all_reduce(wants, out=Y))
    with pytest.raises(ValueError, match="requires a gradient"):
        kernels.all_reduce(wants, out=Y)
    with torch.inference_mode():
        learnt(lambda: kernels.all_reduce(wants, out=Y))
    of_subclass = PLAIN.clone().as_subclass(_Subclass)
    for _ in range(3):
        assert not is_native(lambda: kernels.all_reduce(of_subclass, out=Y))
    symmetric(8)  # an allocation
    assert not is_native(call) and is_native(call)


def the_world_is_asked_in_every_call() -> None:
    call = learnt(CALLS["all_gather"])
    detector = mock.Mock(trouble=None)
    with mock.patch.object(WORLD._launch, "detector", detector), Communicator() as other:
        again = learnt(lambda: kernels.all_gather(GATHERED, X, group=other))
        detector.trouble = "PE 1 is lost"
        with (
            mock.patch.object(WORLD._launch, "check", mock.Mock(side_effect=ConnectionError("PE 1 is lost"))),
            pytest.raises(ConnectionError, match="PE 1 is lost"),
        ):
            again()
        detector.trouble = None
        assert is_native(again)
    learnt(call)
    with mock.patch.object(WORLD, "finalized", True), pytest.raises(RuntimeError, match="there is no world"):
        call()
    assert is_native(call)


def groups_have_calls_of_their_own() -> None:
    call = learnt(CALLS["all_gather"])
    team = WORLD.team_world
    learnt(lambda: kernels.all_gather(GATHERED, X, group=team))
    slots = RECORDER.pointers()[2]
    with Communicator() as other:
        native = of_process(NativeCalls)
        before = len(native)
        again = learnt(lambda: kernels.all_gather(GATHERED, X, group=other))
        assert RECORDER.pointers()[2] != slots and len(native) == before + 1
        call()
        assert RECORDER.pointers()[2] == slots
    assert len(native) == before, "they end with the communicator"
    with pytest.raises(RuntimeError, match="was closed"):
        again()
    destroyed = Team(WORLD, "destroyed", 5, range(2))
    WORLD.teams[5] = destroyed
    of_team = learnt(lambda: kernels.all_gather(GATHERED, X, group=destroyed))
    del WORLD.teams[5]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="was destroyed"):
            of_team()


def native_calls_are_compared() -> None:
    call = learnt(CALLS["all_gather"])
    comm, compared = communicator_of(), len(WORLD.compared)
    made = comm._made
    call()
    assert comm._made == made + 1 and len(WORLD.compared) == compared
    last = comm._call_made(comm._made)
    assert last is not None and last.startswith("all_gather((1024,), torch.bfloat16")
    comm._equal.clear()
    assert not is_native(call)
    assert len(WORLD.compared) == compared + 1 and comm._made == made + 2, "forgotten ones anew, and each once"
    assert is_native(call)


def streams_are_those_of_the_call() -> None:
    call = learnt(CALLS["all_gather"])
    fake_gpu.STREAM[0] = 9
    try:
        assert not is_native(call), "Python orders it behind the work on the other stream"
        assert is_native(call) and RECORDER.stream == 9
    finally:
        fake_gpu.STREAM[0] = 7
    assert not is_native(call)
    assert is_native(call) and RECORDER.stream == 7


def errors_of_the_driver_keep_their_words() -> None:
    call = learnt(CALLS["all_reduce, out="])
    for prepare, kind, text in (
        (lambda: DRIVER.fake_fail_launches(700), RuntimeError, "Triton Error [CUDA]: an error of the fake driver"),
        (
            lambda: DRIVER.fake_refuse_pointer(fake_gpu.ctypes.c_uint64(X.data_ptr())),
            ValueError,
            "Pointer argument cannot be accessed from Triton (cpu tensor?)",
        ),
    ):
        said = []
        for _ in range(3):
            prepare()
            with pytest.raises(kind) as error:
                call()
            said.append(str(error.value))
            DRIVER.fake_fail_launches(0)
            DRIVER.fake_refuse_pointer(fake_gpu.ctypes.c_uint64(0))
            assert is_native(call), "the communicator is free again"
            prepare()
            forget_plans()
            with pytest.raises(kind) as error:
                call()
            said.append(str(error.value))
            DRIVER.fake_fail_launches(0)
            DRIVER.fake_refuse_pointer(fake_gpu.ctypes.c_uint64(0))
            learnt(call)
        assert set(said) == {text}


def threads_run_while_a_native_call_waits() -> None:
    """The driver waits where a queue is full. Other threads run meanwhile; calls of the communicator are refused."""
    call = learnt(CALLS["all_reduce, out="])
    DRIVER.fake_fill(1)
    launching = threading.Thread(target=call)
    launching.start()
    refused = None
    try:
        for _ in range(1000):
            time.sleep(0.001)
            try:
                kernels.all_gather(GATHERED, X, algorithm="none")
            except RuntimeError as error:
                refused = error
                break
            except ValueError:  # the thread has not come to its call
                continue
    finally:
        DRIVER.fake_fill(0)
        launching.join()
    assert refused is not None and "another thread is in a call" in str(refused)
    assert is_native(call)


def threads_have_communicators_of_their_own() -> None:
    with Communicator() as first, Communicator() as second:
        pairs = [(symmetric(1024), symmetric(1024)) for _ in range(2)]
        repeats = [
            learnt(partial(kernels.all_reduce, x, out=y, group=group))
            for (x, y), group in zip(pairs, (first, second), strict=True)
        ]
        for call in repeats:
            call()
        made = first._made, second._made
        RECORDER.all.clear()
        assert not errors_of_threads(repeats, 500)
        assert (first._made, second._made) == (made[0] + 500, made[1] + 500)
        addresses = [[x[1] for x in how[-1] if x[0] == "at"][:2] for how in RECORDER.all]
        for x, y in pairs:
            assert addresses.count([y.data_ptr(), x.data_ptr()]) == 500


def nothing_leaks() -> None:
    """Neither references to arguments nor memory, of calls that are made, refused, or end in an error."""
    made = learnt(CALLS["all_reduce, out="])
    gemm = learnt(CALLS["gemm_all_reduce, ring"])
    plain = PLAIN.clone()
    of_subclass, table = plain.as_subclass(_Subclass), of_process(NativeCalls)
    refused = partial(table.call, "all_reduce", (of_subclass,), {"out": Y})
    unknown = partial(table.call, "all_reduce", (plain[8:16],), {"op": "avg", "group": None})
    RECORDER.all.clear()

    def failing() -> None:
        DRIVER.fake_fail_launches(700)
        with pytest.raises(RuntimeError):
            made()
        DRIVER.fake_fail_launches(0)

    counted = X, Y, A, B, C, plain, "sum", communicator_of(), communicator_of().own(Prepared), torch.bfloat16
    leave_nothing(((made, 20_000), (gemm, 20_000), (refused, 20_000), (unknown, 20_000), (failing, 200)), counted)


def errors_of_threads(made: Sequence[Callable[[], object]], times: int) -> list[BaseException]:
    """What calls raise that are made so many times, each by a thread of its own, at the same time."""
    failed: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            for _ in range(times):
                call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def leave_nothing(calls: Iterable[tuple[Callable[[], Any], int]], counted: tuple[Any, ...]) -> None:
    """So many times each, calls leave no reference to what is ``counted``, and no memory."""
    library: Any = DRIVER
    library.fake_report_launches_to(None)
    try:
        for call, times in calls:
            for _ in range(100):  # the communicator remembers the last calls
                call()
            gc.collect()
            before, blocks = [*map(sys.getrefcount, counted)], sys.getallocatedblocks()
            for _ in range(times):
                call()
            gc.collect()
            assert [*map(sys.getrefcount, counted)] == before, call
            assert sys.getallocatedblocks() - blocks < times / 2, call
    finally:
        library.fake_report_launches_to(RECORDER._told)


def what_was_learnt_is_bounded_and_keeps_no_tensors() -> None:
    native = of_process(NativeCalls)
    before = len(native)
    for n in range(8, 80, 8):
        learnt(partial(kernels.all_reduce, X[:n]))
    assert before < len(native) <= 1024
    library, table = native_calls.library(), native_calls.new_table(str.isascii, 2)
    assert len(table) == 0 and table.call("all_reduce", (X,), {}) is None
    assert library.Table and library.Owner and library.Launch
    mine = torch.zeros(1024, dtype=torch.bfloat16)
    held = sys.getrefcount(mine)
    learnt(lambda: kernels.all_reduce(mine))
    assert sys.getrefcount(mine) == held


def without_the_library_python_repeats_calls() -> None:
    with mock.patch.dict("os.environ", TRITON_DIST_NATIVE_CALLS="0"), Communicator() as other:
        call = partial(kernels.all_reduce, LARGE, out=OUT, group=other)
        call()
        for _ in range(3):
            assert is_prepared(call) and not is_native(call)
        assert native_calls.why_not() == "TRITON_DIST_NATIVE_CALLS is 0"
        assert not native_calls.library()
    assert not native_calls.why_not()


def launches_that_cannot_be_packed_go_through_triton() -> None:
    call = CALLS["all_reduce, two_shot"]
    too_long = mock.Mock(side_effect=ValueError("the kernel has too many arguments"))
    for patched in (
        mock.patch.object(native_calls, "new_launch", too_long),
        mock.patch.object(packing, "ARGUMENTS", {1: "P"}),  # kinds that this version of Triton has not
        mock.patch.object(packing, "launch_attributes", return_value=None),
    ):
        forget_plans()
        with patched:
            call()
            for _ in range(3):
                assert is_prepared(call) and not is_native(call)
    forget_plans()
    learnt(call)
    names = "function", "grid", "threads", "shared", "attributes", "arguments", "offsets"
    right: dict[str, Any] = {"function": 1, "grid": (1, 1, 1), "threads": 32, "shared": 0, "attributes": ()}
    right |= {"arguments": bytes(24), "offsets": (0, 8, 16)}
    library, functions = native_calls.library(), native_calls._driver_functions()
    library.Launch(functions, *(right[name] for name in names), ((0, 0, False),))
    for wrong in ({"arguments": bytes(5000)}, {"offsets": (0, 24)}, {"offsets": (0,) * 300}):
        with pytest.raises(ValueError, match="argument"):
            library.Launch(functions, *((right | wrong)[name] for name in names), ())
    for patch in ((20, 0, False), (0, 16, False), (0, 0, True)):
        with pytest.raises(ValueError, match="tensor"):
            library.Launch(functions, *(right[name] for name in names), (patch,))


def native_calls_are_one_of_python() -> None:
    """Of this package: the public function."""
    for name in ("all_reduce in place", "all_gather", "gemm_all_reduce, fused", "gemm_all_reduce, ring, blocks"):
        found = calls(learnt(CALLS[name]))
        assert sum(found.values()) == 1, (name, dict(found))
