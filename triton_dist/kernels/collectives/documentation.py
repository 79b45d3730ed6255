"""What the documentation of every collective says, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["collective"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SHARED = """
*Collective*, on the current stream. When a call has ended on a PE, as far as that PE's stream is concerned, its result
is complete there and its input may be overwritten. A call may be captured in a CUDA graph after it has run once.

Tensors are contiguous, on this PE's device, and have the same shape and dtype on all PEs. Those that peers store to or
load from are symmetric; for ``low_latency``, ``one_shot`` and ``two_shot`` none need be. ``algorithm="auto"`` takes the
algorithm with the lowest estimate for the size (``model.py``). Equal inputs give equal results.

Raises:
    TypeError, ValueError: an argument is not as described; the message says which and how.
"""


def collective(function: _F) -> _F:
    """Append to a collective's documentation what holds for all of them."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{_SHARED}"
    return function
