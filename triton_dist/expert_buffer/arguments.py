"""What calls of a ``Buffer`` check of their arguments."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["check_ids", "check_range", "check_tensor", "refuse"]


def check_ids(function: str, ids: Any) -> None:
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.dtype not in (torch.int32, torch.int64):
        found = f"{tuple(ids.shape)} of {ids.dtype}" if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"{function}: topk_idx must be [T, top_k] of torch.int64 or torch.int32, got {found}")


def check_range(function: str, ids: torch.Tensor, num_experts: int) -> None:
    """Each of ``ids``, which the host has, is an expert's, or -1."""
    wrong = ids[(ids < -1) | (ids >= num_experts)]
    if wrong.numel():
        raise ValueError(
            f"{function}: topk_idx must be -1 or in [0, {num_experts}), the experts of all ranks, got {int(wrong[0])}"
        )


def check_tensor(
    function: str, name: str, tensor: Any, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None
) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}: {name} must be a torch.Tensor, got {type(tensor).__name__}")
    if shape is not None and tuple(tensor.shape) != shape:
        raise ValueError(f"{function}: {name} must be {shape}, got {tuple(tensor.shape)}")
    if dtype is not None and tensor.dtype != dtype:
        raise ValueError(f"{function}: {name} must be of {dtype}, got {tensor.dtype}")


def refuse(function: str, name: str, given: Any, instead: str) -> None:
    """NotImplementedError if DeepEP's argument ``name``, which does nothing as None or False, is given."""
    if given is not None and given is not False:
        raise NotImplementedError(f"{function}: {name} is not supported: {instead}")
