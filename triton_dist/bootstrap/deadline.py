"""A time limit on library calls that have none: a socket of torch's store waits for an answer forever."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


_CUT_SECONDS = 3.0  # in which most calls end whose connections are cut; torch connects several times


def within(seconds: float, call: Callable[[], Result], cut: Callable[[], None] | None = None) -> Result:
    """Call ``call()`` in a thread and return its result, or raise its error. Ctrl-C interrupts the wait for it.

    Args:
        cut: makes the call end with an error, at the end of a process in which it lasts too long.

    Raises:
        TimeoutError: the call lasts longer than ``seconds``. Its thread goes on, and its result is dropped.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="triton_dist call with a limit", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        if cut is not None:
            atexit.register(_end, thread, cut)
        raise TimeoutError(f"no answer within {seconds:g} s")
    if errors:
        raise errors[0]
    return results[0]


def _end(thread: threading.Thread, cut: Callable[[], None]) -> None:
    """Before the interpreter ends: a thread that comes back from C++ afterwards aborts the process. What the call still
    prints would hide the error that the process ends with."""
    if not thread.is_alive():
        return
    with suppress(OSError), _silence():  # too many files are open
        until = time.monotonic() + _CUT_SECONDS
        while thread.is_alive() and time.monotonic() < until:
            cut()
            thread.join(0.05)


@contextmanager
def _silence() -> Iterator[None]:
    """C++ prints nothing to stderr."""
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
