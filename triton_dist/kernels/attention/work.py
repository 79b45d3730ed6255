"""Device code: which keys of which requests a program attends to. Lengths are read on the GPU, so graphs need no host.

The keys of a request that lie on this PE and in its window are cut into blocks. A *task* is a request with a tile of
query heads of one KV head; it has all blocks of the request, at least one, which is empty where there are no keys. The
blocks of all tasks, one after the other, are dealt to the programs in equal runs (stream-K): each program computes some
whole tasks and up to two parts of others. So programs are equally loaded whatever the lengths are, and how many parts a
task has follows from the lengths only.

Tiles of the same KV head read the same keys. Where there are several, programs are split into groups of lanes, each of
which has some of the tiles, and deals their blocks out to its lanes alike: lanes of equal number read the same keys at
the same time, which then come from memory once (``tile_order.py``).
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["keys_of", "run_of", "task_at"]


@triton.jit
def _count(positions, rank, interleave, SIZE: tl.constexpr):
    """How many of the first ``positions`` of a sequence lie on the PE of this rank."""
    each = tl.cast(interleave, tl.int64)
    whole = positions.to(tl.int64) // (each * SIZE)
    rest = positions - (whole * SIZE + rank) * each
    return whole * each + tl.minimum(tl.maximum(rest, 0), each)


@triton.jit
def keys_of(length, rank, interleave, capacity, window, SIZE: tl.constexpr):
    """The first and the last but one of this PE's keys, of a sequence of ``length``, that queries at its end see."""
    length = tl.maximum(length, 0)
    end = tl.minimum(_count(length, rank, interleave, SIZE), capacity)
    begin = _count(tl.where(window > 0, tl.maximum(length - window, 0), 0), rank, interleave, SIZE)
    return tl.minimum(begin, end).to(tl.int32), end.to(tl.int32)


@triton.jit
def run_of(
    lengths, n_requests, rank, interleave, capacity, window, lane, lanes,
    TASKS: tl.constexpr, BLOCK_N: tl.constexpr, REQUESTS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The run of blocks of ``lane``, of so many ``lanes`` that share them, from the first to before the second; how
    long runs are; and for :func:`task_at`, where the blocks of each request end.

    ``TASKS`` is how many tasks a request has in a group.
    """
    requests = tl.arange(0, REQUESTS)
    length = tl.load(lengths + requests, mask=requests < n_requests, other=0)
    begin, end = keys_of(length, rank, interleave, capacity, window, SIZE)
    blocks = tl.where(requests < n_requests, tl.maximum(tl.cdiv(end - begin, BLOCK_N), 1), 0).to(tl.int64)
    ends = tl.cumsum(blocks * TASKS, axis=0)
    total = tl.sum(blocks * TASKS, axis=0)
    quota = tl.cdiv(total, lanes)
    first = lane * quota
    return first, tl.minimum(first + quota, total), quota, ends


@triton.jit
def task_at(
    block, ends, lengths, rank, interleave, capacity, window,
    TASKS: tl.constexpr, BLOCK_N: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """What lies at a block: the request; the task, one of ``TASKS``; the task's first block and how many it has; and
    the request's keys, from the first to before the second."""
    request = tl.sum((ends <= block).to(tl.int32), axis=0)
    start = tl.max(tl.where(ends <= block, ends, 0), axis=0)
    begin, end = keys_of(tl.load(lengths + request), rank, interleave, capacity, window, SIZE)
    blocks = tl.maximum(tl.cdiv(end - begin, BLOCK_N), 1)
    task = ((block - start) // blocks).to(tl.int32)
    return request, task, start + task.to(tl.int64) * blocks, blocks, begin, end
