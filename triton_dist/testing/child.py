"""Calls of functions in a fork of this process, whose crash is a result."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from triton_dist.testing.launch import die_with_parent

__all__ = ["Ended", "call_in_child", "fork"]


class Ended(NamedTuple):
    """How a call has ended.

    Attributes:
        value: what it returned, as JSON has it; None if it did not return.
        status: 0; else the exit status or, negative, the number of the signal.
        errors: what it wrote to stderr.
    """

    value: Any
    status: int
    errors: str


def call_in_child(work: Callable[[], Any]) -> Ended:
    """Call ``work`` in a fork of this process, and wait for it. It returns what can be written as JSON.

    For libraries that abort the process on some inputs. Threads of this process do not exist in the fork, and what it
    changes in memory that is not shared is lost.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    result, errors = os.memfd_create("result"), os.memfd_create("errors")
    try:
        if (pid := fork()) == 0:
            _become_child(work, result, errors)
        _, status = os.waitpid(pid, 0)
        returned = _content(result)
        value = json.loads(returned) if status == 0 else None
        return Ended(value, os.waitstatus_to_exitcode(status), _content(errors).decode(errors="replace"))
    finally:
        os.close(result)
        os.close(errors)


def fork() -> int:
    """``os.fork()``. Objects of the calling process are never collected in the child: the finalizer of a store, for
    instance, waits for a thread that does not exist there."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, where there are other threads
            pid = os.fork()
        if pid == 0:
            gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return pid


def _become_child(work: Callable[[], Any], result: int, errors: int) -> NoReturn:
    status = 1
    try:
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        os.dup2(errors, 2)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)  # not that of a notebook
        os.write(result, json.dumps(work()).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _content(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0)
