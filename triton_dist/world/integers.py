"""Integers that a caller passes: a float, a truth value or a symbolic constant is a mistake, never rounded or read."""

from __future__ import annotations

import enum
import operator
from typing import Any

__all__ = ["integer"]


def integer(name: str, value: Any) -> int:
    """``value``, the argument ``name``, as an int. NumPy's integers and tensors of one integer are integers, too.

    Raises:
        TypeError: it is none. Truth values and members of an enumeration (``dl.CMP_GE``) are none.
    """
    is_bool = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    if not is_bool and not isinstance(getattr(value, "value", value), enum.Enum) and not isinstance(value, enum.Enum):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
