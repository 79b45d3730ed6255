"""What an operation makes once for a shape, and keeps as long as the world."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

import triton_dist
from triton_dist.kernels.protocols.workspace import refuse_in_capture
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["Kept", "kept", "room", "shape_of"]

_T = TypeVar("_T")


class Kept:
    """What operations of one world keep."""

    def __init__(self, world: World) -> None:
        self.things: dict[Hashable, Any] = {}

    def close(self) -> None:
        self.things.clear()


def kept(key: Hashable, make: Callable[[], _T]) -> _T:
    """What ``make()`` returned when it was first asked for with ``key`` in this world.

    Raises:
        RuntimeError: that would be now, while a CUDA graph is captured.
    """
    things = current_world().own(Kept).things
    if key not in things:
        refuse_in_capture("a product of this shape has not run yet, so that its workspace does not exist")
        things[key] = make()
    return things[key]  # type: ignore[no-any-return]


def shape_of(a: torch.Tensor, b: torch.Tensor) -> tuple[Hashable, ...]:
    """What a product a · b is kept by: M, K, N and the type."""
    return (a.shape[0], *b.shape, a.dtype)


def room(name: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A symmetric matrix to work in. *Collective* the first time."""
    return kept((name, rows, columns, dtype), lambda: triton_dist.empty(rows, columns, dtype=dtype))
