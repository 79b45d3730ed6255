"""Calls in a fork, whose end is a result, whatever it is."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from triton_dist.testing.child import call_in_child


def test_what_is_returned() -> None:
    here = os.getpid()
    ended = call_in_child(lambda: {"child": os.getppid() == here, "text": "µ" * 100_000})
    assert ended.value == {"child": True, "text": "µ" * 100_000}
    assert (ended.status, ended.errors) == (0, "")


def test_what_is_written_to_stderr() -> None:
    """More than a pipe holds."""
    ended = call_in_child(lambda: os.write(2, b"x" * 200_000))
    assert ended.value == 200_000 and ended.errors == "x" * 200_000


def test_an_error() -> None:
    ended = call_in_child(lambda: 1 // 0)
    assert (ended.value, ended.status) == (None, 1)
    assert "ZeroDivisionError" in ended.errors and __file__ in ended.errors


def test_what_is_no_json() -> None:
    ended = call_in_child(object)
    assert (ended.value, ended.status) == (None, 1) and "not JSON serializable" in ended.errors


def test_a_crash() -> None:
    def crash() -> None:
        os.write(2, b"the reason\n")
        os.abort()

    ended = call_in_child(crash)
    assert (ended.value, ended.status) == (None, -signal.SIGABRT)
    assert ended.errors.startswith("the reason\n")


def test_an_exit() -> None:
    assert call_in_child(lambda: os._exit(7)).status == 7
    assert call_in_child(lambda: sys.exit(7)).status == 1


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    """What this process has not flushed is not in the fork's buffers, either."""
    file = tmp_path / "output"
    with file.open("w") as output:
        plain, sys.stdout = sys.stdout, output
        try:
            print("once")
            call_in_child(sys.stdout.flush)
        finally:
            sys.stdout = plain
    assert file.read_text() == "once\n"


def test_no_child_is_left() -> None:
    descriptors = os.listdir("/proc/self/fd")
    began = time.monotonic()
    for _ in range(20):
        call_in_child(lambda: None)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    assert time.monotonic() - began < 20
