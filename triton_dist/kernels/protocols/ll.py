"""The LL protocol: each word of data carries its own arrival flag. (NCCL's name; small collectives use it.)

Four bytes of data and a 4-byte flag, the number of the exchange, are one 8-byte store. The receiver polls the data word
itself until its flag has the expected number. No barrier precedes the store and no flag follows it, so an exchange
takes one latency. It sends twice the bytes.

Each program has a slice of memory: a counter, and two slots with room for ``LL_WORDS`` words of every PE. Slots are
double-buffered: exchange n uses slot n mod 2. A program that sends exchange n has received exchange n - 1 from program
i of every PE, which each sent after it had read exchange n - 2. So no acknowledgement is needed, if in every exchange
each program sends to *all* PEs, if only padding, and receives from all. The counter lives in memory, so launches and
replays of CUDA graphs need no host. Numbers are int32, wrap around, and are never 0, the flag of an unused slot.

An aligned store of 8 bytes arrives as a whole. A vector of two is two of those, and each has a flag of its own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import has_gpu_sizes
from triton_dist.kernels.protocols import workspace
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank, pe_of, stride_of
from triton_dist.kernels.tracing.events import WAIT, clock, record_event
from triton_dist.language._poll import copies_may_differ, no_polls, poll

__all__ = [
    "LL_PROGRAMS",
    "LL_WORDS",
    "block_of",
    "exchange_begin",
    "exchange_end",
    "fits",
    "ll_slots",
    "next_number",
    "receive",
    "send",
    "send_rows",
    "wait_for_flags",
    "warps_of",
]

LL_PROGRAMS = 128
"""How many programs can exchange at a time."""

LL_WORDS = 1024
"""How many words a program can send to each PE at a time."""

_WORDS = tl.constexpr(LL_WORDS)
_HEADER = tl.constexpr(16)  # int64 words before the slots, of which the first is the counter


def block_of(n_words: int, n_pes: int, limit: int = LL_PROGRAMS) -> int:
    """How many words each of at most ``limit`` programs should exchange, out of ``n_words`` for each PE."""
    if not has_gpu_sizes():  # small blocks are interpreted faster
        return 512 // int(triton.next_power_of_2(n_pes))
    limit = min(limit, LL_PROGRAMS)
    return 256 if n_words <= min(limit, 32) * 256 else 512 if n_words <= limit * 512 else LL_WORDS


def warps_of(block: int) -> int:
    """With how many warps a program exchanges ``block`` words fastest."""
    return 2 if block <= 256 else 8


def fits(n_words: int, n_pes: int, limit: int = LL_PROGRAMS) -> bool:
    """Whether there is room for ``n_words`` from each PE to each, with at most ``limit`` programs."""
    return n_words <= min(limit, LL_PROGRAMS) * block_of(n_words, n_pes, limit)


def ll_slots(communicator: Communicator) -> torch.Tensor:
    """The communicator's slots, for up to ``LL_PROGRAMS`` programs at a time. *Collective* the first time."""
    words = LL_PROGRAMS * (_HEADER.value + 2 * communicator.n_pes * LL_WORDS)
    return workspace.symmetric_workspace(communicator, "LL slots", words, torch.int64)


