"""8-bit floats as GPUs convert them: to nearest even, and to the largest finite value where they would overflow.

Triton's interpreter rounds a tie up, loses the carry of a significand and the smallest values, and takes e4m3's NaN for
a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

from triton_dist.cpu.bfloat16 import decode, encode
from triton_dist.triton_api import interpreter
from triton_dist.triton_api.interpreter import TensorHandle

__all__ = ["Float8Builder"]

_DTYPES = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}


class Float8Builder(interpreter.Builder):  # type: ignore[misc]
    """Triton's interpreter with conversions from and to e4m3 and e5m2 as of NVIDIA's GPUs."""

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if not interpreter.rounds_to_nearest(rounding_mode) or not {source, target} & _DTYPES.keys():
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        values = _values(src.data, source)
        if target in _DTYPES:
            limit = torch.finfo(_DTYPES[target]).max
            rounded = torch.from_numpy(np.clip(values, -limit, limit)).to(_DTYPES[target])
            return TensorHandle(rounded.view(torch.uint8).numpy(), target)
        if target == tl.bfloat16:
            return TensorHandle(encode(values), target)
        return TensorHandle(values.astype(interpreter.numpy_dtype(target)), target)


def _values(data: Any, dtype: tl.dtype) -> Any:
    """The values of an array as the interpreter keeps it, as float32."""
    if dtype == tl.bfloat16:
        return decode(data)
    if dtype in _DTYPES:
        kept = torch.from_numpy(np.ascontiguousarray(data).view(np.uint8))
        return kept.view(_DTYPES[dtype]).float().numpy()
    return data.astype(np.float32)
