"""Rows that all PEs send to each other: device code of the fused norms and of all that is called ``exchange``.

A row travels as int32 words, of one float32 or several smaller floats, by the sentinel protocol. Each program has slots
of its own for the rows of every PE. A message is one row from each PE to each; ``GROUP`` of the rows are in registers
at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.kernels.collectives.sums import elements_of, words_of
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank
from triton_dist.kernels.protocols.sentinel import SLOTS, clear, order_messages, receive, send, wait

__all__ = [
    "HEADER",
    "exchange_begin",
    "exchange_end",
    "exchange_next",
    "piece_of",
    "receive_rows",
    "receive_words",
    "send_rows",
    "send_words",
    "sum_of_received",
    "words_in",
    "words_of_program",
]

HEADER = tl.constexpr(32)
"""Words of a program before its slots: the number of its next slot, and a count for fences."""


def words_of_program(messages: int, n_pes: int, words: int) -> int:
    """Words of workspace of a program whose rounds have so many messages, rows of so many words from each PE."""
    return int(HEADER.value + messages * SLOTS.value * n_pes * words)


def piece_of(words: int, group: int, *, gpu: bool) -> int:
    """How many words of a row are polled at a time, of ``group`` rows."""
    # The CPU world takes loads of more than 4 KiB for data, not for what a program polls.
    return words if gpu else min(words, 1024 // group)


@triton.constexpr_function
def words_in(block, dtype):
    """How many words a row of ``block`` elements is."""
    return block * dtype.primitive_bitwidth // 32


@triton.jit
def exchange_begin(slots, MESSAGES: tl.constexpr, WORDS: tl.constexpr, MEMBERS: tl.constexpr):
    """This program's memory, for rounds of so many messages each, and the number of the slot that is next."""
    slots += tl.program_id(0).to(tl.int64) * (HEADER + MESSAGES * SLOTS * group_size(MEMBERS) * WORDS)
    return slots, tl.load(slots)


@triton.jit
def exchange_next(slots, number, more):
    """The number of the next slot; ``more``: another round follows in this launch."""
    if more:
        order_messages(slots + 1)
    return tl.where(number == SLOTS - 1, 0, number + 1)


@triton.jit
def exchange_end(slots, number):
    tl.debug_barrier()  # all threads have read the number
    tl.store(slots, number)


@triton.jit
def _slot(slots, number, message, WORDS: tl.constexpr, MEMBERS: tl.constexpr):
    return slots + HEADER + (message * SLOTS + number) * (group_size(MEMBERS) * WORDS)


@triton.jit
def send_rows(slots, number, message, first, values, DTYPE: tl.constexpr, GROUP: tl.constexpr, MEMBERS: tl.constexpr):
    """Send row i of ``values``, or its only row, to the PE of rank ``first`` + i, for ``i < GROUP``."""
    send_words(slots, number, message, first, words_of(values, DTYPE), DTYPE, GROUP, MEMBERS)


@triton.jit
def send_words(slots, number, message, first, words, DTYPE: tl.constexpr, GROUP: tl.constexpr, MEMBERS: tl.constexpr):
    """As :func:`send_rows`, of int32 words, whose elements are of ``DTYPE``."""
    WORDS: tl.constexpr = words.shape[1]
    slot = _slot(slots, number, message, WORDS, MEMBERS)
    index = tl.arange(0, GROUP)
    distances = tl.zeros([GROUP], tl.int64)
    for i in tl.static_range(GROUP):
        there = at_rank(slot, tl.minimum(first + i, group_size(MEMBERS) - 1), MEMBERS).to(tl.int64)
        distances = tl.where(index == i, (there - slot.to(tl.int64)) // 4, distances)
    distances = tl.multiple_of(distances, 16)[:, None]  # else words would be stored one by one
    places = slot + my_rank(MEMBERS) * WORDS + distances + tl.arange(0, WORDS)[None, :]
    send(places, tl.broadcast_to(words, [GROUP, WORDS]), (first + index < group_size(MEMBERS))[:, None], DTYPE)


@triton.jit
def receive_rows(
    slots, number, message, first, trace, tile,
    DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """The rows of the PEs from rank ``first`` on, float32 ``[GROUP, BLOCK]``; beyond the last PE its row once more.

    The slot of the round before is cleared. ``PIECE`` words of a row are polled at a time.
    """
    WORDS: tl.constexpr = words_in(BLOCK, DTYPE)
    words = receive_words(slots, number, message, first, trace, tile, DTYPE, WORDS, GROUP, PIECE, MEMBERS)
    return elements_of(words, DTYPE)


@triton.jit
def receive_words(
    slots, number, message, first, trace, tile,
    DTYPE: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """As :func:`receive_rows`, as the int32 words that were sent, ``[GROUP, WORDS]``."""
    SIZE: tl.constexpr = group_size(MEMBERS)
    before = _slot(slots, tl.where(number == 0, SLOTS - 1, number - 1), message, WORDS, MEMBERS)
    ranks = first + tl.arange(0, GROUP)
    starts = tl.minimum(ranks, SIZE - 1)[:, None] * WORDS
    clear(before + starts + tl.arange(0, WORDS)[None, :], (ranks < SIZE)[:, None])
    slot = _slot(slots, number, message, WORDS, MEMBERS)
    if PIECE < WORDS:
        for piece in range(0, WORDS, PIECE):
            at = slot + starts + piece + tl.arange(0, PIECE)[None, :]
            wait(at, slot + piece, MEMBERS, trace, tile)
    return receive(slot + starts + tl.arange(0, WORDS)[None, :], slot, MEMBERS, DTYPE, trace, tile)


@triton.jit
def sum_of_received(
    slots, number, message, trace, tile,
    DTYPE: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PIECE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """The sum of the rows that all PEs have sent, float32 ``[1, BLOCK]``; the order of additions is fixed."""
    total = tl.zeros([1, BLOCK], tl.float32)
    for first in range(0, group_size(MEMBERS), GROUP):
        rows = receive_rows(slots, number, message, first, trace, tile, DTYPE, BLOCK, GROUP, PIECE, MEMBERS)
        used = (first + tl.arange(0, GROUP) < group_size(MEMBERS))[:, None]
        total += tl.sum(tl.where(used, rows, 0.0), axis=0)[None, :]
    return total
