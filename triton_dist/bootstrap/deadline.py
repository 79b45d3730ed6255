"""A time limit on library calls that have none: a socket of torch's store waits for an answer forever."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


_CUT_SECONDS = 3.0  # in which most calls end whose connections are cut; torch connects several times


def within(seconds: float, call: Callable[[], Result], cut: Callable[[], None] | None = None) -> Result:
    """Call ``call()`` in a thread and return its result, or raise its error. Ctrl-C interrupts the wait for it.

    A call that lasts longer, or is interrupted, ends at its next instruction of Python; until then its thread goes on.

    Args:
        cut: makes the call end with an error, at the end of a process in which it lasts too long.

    Raises:
        TimeoutError: the call lasts longer than ``seconds``. Its result is dropped.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()  # an interrupted join() takes a thread for ended

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="triton_dist call with a limit", daemon=True)
    end = partial(_end, thread, done, cut)
    atexit.register(end)  # before the wait, which Ctrl-C may leave at any place
    try:
        thread.start()
        if not done.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
    except BaseException:
        _stop(thread, done)
        raise
    atexit.unregister(end)
    if errors:
        raise errors[0]
    return results[0]


def _stop(thread: threading.Thread, done: threading.Event) -> None:
    """Raise SystemExit in a thread at its next instruction of Python, if it has begun, and is not ``done``."""
    if thread.ident is not None and not done.is_set():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def _end(thread: threading.Thread, done: threading.Event, cut: Callable[[], None] | None) -> None:
    """Before the interpreter ends: a thread that comes back from C++ afterwards aborts the process. What the call still
    prints would hide the error that the process ends with."""
    if thread.ident is None or done.is_set():
        return
    with suppress(OSError, ValueError), _silence(), _uninterrupted():  # too many files are open; not the main thread
        _stop(thread, done)
        until = time.monotonic() + _CUT_SECONDS
        while not done.is_set() and time.monotonic() < until:
            if cut is not None:
                cut()
            done.wait(0.05)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C is ignored for the moment. (Functions of atexit run in the main thread.)"""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if previous is not None:  # it is Python's
            signal.signal(signal.SIGINT, previous)


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
