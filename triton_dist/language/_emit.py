"""Building one shmem op, through Triton's plugin table.

Under the interpreter the builder carries ``shmem_op`` (triton_dist.cpu), which acts and returns the result.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist import triton_api
from triton_dist._C.op_table import Op

__all__ = ["check_block", "emit"]


def emit(semantic: Any, op: Op, /, *, result: tl.dtype | None = None, **arguments: Any) -> Any:
    """Build ``op``; its result as a scalar of dtype ``result``, or None when it has none.

    Args:
        arguments: the op's operands, as scalars, and its attributes, as members of their enumerations, by the table's
            names.
    """
    assert arguments.keys() == {*op.operands, *op.attributes}, f"{op.name} takes {[*op.operands, *op.attributes]}"
    assert (result is None) == (op.result is None)
    attributes = [arguments[name] for name in op.attributes]
    assert all(map(isinstance, attributes, op.attributes.values())), f"{op.name} takes {op.attributes}"
    handles = [arguments[name].handle for name in op.operands]
    builder = semantic.builder
    if hasattr(builder, "shmem_op"):
        handle = builder.shmem_op(op, handles, attributes, result)
    else:
        handle = triton_api.build_plugin_op(semantic, f"shmem_{op.name}", handles, list(map(int, attributes)), result)
    return None if handle is None else tl.tensor(handle, result)


def check_block(semantic: Any, ptr: Any, mask: Any) -> None:
    """In the CPU world, that the pointers that ``mask`` lets through are symmetric. On GPUs no one checks them."""
    if hasattr(semantic.builder, "check_block") and isinstance(ptr, tl.tensor) and ptr.type.is_block():
        semantic.builder.check_block(ptr.handle, mask.handle if isinstance(mask, tl.tensor) else None)
