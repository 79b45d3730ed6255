"""What carries a CPU world: symmetric memory, where all PEs meet, and what is known of their processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from triton_dist.cpu.memory import SymmetricMemory
from triton_dist.cpu.runtime.control import Caller, State
from triton_dist.cpu.team_sync import TeamBarrier

__all__ = ["Collectives", "Control", "Transport"]


class Control(Protocol):
    """What this PE knows of the processes of all PEs. :class:`~triton_dist.cpu.runtime.control.ControlBlock` is one."""

    def leave(self, pe: int) -> None:
        """This process is ``pe`` no longer."""

    def state(self, pe: int) -> State:
        """What has become of a PE's process, as far as it can be seen."""

    def pid(self, pe: int) -> int:
        """The process of ``pe``."""

    def abort(self, pe: int, reason: str) -> None:
        """Break the world at the fault of ``pe``. Only the first call counts."""

    def aborted(self) -> tuple[int, str] | None:
        """At whose fault the world is broken, and why; None if it is not."""


class Collectives(Protocol):
    """Collectives that block the process, for hosts. All members, PEs of the world, have come to the same call.

    Each says whether it was done; if not, which all members find alike, nothing was. Tensors are contiguous and
    symmetric.
    """

    def barrier(self, members: range) -> bool: ...

    def broadcast(self, members: range, dst: torch.Tensor, src: torch.Tensor, root: int) -> bool: ...

    def fcollect(self, members: range, dst: torch.Tensor, src: torch.Tensor) -> bool: ...

    def alltoall(self, members: range, dst: torch.Tensor, src: torch.Tensor) -> bool: ...

    def reduce(self, members: range, dst: torch.Tensor, src: torch.Tensor, op: str) -> bool: ...


@dataclass(frozen=True)
class Transport:
    """Made by all PEs together."""

    heap: SymmetricMemory
    control: Control
    barriers: Mapping[Caller, TeamBarrier]
    """Where all PEs meet."""

    collectives: Collectives | None = None
    """The transport's own, if it has any."""

    close: Callable[[], None] = lambda: None
    """Called by all PEs together, as the last they do in a world that ends well."""
