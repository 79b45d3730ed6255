"""Layers of experts in ``DistributedDataParallel``."""

from __future__ import annotations

from typing import Any

from torch import nn

from triton_dist import torch_api
from triton_dist.nn.moe import EXPERTS, MoE
from triton_dist.nn.replicas import are_parts_of

__all__ = ["prepare_for_ddp"]


def prepare_for_ddp(model: nn.Module, process_group: Any = None) -> nn.Module:
    """Have ``DistributedDataParallel(model, process_group=process_group)`` leave the experts to their PEs.

    It copies all parameters of one PE to the others, and averages their gradients. Those of experts, which are sums
    over the losses of all PEs with tokens of their own, are divided by their number from now on, so that they are
    means, too. The router and the shared expert are replicas, as the rest of the model. *Collective* the first time.

    Args:
        model: with layers of :class:`MoE` anywhere in it; it is changed, and returned.
        process_group: None for PyTorch's default group, whose PEs must be all of the world.

    Raises:
        TypeError: an argument is not as described.
        ValueError: PEs of ``process_group`` have the same experts, whose gradients nothing would average: shard such a
            model by ``fully_shard``. Or parameters are DTensors, which DistributedDataParallel does not take.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"prepare_for_ddp: model must be a module, got {type(model).__name__}")
    if process_group is not None and not torch_api.is_process_group(process_group):
        raise TypeError(f"prepare_for_ddp: process_group must be a ProcessGroup, got {type(process_group).__name__}")
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, MoE)}
    for path, layer in layers.items():
        if layer.mesh is not None:
            raise ValueError(f"prepare_for_ddp: {path or 'the model'} has DTensors: shard it by fully_shard")
        if not are_parts_of(layer.groups(), process_group):
            raise ValueError(
                f"prepare_for_ddp: PEs of process_group have the same experts of {path or 'the model'}, or some of its"
                " PEs are not among them: shard it by MoE.distribute_parameters and fully_shard"
            )
    for path, layer in layers.items():
        torch_api.leave_out_of_ddp(model, [f"{path}.{name}".lstrip(".") for name in EXPERTS])
        layer.divisor = layer.n_losses()
    return model
