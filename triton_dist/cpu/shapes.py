"""Blocks made of smaller ones, in the ways of numpy that take the least time for the blocks of kernels.

Triton's interpreter uses ``np.full``, ``np.broadcast_to`` and ``np.expand_dims``, which run more Python than most
operations of a kernel. Elements, shapes and dtypes are the same here, but for the answer of a comparison, which stays
boolean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl

from triton_dist.triton_api import interpreter

__all__ = ["ShapesBuilder"]

_COPIED = 1 << 14
"""The number of elements up to which a copy takes less time than ``np.broadcast_to``, which returns a view."""


class ShapesBuilder(interpreter.Builder):  # type: ignore[misc]
    """Triton's interpreter with faster splats, broadcasts and new axes."""

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        if isinstance(arg.dtype, tl.block_type):
            return super().create_splat(ret_ty, arg)
        # The answer of a comparison has the type of what was compared. As a mask, Triton 3.9 takes booleans only.
        is_answer = arg.data.dtype == np.bool_
        return _filled(ret_ty.shape, np.bool_ if is_answer else interpreter.numpy_dtype(arg.dtype), arg)

    def create_broadcast(self, arg: Any, shape: Sequence[int]) -> Any:
        if math.prod(shape) > _COPIED:
            return super().create_broadcast(arg, shape)
        return _filled(shape, arg.data.dtype, arg)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        if axis < 0:
            return super().create_expand_dims(arg, axis)
        return interpreter.handle(arg.data[(slice(None),) * axis + (None,)], arg.dtype.scalar)


def _filled(shape: Sequence[int], dtype: Any, arg: Any) -> Any:
    filled = np.empty(list(shape), dtype)
    filled[...] = arg.data
    return interpreter.handle(filled, arg.dtype.scalar)
