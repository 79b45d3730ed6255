"""Building one shmem op: the only place that knows how Triton's plugin table is called.

Triton 3.7 drops the result of a plugin op on its way to Python. We hand the op a *slot*, an op that is the identity in
its first operand, which the plugin replaces by the result; Triton folds the rest away. The other side of the
convention is lowering/lib/Plugin/OpBuilders.cpp.

Under the interpreter the builder carries ``shmem_op`` (triton_dist.world.cpu), which acts and returns a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl

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
    constants = [builder.get_int32(attribute) for attribute in attributes]
    slots = []
    if result is not None:
        zero = semantic.scalar_constant(0, result).handle
        slots.append(builder.create_or(zero, zero) if result.is_int() else _float_slot(builder, zero, result))
    getattr(builder, f"shmem_{name}")([*slots, *handles, *constants])
    return tl.tensor(slots[0], result) if slots else None


def _float_slot(builder: Any, zero: Any, result: tl.dtype) -> Any:
    return builder.create_bitcast(zero, result.to_ir(builder))
