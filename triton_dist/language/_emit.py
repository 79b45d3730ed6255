"""Building one shmem op, through Triton's plugin table.

Under the interpreter the builder carries ``shmem_op`` (triton_dist.cpu), which acts and returns a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl

from triton_dist import triton_api

__all__ = ["emit"]


def emit(
    semantic: Any,
    name: str,
    operands: Sequence[tl.tensor] = (),
    attributes: Sequence[int] = (),
    result: tl.dtype | None = None,
) -> Any:
    """Build ``shmem.<name>``; its result as a scalar of dtype ``result``, or None when it has none."""
    builder = semantic.builder
    handles = [operand.handle for operand in operands]
    if hasattr(builder, "shmem_op"):
        value = builder.shmem_op(name, handles, list(attributes))
        if result is None:
            return None
        if result.is_int_unsigned():
            value %= 1 << result.primitive_bitwidth  # an op answers with a signed number
        return tl.tensor(getattr(builder, f"get_{result.name}")(value), result)  # scalar_constant loses -0.0
    handle = triton_api.build_plugin_op(semantic, f"shmem_{name}", handles, attributes, result)
    return None if handle is None else tl.tensor(handle, result)
