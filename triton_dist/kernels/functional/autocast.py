"""What ``torch.autocast`` makes of operands, which it does for PyTorch's own linear layers only."""

from __future__ import annotations

import torch

__all__ = ["as_autocast", "multiplied"]


def as_autocast(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in autocast's dtype, where autocast is on; float64 is left as it is, as PyTorch leaves it."""
    kind = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` of their own dtype, whether autocast is on or not, as operators say of their results."""
    kind = a.device.type
    if not torch.is_autocast_enabled(kind):
        return a @ b
    with torch.autocast(kind, enabled=False):
        return a @ b
