"""Which errors have ended a grid in its middle: its programs have sent, or awaited, a part of what they exchange."""

from __future__ import annotations

import contextlib

__all__ = ["ended_a_grid", "mark_unfinished"]

_ATTRIBUTE = "_triton_dist_ended_a_grid"


def mark_unfinished(error: BaseException) -> None:
    """Note in an error that it has ended a grid in its middle. It may be any: what a handler of signals raises comes up
    wherever a program, or the scheduler for it, happens to be."""
    with contextlib.suppress(AttributeError):  # of a class with slots
        error.__dict__[_ATTRIBUTE] = True


def ended_a_grid(error: BaseException) -> bool:
    """Whether this error, or one that caused it, has ended a grid in its middle."""
    cause: BaseException | None = error
    while cause is not None:
        if _ATTRIBUTE in getattr(cause, "__dict__", ()):
            return True
        cause = cause.__cause__
    return False
