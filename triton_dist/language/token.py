"""Tokens keep loads behind the wait that protects them, through Triton's software pipeliner."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["consume_token"]


@builtin
def consume_token(value: Any, token: tl.tensor, _semantic: Any = None) -> tl.tensor:
    """``value``, from now on depending on the wait that returned ``token``.

    Triton pipelines a loop with ``num_stages > 1`` by issuing the loads of later iterations early, and knows nothing of
    signals. A pointer that consumed the token of a wait cannot be loaded from before the wait of its own iteration:

        token = dl.signal_wait_until(flags + k, dl.CMP_GE, 1)
        a = tl.load(dl.consume_token(a_ptrs, token))

    Costs nothing at run time.

    Args:
        value: a pointer or an integer, scalar or block. A constant (a ``tl.constexpr``, an argument that Triton has
            specialised to 1) is an integer like any other; the result is a tensor.
        token: what a wait returned.
    """
    if isinstance(value, tl.tensor_descriptor):
        raise TypeError(
            "consume_token: a tensor descriptor cannot carry a token; let an offset of the load do: "
            "desc.load([dl.consume_token(row, token), column])"
        )
    constant = getattr(value, "value", value)
    if isinstance(constant, int) and not isinstance(constant, bool):
        value = _semantic.to_tensor(constant)
    if not isinstance(value, tl.tensor) or not (value.type.scalar.is_ptr() or value.type.scalar.is_int()):
        raise TypeError(f"consume_token: value must be a pointer or an integer, got {value!r}")
    if not isinstance(token, tl.tensor) or token.type not in (tl.int64, tl.uint64):
        raise TypeError(f"consume_token: token must be what a wait returned, got {token!r}")
    zero = emit(_semantic, op_table.TOKEN_ZERO, token=token, result=tl.int32)
    if value.type.scalar.is_int():
        zero = _semantic.cast(zero, value.type.scalar)
    return _semantic.add(value, zero, sanitize_overflow=False)
