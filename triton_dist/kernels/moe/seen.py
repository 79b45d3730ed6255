"""What a tensor held at some time: whether it has been written to since, as far as one can tell.

PyTorch counts writes, so that this costs nothing. A view shares its number with the whole, and tensors of inference
mode have none. In the CPU world these are copied and compared; on GPUs that would take a kernel and the host's time.
"""

from __future__ import annotations

import torch

import triton_dist
from triton_dist.torch_api import version_of

__all__ = ["Seen", "is_as_seen", "see", "values_of"]

Seen = int | torch.Tensor | None
"""How often a tensor had been written to, or, where PyTorch does not say, what it held; None: neither is known."""


def see(tensor: torch.Tensor) -> Seen:
    """What :func:`is_as_seen` asks later."""
    version = version_of(tensor)
    return values_of(tensor) if version is None else version


def values_of(tensor: torch.Tensor) -> Seen:
    """The same of a tensor whose writes PyTorch does not count."""
    return tensor.clone() if triton_dist.kind() == "cpu" else None


def is_as_seen(tensor: torch.Tensor, seen: Seen) -> bool:
    """Whether the same tensor has not been written to since, as far as one can tell."""
    if isinstance(seen, torch.Tensor):
        return torch.equal(tensor, seen)
    return seen is None or version_of(tensor) == seen
