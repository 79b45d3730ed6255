"""Parameters of a layer of experts as DTensors, which say what part of the whole a PE has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from triton_dist import torch_api
from triton_dist.kernels.functional.group import are_alike, rank_of, resolve

__all__ = ["check_mesh", "distribute"]


def check_mesh(function: str, mesh: Any, groups: Sequence[tuple[str, Any]]) -> None:
    """The dimensions of a mesh are groups, which have names, in their order.

    Raises:
        TypeError: it is no mesh. ValueError: a dimension has other PEs, or these in another order.
    """
    names = ", ".join(name for name, _ in groups)
    if not torch_api.is_mesh(mesh):
        raise TypeError(f"{function}: mesh must be a DeviceMesh, got {type(mesh).__name__}")
    if mesh.ndim != len(groups):
        raise ValueError(f"{function}: mesh must have {len(groups)} dimensions ({names}), got {mesh.ndim}")
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(f"{function}: this PE is not in the mesh")
    for dim, (name, group) in enumerate(groups):
        (size, own), (other_size, other) = resolve(group), resolve(mesh.get_group(dim))
        if size != other_size or not are_alike(own, other) or place[dim] != rank_of(own):
            raise ValueError(
                f"{function}: dimension {dim} of the mesh must have the PEs of {name}, in their order; it has"
                f" {other_size} PEs, of which this is number {place[dim]}, and {name} {size}, of which this is number"
                f" {rank_of(own)}"
            )


def distribute(parameter: nn.Parameter, local: torch.Tensor, mesh: Any, shards: Sequence[int | None]) -> nn.Parameter:
    """A DTensor in place of ``parameter``, of which ``local`` are this PE's elements.

    Args:
        shards: for each dimension of the mesh the one of ``local`` along which it has parts, or None: all its PEs have
            the same, which is that of the first one. *Collective* then, but on the device ``meta``.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    if all(dim is None for dim in shards) and not local.is_meta:
        made = distribute_tensor(local.detach(), mesh, [Replicate()] * len(shards))
    else:
        placements = [Replicate() if dim is None else Shard(dim) for dim in shards]
        made = DTensor.from_local(local.detach(), mesh, placements, run_check=False)
    return nn.Parameter(made, parameter.requires_grad)
