"""What takes parameters of one name for replicas, which those of experts are not: data parallelism of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from triton_dist import torch_api
from triton_dist.kernels.functional.group import pes_of, resolve

__all__ = ["are_parts_of", "check_ddp", "check_mesh_of", "with_means"]


def _pes(groups: Sequence[Any]) -> set[int]:
    return {pe for group in groups for pe in pes_of(resolve(group)[1])}


def check_ddp(experts: Sequence[torch.Tensor], groups: Sequence[Any]) -> None:
    """No ``DistributedDataParallel`` around this call has the ``experts``, of which PEs of ``groups`` have parts each.

    Raises:
        RuntimeError: one has. It has copied the parts of one PE to the others.
    """
    ddp = torch_api.ddp_around()
    if ddp is None or all(torch_api.is_left_out_of_ddp(ddp, parameter) for parameter in experts):
        return
    shared = sorted(_pes(groups) & _pes([ddp.process_group]))
    if len(shared) > 1:
        raise RuntimeError(
            f"MoE: the PEs {', '.join(map(str, shared))} have experts of their own, and DistributedDataParallel has"
            " copied those of one to all, and would average their gradients. Call triton_dist.nn.prepare_for_ddp(model)"
            " before DistributedDataParallel(model), and load the weights again"
        )


def check_mesh_of(name: str, parameter: Any, groups: Sequence[Any]) -> None:
    """A DTensor in the place of experts' parameters is over PEs that have the same experts. *Collective* over the
    groups of its mesh the first time.

    Raises:
        ValueError: PEs of ``groups`` have parts each.
    """
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return
    shared = sorted(_pes(groups) & _pes([mesh.get_group(dim) for dim in range(mesh.ndim)]))
    if len(shared) > 1:
        raise ValueError(
            f"MoE: {name} would be a DTensor that takes it for the same on the PEs {', '.join(map(str, shared))}, which"
            " have experts of their own. Call distribute_parameters(mesh) of the layer first, with the mesh of its"
            " experts; or leave them out (fully_shard: ignored_params=)"
        )


def are_parts_of(groups: Sequence[Any], process_group: Any) -> bool:
    """Whether every PE of ``process_group``, None for all, has a part of its own of what ``groups`` share out."""
    count = 1
    for group in groups:
        count *= resolve(group)[0]
    others = _pes([process_group])
    return count == len(others) and _pes(groups) <= others


class _WithMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, count: int) -> torch.Tensor:
        ctx.count = count
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] / ctx.count, None


def with_means(parameter: torch.Tensor, count: int) -> torch.Tensor:
    """``parameter``, whose gradient is divided by ``count``."""
    if count == 1 or not (torch.is_grad_enabled() and parameter.requires_grad):
        return parameter
    found: torch.Tensor = _WithMeans.apply(parameter, count)  # type: ignore[no-untyped-call]
    return found
