"""What PyTorch's ``FlopCounterMode`` counts of GEMMs that are operators: two for each multiply-add of this PE.

Formulas take the shapes of an operator's arguments, and of its results as ``out_shape``. What experts and attention
multiply is not counted: how much that is, is known on the GPU only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

__all__ = ["of_operand", "of_operand_twice", "of_result", "of_results"]

_Shape = Sequence[int]


def of_operand(a: _Shape, b: _Shape, *_: Any, out_shape: Any, **__: Any) -> int:
    """Of a GEMM of ``a``'s rows."""
    return 2 * prod(a[:-1]) * prod(b)


def of_result(a: _Shape, b: _Shape, *_: Any, out_shape: _Shape, **__: Any) -> int:
    """Of a GEMM of all PEs' rows, as many as the result has."""
    return 2 * prod(out_shape[:-1]) * prod(b)


def of_results(a: _Shape, b: _Shape, *_: Any, out_shape: Sequence[_Shape], **__: Any) -> int:
    """As :func:`of_result`, where that is the first of several."""
    return of_result(a, b, out_shape=out_shape[0])


def of_operand_twice(grad: _Shape, a: _Shape, b: _Shape, *_: Any, out_shape: Any, **__: Any) -> int:
    """Of the gradients of both operands, of whose GEMM ``grad`` or ``a`` has all rows, and the other this PE's."""
    return 4 * max(prod(grad[:-1]), prod(a[:-1])) * prod(b)
