"""Operations that hosts start, in a CPU world: done when the call returns.

Collectives are as those of kernels: every PE takes what it needs from the others between two meetings, and writes its
``dst`` after the second, so that ``dst`` may be ``src``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from triton_dist.world.base import World
from triton_dist.world.host_ops import HostOps
from triton_dist.world.teams import Team

__all__ = ["CpuHostOps"]


class CpuHostOps(HostOps):
    def __init__(self, world: World) -> None:
        self._world = world

    def put(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        _refuse(stream)
        self._there(dst, pe).copy_(src.detach())

    def get(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        _refuse(stream)
        dst.detach().copy_(self._there(src, pe))

    def barrier(self, team: Team, stream: Any) -> None:
        _refuse(stream)
        self._world.together(team, "barrier()")

    def broadcast(self, team: Team, dst: torch.Tensor, src: torch.Tensor, root: int, stream: Any) -> None:
        self._run(team, f"broadcast({_of(src)} of PE {root})", dst, stream, lambda: self._taken(team, src, root))

    def fcollect(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        def take() -> torch.Tensor:
            return torch.cat([self._taken(team, src, member) for member in range(team.n_pes)])

        self._run(team, f"fcollect({_of(src)})", dst, stream, take)

    def alltoall(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        def take() -> torch.Tensor:
            return torch.cat([self._part(team, src, member) for member in range(team.n_pes)])

        self._run(team, f"alltoall({_of(src)})", dst, stream, take)

    def reduce(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        def take() -> torch.Tensor:
            return _reduced([self._taken(team, src, member) for member in range(team.n_pes)], op)

        self._run(team, f"reduce({_of(src)}, {op})", dst, stream, take)

    def reducescatter(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        def take() -> torch.Tensor:
            return _reduced([self._part(team, src, member) for member in range(team.n_pes)], op)

        self._run(team, f"reducescatter({_of(src)}, {op})", dst, stream, take)

    def _run(self, team: Team, call: str, dst: torch.Tensor, stream: Any, take: Callable[[], torch.Tensor]) -> None:
        _refuse(stream)
        self._world.together(team, call)
        result = take()
        self._world.together(team, call)
        dst.detach().copy_(result.view(dst.shape))

    def _there(self, tensor: torch.Tensor, pe: int) -> torch.Tensor:
        return self._world.peer(tensor.detach(), pe)

    def _taken(self, team: Team, src: torch.Tensor, member: int) -> torch.Tensor:
        """A copy of what a member contributes."""
        return self._there(src, team.pes[member]).clone().view(-1)

    def _part(self, team: Team, src: torch.Tensor, member: int) -> torch.Tensor:
        """A copy of what a member contributes for this PE."""
        count = src.numel() // team.n_pes
        return self._taken(team, src, member)[team.my_pe * count : (team.my_pe + 1) * count]


def _refuse(stream: Any) -> None:
    if stream is not None:
        raise ValueError("the CPU world has no streams: leave stream out")


def _of(src: torch.Tensor) -> str:
    return f"{src.numel()} of {src.dtype}"


def _reduced(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    """Member by member in their order; halves in float32 and rounded once. Sums of integers wrap around."""
    dtype = parts[0].dtype
    if dtype in (torch.float16, torch.bfloat16):
        return _reduced([part.float() for part in parts], op).to(dtype)
    if dtype.is_floating_point:
        combine: dict[str, Any] = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum}
        return reduce(combine[op], parts)
    import numpy  # torch does not compute with unsigned integers of more than 8 bits

    ufunc = {"sum": numpy.add, "min": numpy.minimum, "max": numpy.maximum}[op]
    arrays = numpy.stack([part.numpy() for part in parts])
    return torch.from_numpy(ufunc.reduce(arrays, dtype=arrays.dtype))
