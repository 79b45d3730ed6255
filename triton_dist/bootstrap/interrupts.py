"""Ctrl-C, also for a process whose main thread is in a kernel or a library, where Python cannot raise.

Python's own handler of SIGINT runs in the main thread, once that is back in Python. The number of a signal is written
to a pipe at once, however, from C; the thread that reads the pipe can see that the handler did not come to run.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

__all__ = ["Interrupts"]

_TOGETHER_SECONDS = 1.0  # the pipe may be read a little after the handler has run


class Interrupts:
    """When a Ctrl-C came, and when the main thread got to know of one."""

    def __init__(self) -> None:
        self._came = self._known = -_TOGETHER_SECONDS
        self._pipe: int | None = None

    def listen(self, pipe: int) -> None:
        """Have signals written to ``pipe``, unless the program does something of its own with them."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        if (previous := signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)) != -1:
            signal.set_wakeup_fd(previous)
            return
        signal.signal(signal.SIGINT, self._handle)
        self._pipe = pipe

    def stop(self) -> None:
        """Leave signals as they were."""
        if self._pipe is None or threading.current_thread() is not threading.main_thread():
            return
        if (now := signal.set_wakeup_fd(-1)) != self._pipe:
            signal.set_wakeup_fd(now)
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._pipe = None

    @property
    def listening(self) -> bool:
        """Whether signals may still be written to the pipe."""
        return self._pipe is not None

    def heard(self, numbers: bytes) -> None:
        """What was read from the pipe."""
        if signal.SIGINT in numbers:
            self._came = time.monotonic()

    def ignored_for(self) -> float:
        """Seconds since a Ctrl-C that the main thread has not come to know of; 0 when there is none."""
        return time.monotonic() - self._came if self._came > self._known + _TOGETHER_SECONDS else 0.0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._known = time.monotonic()
        signal.default_int_handler(number, frame)
