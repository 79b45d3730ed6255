"""Parts of a tensor, one of each PE, of which the last may be shorter, or have no elements.

A kernel is given the elements of a whole part and those of all, or None where all parts are whole: nothing of this is
left in the kernel then.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["are_in_part", "length_of_part"]


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
