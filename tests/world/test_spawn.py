"""testing.spawn: functions on PEs, their results and their errors."""

from __future__ import annotations

import gc
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from forking import launch
from hypothesis import given, settings
from hypothesis import strategies as st

import triton_dist
from triton_dist.spawning import _in_new_processes
from triton_dist.testing import PEError, spawn
from triton_dist.testing import values as codec

pytestmark = pytest.mark.skipif(triton_dist.kind() != "cpu", reason="forks PEs of the CPU world")


def test_results_of_all_kinds() -> None:
    sent = {"one": [1, 2.5, None, True], 2: (b"\0bytes", "text", math.inf), "nested": {"empty": []}}
    tensors = [
        torch.arange(6).view(2, 3).t(),
        torch.tensor(1.5),
        torch.empty(0, 2),
        torch.ones(3, dtype=torch.bfloat16),
    ]

    def function(offset: int) -> Any:
        whole = triton_dist.full(3, float(triton_dist.my_pe() + offset))
        triton_dist.reduce(whole, whole)
        return sent, tensors, whole.requires_grad_(), triton_dist.my_pe()

    found = spawn(function, 3, 10)
    for pe, (value, copies, whole, number) in enumerate(found):
        assert value == sent and number == pe and type(value[2]) is tuple
        assert all(
            torch.equal(copy, tensor) and copy.dtype == tensor.dtype
            for copy, tensor in zip(copies, tensors, strict=True)
        )
        assert torch.equal(whole, torch.full((3,), 33.0)) and not whole.requires_grad
    assert spawn(lambda: None, 1) == [None]


def test_large_results() -> None:
    (found, _) = spawn(lambda: torch.arange(1 << 20), 2)
    assert torch.equal(found, torch.arange(1 << 20))


def test_the_caller_may_have_computed_with_threads() -> None:
    torch.set_num_threads(2)
    a = torch.rand(300, 300)
    a @ a
    assert spawn(lambda: float((torch.ones(300, 300) @ torch.ones(300, 300)).sum()), 2) == [300.0**3] * 2


def test_no_thread_of_the_call_runs_while_it_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that a thread holds at that moment would never be released in the fork: PE 2 of three never came."""
    fork, seen = os.fork, []

    def n_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def counting() -> int:
        seen.append(n_threads())
        return fork()

    before = n_threads()
    monkeypatch.setattr(os, "fork", counting)
    assert spawn(triton_dist.my_pe, 3) == [0, 1, 2]
    assert len(seen) == 3 and max(seen) <= before


def test_pes_collect_nothing_that_the_caller_has_left() -> None:
    """The finalizer of a store, for instance, ends a process that does not have the store's thread."""
    ended = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            ended.append(os.getpid())

    def function() -> int:
        gc.collect()
        return len(ended)

    gc.disable()
    try:
        Cycle()
        assert spawn(function, 2) == [0, 0] and not ended
    finally:
        gc.enable()


def test_after_a_world_of_the_caller() -> None:
    """PEs do not talk through the store of the launch that the calling process was a PE of."""
    program = """
import triton_dist
from triton_dist.testing import spawn
with triton_dist.init() as world:
    pe = world.pe
if pe == 0:
    print(spawn(lambda: (triton_dist.my_pe(), triton_dist.n_pes()), 3))
with triton_dist.init():
    triton_dist.barrier_all()
"""
    result = launch(["-c", program], 2).check()
    assert result[0].stdout == "[(0, 3), (1, 3), (2, 3)]\n"


def test_the_first_error_with_its_pe() -> None:
    def function() -> None:
        triton_dist.barrier_all()
        if triton_dist.my_pe() == 1:
            raise LookupError("what went wrong")
        triton_dist.barrier_all()

    with pytest.raises(PEError, match=r"^PE 1: LookupError: what went wrong\n(.|\n)*in function\n") as caught:
        spawn(function, 3)
    assert caught.value.pe == 1 and caught.value.kind == "LookupError"


def test_a_process_that_dies() -> None:
    def function() -> None:
        if triton_dist.my_pe() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        triton_dist.barrier_all()

    with pytest.raises(PEError, match="PE 0: the process ended by signal 9 before the call returned") as caught:
        spawn(function, 2)
    assert caught.value.kind is None


def test_exits_do_not_leave_the_fork() -> None:
    with pytest.raises(PEError, match="PE 0: SystemExit: 3"):
        spawn(lambda: exit(3), 1)


def test_time_limit() -> None:
    def function() -> None:
        if triton_dist.my_pe() == 1:
            time.sleep(1000)  # and PE 0 waits for it to finalize

    with pytest.raises(TimeoutError, match=r"spawn: PEs \[0, 1\] had not ended after 2 s"):
        spawn(function, 2, timeout=2)


def test_results_that_cannot_be_sent() -> None:
    with pytest.raises(PEError, match=r"PE \d: TypeError: values between processes are None(.|\n)*got set"):
        spawn(lambda: {1}, 2)


def test_bad_arguments() -> None:
    for wrong in (0, -1.0, float("nan"), None):
        with pytest.raises(ValueError, match=f"spawn: timeout must be a positive number of seconds, got {wrong}"):
            spawn(print, 1, timeout=wrong)
    with pytest.raises(ValueError, match="n_pes must be a positive integer, got 0"):
        spawn(print, 0)
    with pytest.raises(TypeError, match="function must be callable, got int"):
        spawn(3, 2)  # type: ignore[arg-type]


def test_a_pe_spawns_none() -> None:
    with pytest.raises(PEError, match="PE 0: RuntimeError: spawn: this process is a PE of a world itself"):
        spawn(lambda: spawn(print, 1), 1)


def test_new_processes() -> None:
    """What a GPU world does, with PEs of the CPU world."""
    assert [outcome.value for outcome in _in_new_processes(triton_dist.my_pe, 2, (), 100)] == [0, 1]
    with pytest.raises(ValueError, match=r"<lambda> cannot be imported. Define it in a module"):
        _in_new_processes(lambda: None, 2, (), 100)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@settings(max_examples=20)
@given(VALUES)
def test_values_come_back(value: Any) -> None:
    assert codec.loads(codec.dumps(value)) == value


@settings(max_examples=60)
@given(VALUES, st.data())
def test_damaged_values_are_refused(value: Any, data: st.DataObject) -> None:
    whole = bytearray(codec.dumps([value, torch.ones(2)]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        codec.loads(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


@pytest.mark.parametrize("view", [torch.conj, lambda tensor: torch.imag(torch.conj(tensor)), torch.t])
def test_views_pass_as_their_values(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Also where PyTorch conjugates or negates only when the values are read."""
    tensor = view(torch.tensor([[1 + 2j, 3 - 4j]]))
    assert torch.equal(codec.loads(codec.dumps(tensor)), tensor)


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_not_dense_are_refused() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8)
    for tensor in (quantized, torch.ones(2).to_sparse()):
        with pytest.raises(TypeError, match="only dense tensors pass between processes"):
            codec.dumps(tensor)
