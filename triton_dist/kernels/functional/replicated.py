"""Gradients of what all PEs of a group have alike, and each uses in its own way: the sum of those that PEs compute."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["sum_gradients"]

_ops: Any = torch.ops.triton_dist


def sum_gradients(tensor: torch.Tensor, group_size: int, group_name: str) -> torch.Tensor:
    """``tensor``, which has the sum of the PEs' gradients as its gradient; nothing is done where none is recorded.

    It and the :func:`~triton_dist.kernels.functional.all_reduce` with ``reduce_grad=False`` are each other's backward,
    as in Megatron-LM ("Efficient Large-Scale Language Model Training on GPU Clusters", arXiv 1909.08053, section 3).
    """
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    result: torch.Tensor = _SummedGradients.apply(tensor, group_size, group_name)
    return result


class _SummedGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group_size: int, group_name: str) -> torch.Tensor:
        ctx.where = group_size, group_name
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _ops.all_reduce(grad.contiguous(), "sum", *ctx.where, reduce_grad=False), None, None
