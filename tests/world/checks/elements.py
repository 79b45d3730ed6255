"""Elements of any dtype, as bits."""

from __future__ import annotations

from typing import Any

import torch

INTEGERS = (torch.int32, torch.uint32, torch.int64, torch.uint64)


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of each element. (Torch can do little with unsigned integers.)"""
    return tensor.view(torch.uint8).view(-1, tensor.itemsize)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit."""
    return torch.equal(rows(a), rows(b))


def neighbours(world: Any) -> tuple[int, int]:
    return (world.pe - 1) % world.n_pes, (world.pe + 1) % world.n_pes
