"""Waits that last too long, with a clock that a look at it moves on: one record each, and the wait goes on."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest
from limits import HANG_SECONDS, until

from triton_dist.gpu import p2p

TICK = p2p.wait_tick()


class Reports:
    """Memory that reports go to, and threads that wait."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.records = np.zeros(p2p.wait_records(), dtype=p2p.wait_record())
        self.count = np.zeros(1, dtype=np.uint32)

    def wait(self, name: str, *arguments: Any, timeout: float = 3 * TICK) -> threading.Thread:
        """A thread that calls a routine."""
        where = (self.records.ctypes.data, self.count.ctypes.data)
        state = p2p.wait_state(timeout, *where, kernel=5)

        def run() -> None:
            self.library.become(p2p.state(0, [0], 0), 0, 1, None)
            self.library.reportWaits(state)
            self.library[f"triton_dist_{name}"](*arguments)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def reports(host_library: ctypes.CDLL) -> Reports:
    return Reports(host_library)


def address(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def test_a_long_wait_reports_once_and_goes_on(reports: Reports) -> None:
    words = np.array([7, -3, 7], dtype=np.int32)
    waiting = reports.wait("wait_until_all_i32", address(words), ctypes.c_size_t(3), None, 0, ctypes.c_int32(7), 9)
    until(lambda: bool(reports.records[1]["number"]))
    record = reports.records[1]
    assert (record["address"], record["expected"], record["seen"]) == (words.ctypes.data + 4, 7, -3)
    assert (record["kernel"], record["site"], record["pe"], record["cmp"]) == (5, 9, -1, 0)
    assert list(record["program"]) == [10, 11, 12] and record["programs"] == 20 * 21 * 22 and record["ticks"] == 3
    time.sleep(0.2)
    assert reports.count[0] == 1 and waiting.is_alive()
    words[1] = 7
    waiting.join(HANG_SECONDS)
    assert not waiting.is_alive()


def test_a_wait_for_any_names_the_first_that_is_selected(reports: Reports) -> None:
    words, status = np.zeros(3, dtype=np.uint64), np.array([1, 0, 0], dtype=np.int32)
    value = ctypes.c_uint64(2**64 - 1)
    waiting = reports.wait("wait_until_any_u64", address(words), ctypes.c_size_t(3), address(status), 0, value, 1)
    until(lambda: bool(reports.records[1]["number"]))
    assert reports.records[1]["address"] == words.ctypes.data + 8 and reports.records[1]["expected"] == -1
    words[2] = value.value
    waiting.join(HANG_SECONDS)
    assert not waiting.is_alive()


def test_records_are_bounded(reports: Reports) -> None:
    reports.count[0] = 2**32 - 2  # the count comes around
    words = np.zeros(4, dtype=np.int32)
    waiting = [
        reports.wait("wait_until_i32", ctypes.c_void_p(words.ctypes.data + 4 * i), 0, ctypes.c_int32(1), i)
        for i in range(4)
    ]
    until(lambda: int(reports.count[0]) == 2)
    words[:] = 1
    for thread in waiting:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


def test_without_a_timeout_nothing_is_reported(reports: Reports) -> None:
    words = np.zeros(1, dtype=np.int32)
    waiting = reports.wait("wait_until_i32", address(words), 0, ctypes.c_int32(1), 1, timeout=float("inf"))
    time.sleep(0.5)
    words[0] = 1
    waiting.join(HANG_SECONDS)
    assert not waiting.is_alive() and reports.count[0] == 0


def poll_for(reports: Reports, ticks: int, words: np.ndarray[Any, Any], *arguments: int) -> None:
    """Polls as often as passes ``ticks`` ticks; a look at the clock moves it on by one."""
    reports.library.become(p2p.state(0, [0], 0), 0, 1, None)
    where = (reports.records.ctypes.data, reports.count.ctypes.data)
    reports.library.reportWaits(p2p.wait_state(3 * TICK, *where, kernel=5))
    poll = reports.library["triton_dist_poll"]
    poll.restype = ctypes.c_uint32
    polls = 0
    for _ in range(ticks * p2p._layout()["polls"]):
        polls = poll(ctypes.c_uint32(polls), address(words), *arguments)


def test_a_loop_of_a_kernel_reports_by_its_polls(reports: Reports) -> None:
    """The register that is handed on: a count, and when it began."""
    word = np.array([5], dtype=np.int32)
    poll_for(reports, 6, word, 3, 8, 2, 1, 1, 0, 0, 4)
    assert reports.count[0] == 1
    record = reports.records[1]
    assert (record["address"], record["expected"], record["seen"]) == (word.ctypes.data, 8, 5)
    assert (record["cmp"], record["pe"], record["site"]) == (3, 2, 4)


@pytest.mark.parametrize(("writer", "pe"), [(0, 2), (5, 7), (5 | 2 << 16, 11), (-1, -1)])
def test_a_loop_that_waits_for_rows_of_words_names_the_first_late_one_and_its_pe(
    reports: Reports, writer: int, pe: int
) -> None:
    """The rows are written by PEs at any equal distance, here 1 and 3."""
    words = np.full((3, 4, 2), 7, dtype=np.int32)
    words[:, :, 1] = words[:, 3] = 0  # between the awaited ones
    words[2, 1, 0] = words[2, 2, 0] = 6
    poll_for(reports, 6, words, 0, 7, writer, 3, 3, 8, 2, 1)
    assert reports.count[0] == 1
    record = reports.records[1]
    assert (record["address"], record["seen"], record["pe"]) == (words.ctypes.data + 4 * 18, 6, pe)


def test_numbers_of_a_loop_wrap_around(reports: Reports) -> None:
    flags = np.array([-(2**31), 2**31 - 2], dtype=np.int32)  # the first is one behind 2**31 - 1
    poll_for(reports, 6, flags, 3, 2**31 - 1, 0, 2, 1, 1, 0, 1)
    assert reports.count[0] == 1 and reports.records[1]["address"] == flags.ctypes.data + 4


def test_words_that_have_come_by_now_are_not_reported(reports: Reports) -> None:
    poll_for(reports, 6, np.array([8, 9], dtype=np.int32), 3, 8, -1, 2, 1, 1, 0, 1)
    assert reports.count[0] == 0
