"""What a world does for operations that hosts start: what a kernel can do with whole tensors, in the order of a stream.

:mod:`triton_dist.world.checked_ops` checks the caller's operands and calls this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from triton_dist.world.teams import Team

__all__ = ["REDUCTIONS", "HostOps"]

REDUCTIONS = ("sum", "min", "max")
"""What hosts can reduce with: the operations that nvshmem4py has."""


class HostOps(ABC):
    """The operations of one world. Operands are checked: contiguous where not said otherwise, and of one dtype.

    ``stream`` is a ``torch.cuda.Stream`` or None for the current one; a world without streams takes None only.
    """

    @abstractmethod
    def put(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        """Copy ``src`` to ``dst`` on ``pe``. Any strides."""

    @abstractmethod
    def get(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        """Copy ``src`` on ``pe`` to ``dst``. Any strides."""

    @abstractmethod
    def barrier(self, team: Team, stream: Any) -> None: ...

    @abstractmethod
    def broadcast(self, team: Team, dst: torch.Tensor, src: torch.Tensor, root: int, stream: Any) -> None: ...

    @abstractmethod
    def fcollect(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None: ...

    @abstractmethod
    def alltoall(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None: ...

    @abstractmethod
    def reduce(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None: ...

    @abstractmethod
    def reducescatter(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None: ...
