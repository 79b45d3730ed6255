"""What takes parameters of one name for replicas, which those of experts are not: data parallelism of all kinds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch import nn

from triton_dist import torch_api
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.functional.group import communicator, resolve
from triton_dist.world import World
from triton_dist.world.current import current_world

__all__ = ["are_parts_of", "check_ddp", "check_mesh_of", "divide_gradient"]


class _Ranks:
    """The ranks of ``torch.distributed`` that a communicator's PEs are, once they have told each other."""

    def __init__(self, communicator: Communicator) -> None:
        self.found: set[int] = set()

    def close(self) -> None:
        self.found = set()


class _Right:
    """Layers whose experts a ``DistributedDataParallel`` does not have, or only between replicas."""

    def __init__(self, world: World) -> None:
        self.layers = WeakKeyDictionary[Any, "WeakSet[nn.Module]"]()

    def close(self) -> None:
        self.layers.clear()


def _ranks_of(groups: Sequence[Any]) -> set[int]:
    """*Collective* over each of the groups the first time."""
    found = set[int]()
    for group in groups:
        members = communicator("MoE", *resolve(group))
        known = members.own(_Ranks)
        if not known.found:
            told = members.exchange("the ranks of a layer of experts", str(dist.get_rank()))
            known.found = {int(rank) for rank in told}
        found |= known.found
    return found


def check_ddp(layer: nn.Module, experts: Sequence[torch.Tensor], groups: Sequence[Any]) -> None:
    """No ``DistributedDataParallel`` around this call has the ``experts`` of a layer, of which PEs of ``groups`` have
    parts each. *Collective* over these groups the first time, if there is one.

    Raises:
        RuntimeError: one has. It has copied the parts of one PE to the others.
    """
    ddp = torch_api.ddp_around()
    if ddp is None:
        return
    right = current_world().own(_Right).layers.setdefault(ddp, WeakSet())
    if layer in right:
        return
    if any(torch_api.ddp_has(ddp, parameter) for parameter in experts):
        shared = sorted(_ranks_of(groups).intersection(dist.get_process_group_ranks(ddp.process_group)))
        if len(shared) > 1:
            raise RuntimeError(
                f"MoE: the ranks {', '.join(map(str, shared))} have experts of their own, and DistributedDataParallel"
                " has copied those of one to all, and would average their gradients. Call"
                " triton_dist.nn.prepare_for_ddp(model) before DistributedDataParallel(model), and load the weights"
                " again"
            )
    right.add(layer)


def check_mesh_of(name: str, parameter: Any, groups: Sequence[Any]) -> None:
    """A DTensor in the place of experts' parameters is over PEs that have the same experts. *Collective* over
    ``groups`` the first time, if it is a DTensor.

    Raises:
        ValueError: PEs of ``groups`` have parts each.
    """
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return
    others = {rank for dim in range(mesh.ndim) for rank in dist.get_process_group_ranks(mesh.get_group(dim))}
    shared = sorted(_ranks_of(groups) & others)
    if len(shared) > 1:
        raise ValueError(
            f"MoE: {name} would be a DTensor that takes it for the same on the ranks {', '.join(map(str, shared))},"
            " which have experts of their own. Call distribute_parameters(mesh) of the layer first, with the mesh of"
            " its experts; or leave them out (fully_shard: ignored_params=)"
        )


def are_parts_of(groups: Sequence[Any], process_group: Any) -> bool:
    """Whether every PE of ``process_group``, None for all, has a part of its own of what ``groups`` share out.
    *Collective* over ``groups`` the first time."""
    others = set(dist.get_process_group_ranks(process_group))
    return math.prod(resolve(group)[0] for group in groups) == len(others) and _ranks_of(groups) <= others


def divide_gradient(tensor: torch.Tensor, by: int) -> torch.Tensor:
    """``tensor``, whose gradient is divided."""
    if by == 1 or not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    result: torch.Tensor = _DividedGradient.apply(tensor, by)  # type: ignore[no-untyped-call]
    return result


class _DividedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, by: int) -> torch.Tensor:
        ctx.by = by
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] / ctx.by, None
