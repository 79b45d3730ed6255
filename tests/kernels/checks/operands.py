"""Operands that are the same on every PE, and what a process that has them all would make of them."""

from __future__ import annotations

from typing import Any

import torch


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    """Small integers, so that every order of additions gives the same; the same on every PE."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_()


def part(tensor: torch.Tensor, dim: int, world: Any) -> torch.Tensor:
    return tensor.chunk(world.n_pes, dim)[world.pe]


def same(found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert found is not None and expected is not None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def weighted(tensor: torch.Tensor, seed: int = 9) -> torch.Tensor:
    """A loss whose gradient is different for every element; ``tensor`` is the whole of what the PEs have."""
    return (tensor * whole(*tensor.shape, seed=seed)).sum()
