"""What a process says of its end, in one line or two, so that the words of many PEs can be read."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from types import TracebackType
from typing import NoReturn

from triton_dist.bootstrap.source_lines import is_library, is_ours

__all__ = ["INTERRUPTED", "end_process", "limit_exit", "of", "place", "say", "say_in_one_line"]

INTERRUPTED = "was interrupted (Ctrl-C)"

_EXIT_SECONDS = 5


def of(error: BaseException) -> str:
    """What became of a PE that ends by an error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return f"raised {type(error).__name__}: {error}"


def say(line: str) -> None:
    """One whole line to stderr: PEs share a terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def place(trace: TracebackType | None) -> str:
    """Where in the user's program an error passed."""
    return _user_line(traceback.extract_tb(trace))


def say_in_one_line(error: KeyboardInterrupt, doing: str) -> None:
    """If nothing catches ``error``, the process says one line in place of its traceback."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = previous
        if raised is error:
            say(f"triton_dist: interrupted at {place(trace)}, while {doing}")
        else:
            previous(kind, raised, trace)

    sys.excepthook = hook


def end_process(reason: str, status: int) -> NoReturn:
    """End this process from another thread than its main one, which cannot be reached."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    where = _user_line(traceback.extract_stack(frame)) if frame else "its end"
    say(f"{reason}, which is at {where} and does not come back by itself, is ended now")
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    os._exit(status)


def limit_exit() -> None:
    """From now on the process has five seconds left to end.

    The end of a process may wait for its GPU's work, and that for a PE that is lost. A signal comes through there.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_EXIT_SECONDS)


def _user_line(frames: traceback.StackSummary) -> str:
    """The innermost line of the user's own: below it are libraries, or we, who call libraries, wherever they lie."""
    if not frames:
        return "its end"
    ours = next((i for i, frame in enumerate(frames) if is_ours(frame.filename)), len(frames))
    users = [frame for frame in frames[:ours] if not is_library(frame.filename)]
    frame = (users or frames)[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"
