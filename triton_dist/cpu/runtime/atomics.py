"""Atomic operations on words of 8, 16, 32 and 64 bits, by address, of unsigned integers.

The caller has checked that the address is mapped and a multiple of the word's size. What does not fit into the word is
cut to its lowest bits.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from dataclasses import dataclass

from triton_dist.cpu.runtime.library import function

__all__ = ["WORDS", "Order", "Word", "fence"]


class Order(enum.IntEnum):
    """Memory orders, with the compiler's numbers (``__ATOMIC_RELAXED`` and so on)."""

    RELAXED = 0
    ACQUIRE = 2
    RELEASE = 3
    ACQUIRE_RELEASE = 4
    SEQUENTIALLY_CONSISTENT = 5


@dataclass(frozen=True)
class Word:
    """Atomic operations on words of one size; each takes its arguments by position."""

    load: Callable[[int, Order], int]
    store: Callable[[int, int, Order], None]
    exchange: Callable[[int, int, Order], int]
    fetch_add: Callable[[int, int, Order], int]
    fetch_and: Callable[[int, int, Order], int]
    fetch_or: Callable[[int, int, Order], int]
    fetch_xor: Callable[[int, int, Order], int]
    compare_swap: Callable[[int, int, int, Order], int]
    """Address, expected value, new value, order; gives the value before."""


def _word(bits: int) -> Word:
    address, word, order = ctypes.c_uint64, getattr(ctypes, f"c_uint{bits}"), ctypes.c_int
    updates = {
        name: function(f"{name}{bits}", word, address, word, order)
        for name in ("exchange", "fetch_add", "fetch_and", "fetch_or", "fetch_xor")
    }
    return Word(
        load=function(f"load{bits}", word, address, order),
        store=function(f"store{bits}", None, address, word, order),
        compare_swap=function(f"compare_swap{bits}", word, address, word, word, order),
        **updates,
    )


WORDS = {bits // 8: _word(bits) for bits in (8, 16, 32, 64)}
"""By their size in bytes."""

fence: Callable[[], None] = function("fence", None)
"""A sequentially consistent fence."""
