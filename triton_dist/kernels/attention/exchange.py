"""Device code: partial results between PEs, by the LL protocol (``protocols/ll.py``): a flag beside each 4 bytes.

A partial result of a query head is a row of float32: the weighted sum, and, elsewhere, the largest logit and the sum of
the weights. Slots are double-buffered by *launch*: the flag is the launch's number, and launch n uses half n mod 2 of
the memory. In every launch each PE receives from all others, even if only from heads without keys. So a PE that has
ended launch n + 1 knows that all PEs have begun it, and so have ended launch n and read its half, which launch n + 2
overwrites. Flags are numbers that no earlier launch has used, so every launch may lay out its rows as it likes.

The sentinel protocol would halve the bytes. Its slots must be cleared word by word, which ties their layout to shapes.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.tracing.events import WAIT, clock, record_event
from triton_dist.language._poll import copies_may_differ, no_polls, poll

__all__ = [
    "HEADER",
    "combined",
    "half_of",
    "launch_number",
    "look_at_columns",
    "look_at_ends",
    "send_rows",
    "sum_of_rows",
    "weights_of",
]

HEADER = tl.constexpr(16)
"""int64 words before the two halves: the number of the last launch, and how many tasks of this one are combined."""


@triton.jit
def launch_number(slots):
    """The number of this launch. To be read before this program's part of any task is handed over."""
    return next_number(tl.load(slots).to(tl.int32))


@triton.jit
def combined(slots, number, count, n_tasks):
    """Count a program's tasks, once all are combined; the last of ``n_tasks`` ends the launch's use of its number.

    (Counted when it is sent, a task would wait until its stores to the peers have arrived, and only then receive.)
    """
    tl.debug_barrier()
    before = tl.atomic_add(slots + 1, count.to(tl.int64), sem="acq_rel", scope="gpu")
    if before == n_tasks - count:
        tl.store(slots + 1, 0)
        tl.store(slots, number.to(tl.int64))


@triton.jit
def half_of(slots, number, half):
    """Where this launch's slots begin; a half has ``half`` words."""
    return slots + HEADER + (number & 1).to(tl.int64) * half


