"""Shards of rows: PE p has rows p · c to (p + 1) · c of all, where c is their number by PEs, rounded up.

These are the shards of ``torch.chunk`` and of a DTensor's ``Shard(0)``: the last PEs may have fewer rows, or none.
"""

from __future__ import annotations

__all__ = ["each_of", "shard_of"]


def each_of(rows: int, n_pes: int) -> int:
    """Rows of a whole shard."""
    return -(-rows // n_pes)


def shard_of(rows: int, each: int, pe: int) -> range:
    """The rows of a PE, of so many of all PEs in shards of ``each``."""
    first = min(pe * each, rows)
    return range(first, min(first + each, rows))
