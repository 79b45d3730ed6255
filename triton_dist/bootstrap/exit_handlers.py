"""An end of the process without what C libraries have registered for it."""

from __future__ import annotations

from ctypes import CDLL, c_void_p, cast

__all__ = ["skip_exit_handlers"]


def skip_exit_handlers() -> None:
    """The process exits, with its status, before the handlers of atexit(3) that are registered by now.

    Handlers are called last first: the streams of C are closed, then the process ends.
    """
    libc = CDLL(None)
    libc.on_exit(cast(libc._exit, c_void_p), None)  # which takes the status, and the null for nothing
    libc.on_exit(cast(libc.fcloseall, c_void_p), None)