@triton.jit
def _message(values, number):
    return (number.to(tl.int64) << 32) | (values.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def _send(slots, distances, rows, there, n_rows, total, largest, weight, number, MEMBERS: tl.constexpr):
    DV: tl.constexpr = total.shape[1]
    mine = my_rank(MEMBERS).to(tl.int64) * n_rows + rows
    places = slots + distances[:, None] + mine[:, None] * DV + tl.arange(0, DV)[None, :]
    tl.store(places, _message(total, number), mask=there[:, None])
    ends = slots + group_size(MEMBERS) * n_rows.to(tl.int64) * DV + distances + mine * 2
    tl.store(ends, _message(largest, number), mask=there)
    tl.store(ends + 1, _message(weight, number), mask=there)


@triton.jit
def send_rows(
    slots, rows, owners, there, n_rows, total, largest, weight, number, SCATTER: tl.constexpr, MEMBERS: tl.constexpr
):
    """Send a partial result, row by row, to all PEs, or with ``SCATTER`` each row to its owner, this PE included.

    Args:
        slots: this launch's.
        rows: of ``n_rows`` that each PE has, on the receiver.
    """
    ROWS: tl.constexpr = total.shape[0]
    SIZE: tl.constexpr = group_size(MEMBERS)
    for i in range(1, SIZE + 1):
        rank = (my_rank(MEMBERS) + i) % SIZE
        distance = (at_rank(slots, rank, MEMBERS).to(tl.int64) - slots.to(tl.int64)) // 8
        distances = tl.zeros([ROWS], tl.int64) + tl.multiple_of(distance, 16)
        here = there & (owners == rank) if SCATTER else there
        _send(slots, distances, rows, here, n_rows, total, largest, weight, number, MEMBERS)


@triton.jit
def _look(places, there):
    return tl.load(places, mask=there, other=0, volatile=True)


@triton.jit
def _await(messages, places, there, first, number, trace, tile):
    """Wait until all words that are ``there`` have this launch's number: the float32 that came with them.

    ``messages`` are what a look at ``places`` found.
    """
    began = clock(trace)
    missing = tl.max((there & ((messages >> 32).to(tl.int32) != number)).to(tl.int32).reshape([places.numel]))
    polls = no_polls()
    numbers = first.to(tl.pointer_type(tl.int32), bitcast=True) + 1
    while missing != 0:
        messages = _look(places, there)
        polls = poll(polls, numbers, dl.CMP_EQ, number)
        missing = tl.max((there & ((messages >> 32).to(tl.int32) != number)).to(tl.int32).reshape([places.numel]))
    if copies_may_differ(places.numel):
        messages = _look(places, there)
    record_event(trace, WAIT, tile, began)
    return messages.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _ends(slots, n_rows, DV: tl.constexpr, MEMBERS: tl.constexpr):
    """Where the ends of rows begin: behind all rows."""
    return slots + group_size(MEMBERS) * n_rows.to(tl.int64) * DV


@triton.jit
def _ends_of(slots, rows, there, n_rows, DV: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr):
    """Where the ends of rows from all PEs arrive, ``[PES, ROWS, 2]``, and which of them exist."""
    ranks = tl.minimum(tl.arange(0, PES), group_size(MEMBERS) - 1).to(tl.int64)
    places = _ends(slots, n_rows, DV, MEMBERS) + (ranks[:, None] * n_rows + rows[None, :])[:, :, None] * 2
    needed = tl.broadcast_to(there[None, :, None], [PES, rows.shape[0], 2])
    return places + tl.arange(0, 2)[None, None, :], needed


@triton.jit
def look_at_ends(slots, rows, there, n_rows, DV: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr):
    """Load the ends of rows from all PEs, arrived or not, for :func:`weights_of`, which waits for them.

    A look waits for nothing but memory, so a program can have several in flight.
    """
    places, needed = _ends_of(slots, rows, there, n_rows, DV, PES, MEMBERS)
    return _look(places, needed)


@triton.jit
def weights_of(
    messages, slots, row, rows, there, n_rows, number, trace, tile,
    DV: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Wait for the ends of rows from all PEs, of which ``messages`` are :func:`look_at_ends`'s.

    Returns:
        what each PE's row is multiplied by, ``[PES, ROWS]``; the largest logit and the sum of the weights, ``[ROWS]``.
    """
    places, needed = _ends_of(slots, rows, there, n_rows, DV, PES, MEMBERS)
    first = _ends(slots, n_rows, DV, MEMBERS) + row * 2
    largest, weight = tl.split(_await(messages, places, needed, first, number, trace, tile))
    largest = tl.where((tl.arange(0, PES) < group_size(MEMBERS))[:, None], largest, float("-inf"))
    now = tl.max(largest, axis=0)
    factors = tl.where(largest == float("-inf"), 0.0, tl.exp2(largest - now[None, :]))
    return factors, now, tl.sum(factors * weight, axis=0)


@triton.jit
def _columns_of(
    slots, rows, there, n_rows, first, DV: tl.constexpr, COLUMNS: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr
):
    """Where ``COLUMNS`` columns of rows from all PEs arrive, from ``first`` on: ``[PES, ROWS, COLUMNS]``, and which of
    them exist."""
    ranks = tl.minimum(tl.arange(0, PES), group_size(MEMBERS) - 1).to(tl.int64)
    places = slots + first + (ranks[:, None] * n_rows + rows[None, :])[:, :, None] * DV
    needed = tl.broadcast_to(there[None, :, None], [PES, rows.shape[0], COLUMNS])
    return places + tl.arange(0, COLUMNS)[None, None, :], needed


@triton.jit
def look_at_columns(
    slots, rows, there, n_rows, first, DV: tl.constexpr, COLUMNS: tl.constexpr, PES: tl.constexpr, MEMBERS: tl.constexpr
):
    """Load ``COLUMNS`` columns of rows from all PEs, arrived or not, for :func:`sum_of_rows`, which waits for them."""
    places, needed = _columns_of(slots, rows, there, n_rows, first, DV, COLUMNS, PES, MEMBERS)
    return _look(places, needed)


@triton.jit
def sum_of_rows(
    messages, slots, row, rows, there, n_rows, factors, first, number, trace, tile,
    DV: tl.constexpr, COLUMNS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Wait for ``COLUMNS`` columns of rows, from ``first`` on, from all PEs: their sum, each times its factor.

    ``messages`` are :func:`look_at_columns`'s.
    """
    places, needed = _columns_of(slots, rows, there, n_rows, first, DV, COLUMNS, factors.shape[0], MEMBERS)
    received = _await(messages, places, needed, slots + first + row * DV, number, trace, tile)
    return tl.sum(received * factors[:, :, None], axis=0)
