"""Operations that hosts start, in a CPU world: done when the call returns.

Collectives are as those of kernels: every PE takes what it needs from the others between two barriers, and writes its
``dst`` after the second, so that ``dst`` may be ``src``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from triton_dist.cpu.host_copies import CopyingWorld, read_from, write_to
from triton_dist.cpu.transport import Collectives
from triton_dist.world.host_ops import HostOps
from triton_dist.world.teams import Team

__all__ = ["CpuHostOps"]


class CpuHostOps(HostOps):
    def __init__(self, world: CopyingWorld, collectives: Collectives | None) -> None:
        self._world, self._collectives = world, collectives

    def put(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        _refuse(stream)
        write_to(self._world, dst.detach(), src.detach(), pe)

    def get(self, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
        _refuse(stream)
        read_from(self._world, dst.detach(), src.detach(), pe)

    def barrier(self, team: Team, stream: Any) -> None:
        _refuse(stream)
        self._world.together(team, "barrier()")
        if self._collectives is not None:
            self._collectives.barrier(team.pes)

    def broadcast(self, team: Team, dst: torch.Tensor, src: torch.Tensor, root: int, stream: Any) -> None:
        def whole(library: Collectives) -> bool:
            return library.broadcast(team.pes, dst.detach(), src.detach(), root)

        call = f"broadcast({_of(src)} of PE {root})"
        self._run(team, call, dst, stream, lambda: self._taken(team, src, root), whole)

    def fcollect(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        def take() -> torch.Tensor:
            return torch.cat([self._taken(team, src, member) for member in range(team.n_pes)])

        def whole(library: Collectives) -> bool:
            return library.fcollect(team.pes, dst, src)

        self._run(team, f"fcollect({_of(src)})", dst, stream, take, whole)

    def alltoall(self, team: Team, dst: torch.Tensor, src: torch.Tensor, stream: Any) -> None:
        def take() -> torch.Tensor:
            return torch.cat([self._part(team, src, member) for member in range(team.n_pes)])

        def whole(library: Collectives) -> bool:
            return library.alltoall(team.pes, dst, src)

        self._run(team, f"alltoall({_of(src)})", dst, stream, take, whole)

    def reduce(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        def take() -> torch.Tensor:
            return _reduced([self._taken(team, src, member) for member in range(team.n_pes)], op)

        def whole(library: Collectives) -> bool:
            return library.reduce(team.pes, dst, src, op)

        self._run(team, f"reduce({_of(src)}, {op})", dst, stream, take, whole)

    def reducescatter(self, team: Team, dst: torch.Tensor, src: torch.Tensor, op: str, stream: Any) -> None:
        def take() -> torch.Tensor:
            return _reduced([self._part(team, src, member) for member in range(team.n_pes)], op)

        self._run(team, f"reducescatter({_of(src)}, {op})", dst, stream, take)

    def _run(
        self, team: Team, call: str, dst: torch.Tensor, stream: Any, take: Callable[[], torch.Tensor],
        whole: Callable[[Collectives], bool] | None = None,
    ) -> None:  # fmt: skip
        """``take`` makes this PE's result out of sources; ``whole`` has a transport do it all, if it can."""
        _refuse(stream)
        self._world.together(team, call)
        if whole is not None and self._collectives is not None and whole(self._collectives):
            return
        result = take()
        self._world.together(team, call)
        dst.detach().copy_(result.view(dst.shape))

    def _taken(self, team: Team, src: torch.Tensor, member: int) -> torch.Tensor:
        """A copy of what a member contributes."""
        taken = src.new_empty(src.numel())
        read_from(self._world, taken, src.detach().view(-1), team.pes[member])
        return taken

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
