"""Messages of whole rows in the sentinel protocol (``protocols/sentinel.py``), double-buffered by exchange.

The words of a row say themselves that they have arrived: none of them is zero, and an empty slot holds zeros. The
receiver clears what it has read. Words hold floats of 4, 2 or 1 bytes, or integers. The one word that cannot be sent is
that in which only the uppermost bit is set: the sign of a float of value zero, which arrives as 0.0.

Exchange n uses half n mod 2 of the slots, and every exchange has a message from every PE to every PE (counts, or an
arrival flag), which its receive half waits for. So no barrier and no acknowledgement is needed. A PE that sends
exchange n + 2 has received exchange n + 1 from every peer. The peer sent that message in a kernel after the one that
received exchange n, in stream order, and so after it had read and cleared the half. This takes that at most one
exchange is in flight in the same slots: on every PE the receive half of an exchange comes before the send half of the
next.

Both halves keep the number of the exchange in memory, one word for each program, so a launch or the replay of a CUDA
graph needs nothing from the host. Grids are the same in every launch.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.protocols import sentinel
from triton_dist.language._poll import copies_may_differ, no_polls, poll

__all__ = ["element", "look_at", "scalar_of", "send_words", "take_words", "word_of"]


@triton.jit
def send_words(places, words, mask):
    """Store int32 words to addresses in slots of their receiver."""
    sentinel.send(places, words, mask, tl.float32)


@triton.jit
def look_at(places, mask):
    """The words of a slot as they are now, those that have not arrived being 0; 1 where ``mask`` is not set."""
    return tl.load(places, mask=mask, other=1, volatile=True)


@triton.jit
def take_words(seen, places, mask, first, source, count):
    """Wait for int32 words of a message, clear their slot, and return them as they were sent.

    Args:
        seen: what :func:`look_at` saw of them.
        places: a block of pointers, of which ``mask`` tells which count; other words are anything.
        first, source, count: the pointer to the first word, the PE that sends the message, and how many words there
            are; for the report of a wait that lasts too long.
    """
    polls = no_polls()
    while tl.min((seen != 0).to(tl.int32).reshape([places.numel])) == 0:
        seen = look_at(places, mask)
        polls = poll(polls, first, dl.CMP_NE, 0, source, 1, count, count, 1)
    if copies_may_differ(places.numel):
        seen = look_at(places, mask)
    # A block of fewer words than threads is held several times, and each warp polls for itself: all must have seen the
    # words before one of them clears the slot.
    tl.debug_barrier()
    sentinel.clear(places, mask)
    return seen ^ -0x80000000


@triton.jit
def scalar_of(block, index):
    """Element ``index`` of a one-dimensional block."""
    return tl.sum(tl.where(tl.arange(0, block.shape[0]) == index, block, 0))


@triton.jit
def element(words, upper: tl.constexpr, DTYPE: tl.constexpr):
    """In float32, what int32 words hold: a float32 each, or two floats of 16 bits, of which ``upper`` is the second."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return words.to(tl.float32, bitcast=True)
    else:
        return (words >> (16 if upper else 0)).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def word_of(lower, upper, DTYPE: tl.constexpr):
    """Words whose elements are these float32, rounded to ``DTYPE``; of a float32 ``upper`` is not used."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return lower.to(tl.int32, bitcast=True)
    else:
        low = lower.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        return low | (upper.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) << 16)