@triton.jit
def exchange_begin(slots, program, MEMBERS: tl.constexpr):
    """The program's slice of the slots, and the number of its next exchange, an int32."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    slice = slots + program * (_HEADER + 2 * N_PES * _WORDS)
    return slice, next_number(tl.load(slice).to(tl.int32))


@triton.jit
def next_number(number):
    """The number of the exchange after the one with ``number``: of the other parity, and not 0."""
    return tl.where(number == -1, 2, number + 1)


@triton.jit
def exchange_end(slice, number):
    """After the last exchange, which had this number."""
    tl.debug_barrier()  # all threads have read the counter
    tl.store(slice, number.to(tl.int64))


@triton.jit
def _slot(slice, number, MEMBERS: tl.constexpr):
    N_PES: tl.constexpr = group_size(MEMBERS)
    return slice + _HEADER + (number & 1) * (N_PES * _WORDS)


@triton.jit
def send(slice, number, words, rank, MEMBERS: tl.constexpr):
    """Store a block of at most ``LL_WORDS`` int32 words to a member, for its :func:`receive` with this number."""
    slot = at_rank(_slot(slice, number, MEMBERS), rank, MEMBERS) + my_rank(MEMBERS) * _WORDS
    message = (number.to(tl.int64) << 32) | (words.to(tl.int64) & 0xFFFFFFFF)
    tl.store(slot + tl.arange(0, words.shape[0]), message)


@triton.jit
def send_rows(slice, number, words, MEMBERS: tl.constexpr):
    """Store row i of int32 words ``[P, BLOCK]`` to member i; see :func:`send` and, for P, :func:`receive`."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    slot = _slot(slice, number, MEMBERS)
    ranks = tl.arange(0, words.shape[0])
    distances = tl.zeros(ranks.shape, tl.int64)
    for rank in tl.static_range(N_PES):
        there = at_rank(slot, rank, MEMBERS).to(tl.int64)
        distances = tl.where(ranks == rank, (there - slot.to(tl.int64)) // 8, distances)
    distances = tl.multiple_of(distances, 16)  # else words would be stored one by one
    places = slot + my_rank(MEMBERS) * _WORDS + distances[:, None] + tl.arange(0, words.shape[1])[None, :]
    message = (number.to(tl.int64) << 32) | (words.to(tl.int64) & 0xFFFFFFFF)
    tl.store(places, message, mask=(ranks < N_PES)[:, None])


@triton.jit
def wait_for_flags(
    places, mask, number, first, writer, rows, columns, row_step, writer_step: tl.constexpr = 1
):  # fmt: skip
    """Wait for int64 words whose flag, the upper half, is ``number``: their data, int32, and 0 where ``mask`` is not
    set.

    Args:
        places: a block of pointers, of which ``mask`` tells which count; None for all.
        first: a pointer to the first word.
        writer, rows, columns, row_step, writer_step: who writes the words, and where they are, for the report of a wait
            that lasts too long: as of ``poll``, in words of int64. Columns follow each other.
    """
    seen = _look(places, mask, number)
    missing = _any_missing(seen, number)
    polls = no_polls()
    flags = first.to(tl.pointer_type(tl.int32), bitcast=True) + 1
    while missing != 0:
        seen = _look(places, mask, number)
        polls = poll(polls, flags, dl.CMP_EQ, number, writer, rows, columns, 2 * row_step, 2, writer_step)
        missing = _any_missing(seen, number)
    if copies_may_differ(seen.numel):
        seen = _look(places, mask, number)
    return seen.to(tl.int32)


@triton.jit
def _any_missing(words, number):
    return tl.max(((words >> 32).to(tl.int32) != number).to(tl.int32).reshape([words.numel]))


@triton.jit
def _look(places, mask, number):
    if mask is None:
        return tl.load(places, volatile=True)
    else:
        return tl.load(places, mask=mask, other=number.to(tl.int64) << 32, volatile=True)


@triton.jit
def receive(slice, number, BLOCK: tl.constexpr, MEMBERS: tl.constexpr, trace=None, tile=0):
    """Wait for the words that every member sends with this number: int32 ``[P, BLOCK]``, row i from member i.

    P is the next power of two of the group's size; rows behind the last member's hold anything. The wait is recorded in
    ``trace``, as ``tile``.
    """
    N_PES: tl.constexpr = group_size(MEMBERS)
    began = clock(trace)
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))
    sources = tl.minimum(ranks, N_PES - 1)  # there are no others to wait for
    slots = _slot(slice, number, MEMBERS) + sources[:, None] * _WORDS + tl.arange(0, BLOCK)[None, :]
    first = _slot(slice, number, MEMBERS)
    words = wait_for_flags(slots, None, number, first, pe_of(0, MEMBERS), N_PES, BLOCK, _WORDS, stride_of(MEMBERS))
    record_event(trace, WAIT, tile, began)
    return words
