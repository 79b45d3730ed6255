"""Integer arguments. Floats, booleans and symbolic constants are errors; they are never converted to an integer."""

from __future__ import annotations

import enum
import operator
from typing import Any

__all__ = ["integer"]


def integer(name: str, value: Any) -> int:
    """The argument ``name`` as an int. NumPy integers and tensors of one integer are accepted.

    Raises:
        TypeError: ``value`` is not an integer, for example a boolean or a member of an enumeration (``dl.CMP_GE``).
    """
    is_bool = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    if not is_bool and not isinstance(getattr(value, "value", value), enum.Enum) and not isinstance(value, enum.Enum):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
