"""What streams get beside launches: copies, flags, and how a side stream is ordered. One call of C++ gives it all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import fake_gpu
import pytest
import torch
from prepared_calls import calls as given
from prepared_calls.world import DRIVER, calls, forget_plans

HERE, SIDE = fake_gpu.STREAM[0], 70

FORKED, JOINED = (SIDE, "wait for", f"event of {HERE}"), (HERE, "wait for", f"event of {SIDE}")

ALL = {**given.CALLS, **given.IN_STEPS, **given.NEW_IN_STEPS}


def queued(call: Callable[[], object]) -> list[tuple[Any, ...]]:
    fake_gpu.QUEUED.clear()
    call()
    return [*fake_gpu.QUEUED]


def _rows(to: torch.Tensor, source: torch.Tensor) -> tuple[Any, ...]:
    size = source.element_size()
    width, pitches = source.shape[1] * size, (to.stride(0) * size, source.stride(0) * size)
    return "copy rows", to.data_ptr(), source.data_ptr(), width, source.shape[0], *pitches


def streams_get_what_they_got() -> None:
    """In this order, of an ordinary and a prepared call: the driver's calls, with their arguments."""
    part = given.LARGE.nbytes // 2
    gathered = SIDE, "copy", given.GATHERED_LARGE.data_ptr(), given.LARGE.data_ptr(), given.LARGE.nbytes
    exchanged = SIDE, "copy", given.OUT.data_ptr(), given.LARGE.data_ptr() + part, part
    for name, expected in (
        ("all_gather, copy_engine", [FORKED, gathered, JOINED]),
        ("all_to_all, copy_engine", [FORKED, exchanged, JOINED]),
        ("all_gather, copy_engine, a program", [(HERE, *gathered[1:])]),
    ):
        forget_plans()
        assert queued(ALL[name]) == expected, name
        assert queued(ALL[name]) == expected, name
    for _ in range(2):
        fork, take, taken, copied, give, join = queued(ALL["all_gather_gemm, copies"])
        assert (fork, join) == (FORKED, JOINED)
        flag = take[2]
        assert (take, taken) == ((SIDE, "wait", flag, 1), (SIDE, "write", flag, 0))
        assert copied == (SIDE, *_rows(_at(copied[2], given.A), given.A))
        assert give == (SIDE, "write", give[2], 1) and give[2] != flag
    mine = given.WIDE[:, :512]
    for _ in range(2):
        fork, *sent, join, take, taken = queued(ALL["gemm_all_scatter, copy_engine"])
        assert (fork, join) == (FORKED, JOINED)
        assert [what[1::2] for what in sent[:4]] == [("wait", 1), ("write", 0)] * 2, "admitted, and computed"
        assert sent[4:] == [(SIDE, *_rows(mine, mine)), (SIDE, "write", sent[-1][2], 1)]
        assert (take, taken) == ((HERE, "wait", take[2], 1), (HERE, "write", take[2], 0))


def _at(address: int, like: torch.Tensor) -> Any:
    """A matrix like this one at another address."""
    return mock.Mock(data_ptr=lambda: address, stride=like.stride)


def streams_get_it_in_one_call() -> None:
    """However many operations: one for each stream that gets some, and one to begin and end each side stream. Of a call
    that Python repeats."""
    for name, puts in (
        ("all_gather, copy_engine", 1),
        ("all_gather_gemm, copies", 1),
        ("all_gather_gemm, copies, blocks", 2),
        ("gemm_all_scatter, copy_engine", 2),
    ):
        forget_plans()
        ALL[name]()
        found = calls(ALL[name])
        assert found["StreamWork.__call__"] == puts, (name, dict(found))
        assert found["side_stream.__enter__"] == found["side_stream.__exit__"] == 1, name


def what_the_driver_refuses_is_an_error() -> None:
    """Of an ordinary call, one that Python repeats, and one that C++ does; what comes behind it is left out, but the
    streams are ordered."""
    for name, failing, left in (
        ("all_gather, copy_engine", b"copy", [FORKED, JOINED]),
        ("all_gather_gemm, copies", b"copy rows", ["wait", "write"]),
        ("gemm_all_scatter, copy_engine", b"wait", []),
    ):
        call = ALL[name]
        for calls_before in range(4):
            forget_plans()
            for _ in range(calls_before):
                call()
            DRIVER.fake_fail(failing)
            fake_gpu.QUEUED.clear()
            try:
                with pytest.raises(RuntimeError, match=r"an operation of a CUDA stream failed: 1$"):
                    call()
            finally:
                DRIVER.fake_fail(b"")
            if left and isinstance(left[0], str):
                left = [FORKED, *((SIDE, what, mock.ANY, mock.ANY) for what in left), JOINED]
            assert (left or [FORKED, JOINED]) == fake_gpu.QUEUED, (name, calls_before)
    for calls_before in range(4):
        forget_plans()
        for _ in range(calls_before):
            ALL["all_gather, copy_engine"]()
        DRIVER.fake_fail(b"record")
        with pytest.raises(RuntimeError, match="an operation of a CUDA stream failed"):
            ALL["all_gather, copy_engine"]()
        DRIVER.fake_fail(b"")
        assert queued(ALL["all_gather, copy_engine"])[::2] == [FORKED, JOINED]


def other_threads_run_while_a_queue_is_full() -> None:
    """As the one that finds out that a PE is lost, which a kernel in this queue waits for."""
    call = ALL["all_gather, copy_engine"]
    forget_plans()
    for _ in range(4):
        call()
        DRIVER.fake_fill(1)
        emptied = threading.Thread(target=lambda: (time.sleep(0.1), DRIVER.fake_fill(0)))
        emptied.start()
        call()  # else an error, after ten seconds
        emptied.join()


def captures_have_events_of_their_own() -> None:
    """Torch's: an event of direct calls must not become a part of a graph."""
    call, orders = ALL["all_gather, copy_engine"], []

    def wait(stream: fake_gpu.Stream, event: str) -> None:
        orders.append((stream.cuda_stream, "wait for", event))

    direct = queued(call)
    fake_gpu.CAPTURING[0] = True
    try:
        with mock.patch.object(fake_gpu.Stream, "wait_event", wait):
            for calls_before in range(5):
                if not calls_before:
                    forget_plans()
                orders.clear()
                assert queued(call) == direct[1:2], "the copy"
                assert orders == [FORKED, JOINED]
    finally:
        fake_gpu.CAPTURING[0] = False
    for _ in range(4):
        assert queued(call) == direct
