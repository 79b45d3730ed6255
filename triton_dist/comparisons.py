"""What each comparison of the op table computes, and its sign in messages."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from triton_dist._C.op_table import Cmp

__all__ = ["COMPARE", "SIGNS"]

COMPARE: dict[Cmp, Callable[[Any, Any], bool]] = {
    Cmp.EQ: operator.eq,
    Cmp.NE: operator.ne,
    Cmp.GT: operator.gt,
    Cmp.GE: operator.ge,
    Cmp.LT: operator.lt,
    Cmp.LE: operator.le,
}

SIGNS = {Cmp.EQ: "==", Cmp.NE: "!=", Cmp.GT: ">", Cmp.GE: ">=", Cmp.LT: "<", Cmp.LE: "<="}
