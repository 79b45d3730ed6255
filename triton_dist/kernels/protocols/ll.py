"""Messages that say themselves that they have arrived: what small collectives are made of.

A word of 4 bytes travels with a number in one 8-byte store. The receiver looks at the word itself until its number is
the awaited one: no barrier before (nobody else uses that memory), no flag behind, one latency in all. It costs twice
the bytes, so it is for small data. NCCL calls this protocol LL.

The mailbox is a slice for each program: a counter, and two boxes with room for ``WORDS`` words from every PE. The n-th
exchange of a program uses number n and box n mod 2. Two boxes are enough: a program that sends its n-th words has
received the (n - 1)-th of program i of every PE, which had sent them after it had received, and so read, all that came
in the (n - 2)-th. Hence the one rule: in every exchange each program sends to *all* PEs, if only padding, and waits for
all. The counter lives in memory, so launches follow each other, and replays of CUDA graphs do, without the host.
Numbers are int32, wrap around, and are never 0: 0 marks a slot that has not been written yet.

An aligned store of 8 bytes arrives as a whole: a vector of two is two of those, and each has a number of its own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.protocols import workspace
from triton_dist.kernels.tracing.events import WAIT, clock, note
from triton_dist.language._poll import is_due, no_polls, poll

__all__ = [
    "LL_PROGRAMS",
    "LL_WORDS",
    "block_of",
    "exchange_begin",
    "exchange_end",
    "fits",
    "following",
    "mailbox",
    "receive",
    "send",
    "send_rows",
    "warps_of",
]

LL_PROGRAMS = 128
"""How many programs can exchange at a time."""

LL_WORDS = 1024
"""How many words a program can send to each PE at a time."""

_WORDS = tl.constexpr(LL_WORDS)
_HEADER = tl.constexpr(16)  # int64 words before the boxes, of which the first is the counter


def block_of(n_words: int, n_pes: int) -> int:
    """How many words each program should exchange, out of ``n_words`` for each PE."""
    if triton_dist.kind() == "cpu":  # where a wait for more is taken for a walk through memory (cpu/builder.py)
        return 512 // int(triton.next_power_of_2(n_pes))
    return 256 if n_words <= 32 * 256 else 512 if n_words <= LL_PROGRAMS * 512 else LL_WORDS


def warps_of(block: int) -> int:
    """With how many warps a program exchanges ``block`` words fastest."""
    return 2 if block <= 256 else 8


def fits(n_words: int, n_pes: int) -> bool:
    """Whether there is room for ``n_words`` from each PE to each."""
    return n_words <= LL_PROGRAMS * block_of(n_words, n_pes)


def mailbox(n_pes: int) -> torch.Tensor:
    """The world's mailbox, for up to ``LL_PROGRAMS`` programs at a time. *Collective* the first time."""
    return workspace.scratch("mailbox", LL_PROGRAMS * (_HEADER.value + 2 * n_pes * LL_WORDS), torch.int64)


@triton.jit
def exchange_begin(mail, program, N_PES: tl.constexpr):
    """The program's slice of the mailbox, and the number of its next exchange, an int32."""
    slice = mail + program * (_HEADER + 2 * N_PES * _WORDS)
    return slice, following(tl.load(slice).to(tl.int32))


@triton.jit
def following(number):
    """The number of the exchange after the one with ``number``: of the other parity, and not 0."""
    return tl.where(number == -1, 2, number + 1)


@triton.jit
def exchange_end(slice, number):
    """After the last exchange, which had this number."""
    tl.debug_barrier()  # all threads have read the counter
    tl.store(slice, number.to(tl.int64))


@triton.jit
def _box(slice, number, N_PES: tl.constexpr):
    return slice + _HEADER + (number & 1) * (N_PES * _WORDS)


@triton.jit
def send(slice, number, words, pe, N_PES: tl.constexpr):
    """Store a block of at most ``LL_WORDS`` int32 words to ``pe``, for its :func:`receive` with this number."""
    box = dl.symm_at(_box(slice, number, N_PES), pe) + dl.my_pe() * _WORDS
    message = (number.to(tl.int64) << 32) | (words.to(tl.int64) & 0xFFFFFFFF)
    tl.store(box + tl.arange(0, words.shape[0]), message)


@triton.jit
def send_rows(slice, number, words, N_PES: tl.constexpr):
    """Store row i of a block of int32 words ``[P, BLOCK]`` to PE i; see :func:`send` and, for P, :func:`receive`."""
    box = _box(slice, number, N_PES)
    pes = tl.arange(0, words.shape[0])
    distances = tl.zeros(pes.shape, tl.int64)
    for pe in tl.static_range(N_PES):
        distances = tl.where(pes == pe, (dl.symm_at(box, pe).to(tl.int64) - box.to(tl.int64)) // 8, distances)
    distances = tl.multiple_of(distances, 16)  # else words would be stored one by one
    places = box + dl.my_pe() * _WORDS + distances[:, None] + tl.arange(0, words.shape[1])[None, :]
    message = (number.to(tl.int64) << 32) | (words.to(tl.int64) & 0xFFFFFFFF)
    tl.store(places, message, mask=(pes < N_PES)[:, None])


@triton.jit
def receive(slice, number, BLOCK: tl.constexpr, N_PES: tl.constexpr, trace=None, tile=0):
    """Wait for the words that every PE sends with this number: int32 ``[P, BLOCK]``, row i from PE i.

    P is the next power of two of ``N_PES``; rows from ``N_PES`` on hold anything. Waiting is noted in ``trace``, as
    ``tile``.
    """
    began = clock(trace)
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    sources = tl.minimum(pes, N_PES - 1)  # there are no others to wait for
    slots = _box(slice, number, N_PES) + sources[:, None] * _WORDS + tl.arange(0, BLOCK)[None, :]
    messages = tl.load(slots, volatile=True)
    missing = tl.max(((messages >> 32).to(tl.int32) != number).to(tl.int32).reshape([pes.shape[0] * BLOCK]))
    polls = no_polls()
    while missing != 0:
        if is_due(polls):
            words = sources[:, None] * _WORDS + tl.arange(0, BLOCK)[None, :]
            late = tl.where((messages >> 32).to(tl.int32) != number, words, 0)
            word = tl.max(late.reshape([pes.shape[0] * BLOCK]))
            slot = _box(slice, number, N_PES) + word
            polls = poll(
                polls, slot, dl.CMP_EQ, number, (tl.load(slot, volatile=True) >> 32).to(tl.int32), word // _WORDS
            )
        else:
            polls += 1
        messages = tl.load(slots, volatile=True)
        missing = tl.max(((messages >> 32).to(tl.int32) != number).to(tl.int32).reshape([pes.shape[0] * BLOCK]))
    note(trace, WAIT, tile, began)
    return messages.to(tl.int32)
