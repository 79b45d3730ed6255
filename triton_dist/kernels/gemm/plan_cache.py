"""The plan cache: what an operation makes once for a shape, and keeps as long as its communicator."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.workspace import refuse_in_capture

__all__ = ["PlanCache", "cached", "in_bucket", "shape_of"]

_T = TypeVar("_T")


class PlanCache:
    """The plans of one communicator's operations, by key."""

    def __init__(self, communicator: Communicator) -> None:
        self.plans: dict[Hashable, Any] = {}

    def close(self) -> None:
        self.plans.clear()


def cached(communicator: Communicator, key: Hashable, make: Callable[[], _T]) -> _T:
    """What ``make()`` returned when it was first asked for with ``key`` and this communicator.

    Raises:
        RuntimeError: that would be now, while a CUDA graph is captured.
    """
    plans = communicator.own(PlanCache).plans
    if key not in plans:
        refuse_in_capture("no GEMM with as many tiles has run yet, so that its workspace does not exist")
        plans[key] = make()
    return plans[key]  # type: ignore[no-any-return]


def shape_of(rows: int, b: torch.Tensor) -> tuple[Hashable, ...]:
    """The key of a GEMM of so many rows with ``b``: M of its bucket, K, N and the dtype."""
    return (_bucket(rows), *b.shape, b.dtype)


def in_bucket(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix without memory, for plans: like ``matrix``, with the most rows for which the plan is the same.

    Numbers of rows that have as many tiles share a plan; rows that do not exist are neither loaded nor stored.
    """
    return matrix.new_empty(_bucket(matrix.shape[0]), matrix.shape[1], device="meta")


def _bucket(rows: int) -> int:
    return 64 if rows <= 64 else -(-rows // 128) * 128  # tiles have 64 rows, or else 128
