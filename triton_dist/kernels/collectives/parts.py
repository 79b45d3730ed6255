"""Parts of a tensor, one of each PE, of which the last may be shorter, or have no elements.

A kernel is given the elements of a whole part and those of all, or None where all parts are whole: nothing of this is
left in the kernel then.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["are_in_part", "is_wide", "length_of_part", "part_of", "store_in_parts", "widened"]


def part_of(n: int, n_pes: int) -> int:
    """How many of ``n`` each PE adds up: a multiple of 16, so that parts are as well aligned as the whole is."""
    return -(-n // (16 * n_pes)) * 16


def is_wide(elements: int, block: int) -> bool:
    """Whether offsets of so many elements, rounded up to whole blocks of ``block``, need 64 bits.

    Kernels are compiled for that anew. For fewer, offsets of 32 bits take fewer registers.
    """
    return elements + block > 1 << 31


@triton.jit
def widened(number, WIDE: tl.constexpr):
    """``number``, of which offsets are made, as an int64 where these are ``WIDE``."""
    if WIDE:
        return tl.cast(number, tl.int64)
    else:
        return number


@triton.jit
def length_of_part(pe, part, total):
    """How many elements there are of a PE's part."""
    if total is None:
        return part
    else:
        return tl.maximum(tl.minimum(total - pe.to(tl.int64) * part, part), 0)


@triton.jit
def are_in_part(offsets, pes, part, total):
    """Which ``offsets`` are in the parts of ``pes``; both broadcast."""
    if total is None:
        return offsets < part
    else:
        return (offsets < part) & (pes.to(tl.int64) * part + offsets < total)


@triton.jit
def store_in_parts(to, rows, offsets, ranks, whole, part, total, N_PES: tl.constexpr):
    """Store a row for each of the ``ranks`` that there are, of its elements those in the rank's part; all of them if
    they are ``whole`` in every part."""
    if whole:  # a mask that is the same for a whole row leaves vectors
        tl.store(to, rows, mask=ranks < N_PES)
    else:
        tl.store(to, rows, mask=(ranks < N_PES) & are_in_part(offsets, ranks, part, total))
