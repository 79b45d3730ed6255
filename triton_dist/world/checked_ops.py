"""Operations that hosts start, behind checks of the caller's operands; a world does them (:class:`HostOps`).

Names and meanings are those of the device operations (:mod:`triton_dist.language`), with tensors for pointers and
counts.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.world.base import World
from triton_dist.world.host_ops import REDUCTIONS
from triton_dist.world.integers import integer
from triton_dist.world.non_member import NonMember
from triton_dist.world.teams import Team

__all__ = ["alltoall", "barrier", "broadcast", "fcollect", "get", "put", "reduce", "reducescatter"]

_REDUCED = (
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def put(world: World, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
    pe = world.check_pe(pe)
    _check_copy(world, "put", dst, src)
    world.check_symmetric(dst, "put: dst")
    if src.numel():
        world.host_ops.put(dst, src, pe, stream)


def get(world: World, dst: torch.Tensor, src: torch.Tensor, pe: int, stream: Any) -> None:
    pe = world.check_pe(pe)
    _check_copy(world, "get", dst, src)
    world.check_symmetric(src, "get: src")
    if src.numel():
        world.host_ops.get(dst, src, pe, stream)


def barrier(world: World, team: Team | None, stream: Any) -> None:
    world.host_ops.barrier(_check_team(world, "barrier", team), stream)


def broadcast(world: World, dst: torch.Tensor, src: torch.Tensor, root: int, team: Team | None, stream: Any) -> None:
    members = _check_collective(world, "broadcast", team, dst, src)
    root = integer("broadcast: root", root)
    if not 0 <= root < members.n_pes:
        raise ValueError(f"broadcast: root {root} is out of range [0, {members.n_pes})")
    _check_count("broadcast", dst, src, 1, 1)
    if src.numel():
        world.host_ops.broadcast(members, dst, src, root, stream)


def fcollect(world: World, dst: torch.Tensor, src: torch.Tensor, team: Team | None, stream: Any) -> None:
    members = _check_collective(world, "fcollect", team, dst, src)
    _check_count("fcollect", dst, src, members.n_pes, 1)
    if src.numel():
        world.host_ops.fcollect(members, dst, src, stream)


def alltoall(world: World, dst: torch.Tensor, src: torch.Tensor, team: Team | None, stream: Any) -> None:
    members = _check_collective(world, "alltoall", team, dst, src)
    _check_count("alltoall", dst, src, 1, 1)
    if src.numel() % members.n_pes:
        raise ValueError(f"alltoall: {src.numel()} elements cannot be shared out to {members.n_pes} PEs")
    if src.numel():
        world.host_ops.alltoall(members, dst, src, stream)


def reduce(world: World, dst: torch.Tensor, src: torch.Tensor, op: str, team: Team | None, stream: Any) -> None:
    members = _check_collective(world, "reduce", team, dst, src)
    _check_reduction("reduce", op, src)
    _check_count("reduce", dst, src, 1, 1)
    if src.numel():
        world.host_ops.reduce(members, dst, src, op, stream)


def reducescatter(world: World, dst: torch.Tensor, src: torch.Tensor, op: str, team: Team | None, stream: Any) -> None:
    members = _check_collective(world, "reducescatter", team, dst, src)
    _check_reduction("reducescatter", op, src)
    _check_count("reducescatter", dst, src, 1, members.n_pes)
    if src.numel():
        world.host_ops.reducescatter(members, dst, src, op, stream)


# ---- checks


def _check_copy(world: World, op: str, dst: torch.Tensor, src: torch.Tensor) -> None:
    world.check_live()
    for name, tensor in (("dst", dst), ("src", src)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a torch.Tensor, got {type(tensor).__name__}")
        if tensor.device != world.device:
            raise ValueError(f"{op}: {name} is on {tensor.device}, and this PE's symmetric heap on {world.device}")
    if dst.dtype != src.dtype:
        raise ValueError(f"{op}: dst is of {dst.dtype} and src of {src.dtype}: they must be of one dtype")
    if op in ("put", "get") and dst.shape != src.shape:
        raise ValueError(f"{op}: dst has shape {tuple(dst.shape)} and src {tuple(src.shape)}: they must be equal")


def _check_team(world: World, op: str, team: Team | None) -> Team:
    world.check_live()
    if team is None:
        return world.team_world
    if isinstance(team, NonMember):
        team.refuse(op)
    if not isinstance(team, Team):
        raise TypeError(f"{op}: team must be a triton_dist.Team or None, got {type(team).__name__}")
    if team.world is not world:
        raise ValueError(f"{op}: {team} is a team of another world")
    team.check_member(op)
    return team


def _check_collective(world: World, op: str, team: Team | None, dst: torch.Tensor, src: torch.Tensor) -> Team:
    members = _check_team(world, op, team)
    _check_copy(world, op, dst, src)
    for name, tensor in (("dst", dst), ("src", src)):
        world.check_symmetric(tensor, f"{op}: {name}")
        if not tensor.is_contiguous():
            raise ValueError(
                f"{op}: {name} of shape {tuple(tensor.shape)} and strides {tensor.stride()}: not contiguous"
            )
    return members


def _check_count(op: str, dst: torch.Tensor, src: torch.Tensor, of_src: int, of_dst: int) -> None:
    """dst has ``of_src`` times as many elements as src has, or src ``of_dst`` times as many as dst."""
    if dst.numel() * of_dst != src.numel() * of_src:
        times = of_src if of_dst == 1 else of_dst
        larger, smaller = ("dst", "src") if of_dst == 1 else ("src", "dst")
        needed = f"as many elements as {smaller}" if times == 1 else f"{times} times as many elements as {smaller}"
        raise ValueError(f"{op}: {larger} must have {needed}: dst has {dst.numel()}, src {src.numel()}")


def _check_reduction(op: str, reduction: str, src: torch.Tensor) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{op}: op is {reduction!r}: it must be one of {', '.join(REDUCTIONS)} (kernels have more)")
    if src.dtype not in _REDUCED:
        raise ValueError(f"{op}: {src.dtype} cannot be reduced")
