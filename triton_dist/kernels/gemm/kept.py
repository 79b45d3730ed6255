"""What an operation makes once for a shape, and keeps as long as the world."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from triton_dist.world import World
from triton_dist.world.api import _current

__all__ = ["kept"]

_T = TypeVar("_T")
_things: weakref.WeakKeyDictionary[World, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def kept(key: Hashable, make: Callable[[], _T]) -> _T:
    """What ``make()`` returned when it was first asked for with ``key`` in this world.

    Raises:
        RuntimeError: that would be now, while a CUDA graph is captured.
    """
    things = _things.setdefault(_current(), {})
    if key not in things:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a product of this shape has not run yet, so that its workspace does not exist, and it cannot be made"
                " while a CUDA graph is captured: run the same call once before"
            )
        things[key] = make()
    return things[key]  # type: ignore[no-any-return]
