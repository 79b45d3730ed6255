"""Blocks of a peer's memory: Triton's loads and stores, on another PE.

Only for PEs that can be reached by load and store (``is_reachable``).
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language._builtin import builtin
from triton_dist.language._emit import check_block
from triton_dist.language._types import Integer, Number, Pointer
from triton_dist.language.query import symm_at

__all__ = ["load", "store"]


@builtin
def load(
    ptr: Pointer,
    pe: Integer,
    mask: tl.tensor | None = None,
    other: Number | None = None,
    _semantic: Any = None,
) -> tl.tensor:
    """``tl.load`` of the symmetric objects at ``ptr`` on PE ``pe``.

    Args:
        ptr: a pointer into the symmetric heap, or a block of them.
        pe: the PE to load from.
        mask: a block of int1: which elements to load; all if None.
        other: what the others shall be.
    """
    check_block(_semantic, ptr, mask)
    there = symm_at(ptr, pe, _semantic=_semantic)
    return tl.load(there, mask=mask, other=other, _semantic=_semantic)


@builtin
def store(ptr: Pointer, value: Number, pe: Integer, mask: tl.tensor | None = None, _semantic: Any = None) -> None:
    """``tl.store`` to the symmetric objects at ``ptr`` on PE ``pe``, ordered as stores through ``symm_at`` are.

    Args:
        ptr: a pointer into the symmetric heap, or a block of them.
        value: what to store, of ``ptr``'s shape and element type.
        pe: the PE to store to.
        mask: a block of int1: which elements to store; all if None.
    """
    check_block(_semantic, ptr, mask)
    tl.store(symm_at(ptr, pe, _semantic=_semantic), value, mask=mask, _semantic=_semantic)
