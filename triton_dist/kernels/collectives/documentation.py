"""What the documentation of every collective says, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["collective"]

_F = TypeVar("_F", bound=Callable[..., Any])

_SHARED = """
*Collective* over ``group``: None for all PEs of the world, a ``triton_dist.Team``, a ``ProcessGroup``, a ``DeviceMesh``
of one dimension, or a :class:`~triton_dist.kernels.Communicator`. PEs are numbered as the group's ranks, and ``n_pes``
is its size. The call works on the current stream. When it has ended on a PE, as far as that PE's stream is concerned,
its result is complete there and its input may be overwritten. A call may be captured in a CUDA graph after it has run
once.

Tensors are contiguous, on this PE's device, and have the same shape and dtype on all members. They may begin anywhere;
some that begin at no multiple of 4 bytes are copied (``any_address.py``). Those that peers store to or load from are
symmetric on all members; for ``low_latency``, ``one_shot``, ``two_shot`` and ``two_level`` none need be. Over several
hosts there is ``two_level`` only, by load and store inside a host and puts between hosts.
``algorithm="auto"`` takes the algorithm with the lowest estimate for the size (``model.py``). Equal inputs give equal
results.

Raises:
    TypeError, ValueError: an argument is not as described; the message says which and how.
    RuntimeError: another thread is in a call of the same communicator; members call with different arguments.
"""


def collective(function: _F) -> _F:
    """Append to a collective's documentation what holds for all of them."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n{_SHARED}"
    return function
