"""The plan cache: what an operation makes once for a shape, and keeps as long as the world."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

import triton_dist
from triton_dist.kernels.protocols.workspace import refuse_in_capture
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["PlanCache", "cached", "shape_of", "symmetric_matrix"]

_T = TypeVar("_T")


class PlanCache:
    """The plans of one world's operations, by key."""

    def __init__(self, world: World) -> None:
        self.plans: dict[Hashable, Any] = {}

    def close(self) -> None:
        self.plans.clear()


def cached(key: Hashable, make: Callable[[], _T]) -> _T:
    """What ``make()`` returned when it was first asked for with ``key`` in this world.

    Raises:
        RuntimeError: that would be now, while a CUDA graph is captured.
    """
    plans = current_world().own(PlanCache).plans
    if key not in plans:
        refuse_in_capture("a GEMM of this shape has not run yet, so that its workspace does not exist")
        plans[key] = make()
    return plans[key]  # type: ignore[no-any-return]


def shape_of(a: torch.Tensor, b: torch.Tensor) -> tuple[Hashable, ...]:
    """The key of a product a · b: M, K, N and the dtype."""
    return (a.shape[0], *b.shape, a.dtype)


def symmetric_matrix(name: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A symmetric matrix that operations of this ``name`` share. *Collective* the first time."""
    return cached((name, rows, columns, dtype), lambda: triton_dist.empty(rows, columns, dtype=dtype))
