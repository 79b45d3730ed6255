"""Shards of rows: PE p has rows p · c to (p + 1) · c of all, where c is their number by PEs, rounded up.

These are the shards of ``torch.chunk`` and of a DTensor's ``Shard(0)``: the last PEs may have fewer rows, or none.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator

__all__ = ["each_of", "gathered_rows", "own_rows", "shard_of", "wrong_shard"]


def each_of(rows: int, n_pes: int) -> int:
    """Rows of a whole shard."""
    return -(-rows // n_pes)


def shard_of(rows: int, each: int, pe: int) -> range:
    """The rows of a PE, of so many of all PEs in shards of ``each``."""
    first = min(pe * each, rows)
    return range(first, min(first + each, rows))


def own_rows(comm: Communicator, rows: int) -> range:
    """This PE's of so many that the members share."""
    return shard_of(rows, each_of(rows, comm.n_pes), comm.my_rank)


def gathered_rows(
    comm: Communicator, function: str, own: torch.Tensor, rows: object, shard: int | None = None
) -> tuple[int, int, tuple[object, ...]]:
    """All members' rows where ``own`` is this PE's shard of them, those of a whole shard, and what members compare.

    Args:
        rows, shard: how many rows there are, and of a whole shard, as they are passed; None: ``n_pes`` times those of
            ``own``, and a shard of ``torch.chunk``. A PE whose ``own`` is not its shard of so many says so in what is
            compared, so that all members find the error.

    Raises:
        TypeError, ValueError: ``rows`` is no number of rows.
    """
    here, n_pes = own.shape[0], comm.n_pes
    if rows is None:
        return n_pes * here, here, (own.shape,)
    if type(rows) is not int:
        raise TypeError(f"{function}: rows must be an int, got {type(rows).__name__}")
    if rows < 0:
        raise ValueError(f"{function}: rows must be 0 or more, got {rows}")
    each = shard or each_of(rows, n_pes)
    if rows == n_pes * here:
        return rows, here, (own.shape,)
    if why := wrong_shard(comm, own, rows, each):
        return rows, each, (why,)
    return rows, each, (f"{rows} rows in shards of {each}",)


def wrong_shard(comm: Communicator, own: torch.Tensor, rows: int, each: int) -> str:
    """Why ``own`` is not this PE's shard of so many ``rows``, in shards of ``each``; empty if it is."""
    mine = shard_of(rows, each, comm.my_rank)
    if own.shape[0] == len(mine):
        return ""
    return (
        f"rows={rows}: of these PE {comm.my_rank} of {comm.n_pes} has {len(mine)}, from {mine.start} on, got"
        f" {own.shape[0]} rows"
    )
