"""Shapes and dtypes of tensors as callers give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from triton_dist.world.integers import integer

__all__ = ["checked_dtype", "checked_shape"]

_LARGEST = (1 << 63) - 1  # of a size


def checked_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of ``shape``, the positional arguments of a call: sizes, or one sequence of them.

    Raises:
        TypeError: a size is not an integer. ValueError: a size is negative or too large.
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = shape[0]
    try:
        sizes = tuple(integer("a size", size) for size in shape)
    except TypeError as error:
        raise TypeError(f"a shape is made of integers, got {tuple(shape)}: {error}") from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"sizes must not be negative, got {sizes}")
    if any(size > _LARGEST for size in sizes):
        raise ValueError(f"sizes must not be greater than {_LARGEST}, got {sizes}")
    return sizes


def checked_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """``dtype``, or for None ``torch.get_default_dtype()``. TypeError if it is neither."""
    if dtype is None:
        return torch.get_default_dtype()
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"expected a torch.dtype, got {dtype!r}")
    return dtype
