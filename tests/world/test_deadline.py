"""Calls with a time limit: what becomes of a call that lasts longer, or that Ctrl-C leaves."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from limits import HANG_SECONDS

from triton_dist.bootstrap.deadline import within


def ends(thread: threading.Thread) -> None:
    until = time.monotonic() + HANG_SECONDS
    while thread in threading.enumerate() and time.monotonic() < until:
        time.sleep(0.01)
    assert thread not in threading.enumerate(), f"{thread} goes on"


def test_a_call_returns_or_raises_what_it_would_alone() -> None:
    assert within(HANG_SECONDS, lambda: 7) == 7
    with pytest.raises(KeyError, match="lost"):
        within(HANG_SECONDS, lambda: {}["lost"])


def polls(threads: list[threading.Thread], interrupts: bool) -> None:
    threads.append(threading.current_thread())
    if interrupts:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)


def test_a_call_that_is_given_up_ends_at_its_next_instruction() -> None:
    threads: list[threading.Thread] = []
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
        within(0.2, lambda: polls(threads, False))
    ends(threads[0])


def test_a_call_that_ctrl_c_leaves_ends_too() -> None:
    threads: list[threading.Thread] = []
    with pytest.raises(KeyboardInterrupt):
        within(HANG_SECONDS, lambda: polls(threads, True))
    ends(threads[0])
