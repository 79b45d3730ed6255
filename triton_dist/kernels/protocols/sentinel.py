"""A sentinel protocol: the data words themselves say that they have arrived, so no flag doubles the bytes.

An empty slot holds zeros, and no word of a message is zero: the sender combines each word with the bits of -0.0, and
sends -0.0 itself, the one word that would become zero, as 0.0. The receiver polls until no word is zero. A slot must be
cleared. (The LL protocol sends a flag with each word: twice the bytes, and nothing to clear.)

A slot must be cleared before a peer writes to it again, and read before it is cleared. That needs no flags where every
message is an exchange, in which each PE sends to all and receives from all, and slots are triple-buffered: message n
uses slot n mod 3. At message n a program clears the slot of message n - 1, which it has read. A peer writes there next
with message n + 2, and only after it has received this program's message n + 1, which follows the clear.

Between two messages lies the end of a launch or ``order_messages``: what was done with slots before then comes first
for all PEs.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.protocols.members import group_size, pe_of, stride_of
from triton_dist.kernels.tracing.events import WAIT, clock, record_event
from triton_dist.language._poll import copies_may_differ, no_polls, poll

__all__ = ["SLOTS", "clear", "order_messages", "receive", "send", "wait"]

SLOTS = tl.constexpr(3)
"""Of each kind; used round-robin."""


@triton.jit
def _negative_zero(DTYPE: tl.constexpr):
    """The bits of as many -0.0 as a word has elements."""
    BITS: tl.constexpr = DTYPE.primitive_bitwidth
    return -0x80000000 if BITS == 32 else -0x7FFF8000 if BITS == 16 else -0x7F7F7F80


@triton.jit
def send(places, words, mask, DTYPE: tl.constexpr):
    """Store int32 words, of one float32 each, of two 16-bit floats or of four of 8 bits with a -0.0 of their own, to
    addresses in slots of their receivers."""
    sent = words ^ _negative_zero(DTYPE)
    tl.store(places, tl.where(sent == 0, -0x80000000, sent), mask=mask)


@triton.jit
def _complete(words):
    """Whether no word is zero. (Unsigned, the least one says so: an instruction a word.)"""
    return tl.min(words.to(tl.uint32, bitcast=True).reshape([words.numel])) != 0


@triton.jit
def wait(places, first, MEMBERS: tl.constexpr, trace=None, tile=0):
    """Wait for the words of a message. The wait is recorded in ``trace``, as ``tile``.

    Args:
        places: pointers to rows of words. Those of members are contiguous, and row i comes from member i.
        first: the pointer to the first word.
    """
    N_PES: tl.constexpr = group_size(MEMBERS)
    WORDS: tl.constexpr = places.shape[1]
    began = clock(trace)
    polls = no_polls()
    while not _complete(tl.load(places, volatile=True)):
        polls = poll(polls, first, dl.CMP_NE, 0, pe_of(0, MEMBERS), N_PES, WORDS, WORDS, 1, stride_of(MEMBERS))
    record_event(trace, WAIT, tile, began)


@triton.jit
def receive(places, first, MEMBERS: tl.constexpr, DTYPE: tl.constexpr, trace=None, tile=0):
    """Wait for the words of a message, int32 as they were sent. Arguments as of :func:`wait`."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    WORDS: tl.constexpr = places.shape[1]
    began = clock(trace)
    words = tl.load(places, volatile=True)
    polls = no_polls()
    while not _complete(words):
        words = tl.load(places, volatile=True)
        polls = poll(polls, first, dl.CMP_NE, 0, pe_of(0, MEMBERS), N_PES, WORDS, WORDS, 1, stride_of(MEMBERS))
    if copies_may_differ(words.numel):
        words = tl.load(places, volatile=True)
    record_event(trace, WAIT, tile, began)
    return words ^ _negative_zero(DTYPE)


@triton.jit
def clear(places, mask):
    """Clear the words of a slot that were used."""
    tl.store(places, 0, mask=mask)


@triton.jit
def order_messages(count):
    """Order what this program did with slots before its later messages: a fence, in the name of all threads.

    Args:
        count: an int32 of this program's own, to which one is added.
    """
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel", scope="sys")
    tl.debug_barrier()
