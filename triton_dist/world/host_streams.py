"""What stands for CUDA streams and the copy engine in a world without GPUs, for kernels that work beside copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from triton_dist.stream_operations import Operation

__all__ = ["HostStreams"]


class HostStreams(ABC):
    """Of one PE. Work is done when it is queued, but for what a block's side stream gets, and kernels beside it."""

    @abstractmethod
    def beside(self) -> AbstractContextManager[Any]:
        """A block with a side stream, whose handle is ``cuda_stream`` of what it gives. What the block launches, and
        what the stream gets, is done at its end, at the same time."""

    @abstractmethod
    def launch(self, run: Callable[[], object]) -> None:
        """Launch a kernel now, or at the end of the block."""

    @abstractmethod
    def put(self, operations: Iterable[Operation], number: int, stream: int, first: int, second: int) -> int:
        """As ``stream_operations.Functions.put``; returns 0, and raises errors."""

    @property
    @abstractmethod
    def lacks(self) -> str:
        """Why there is no copy engine; empty if there is one."""
