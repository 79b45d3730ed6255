"""Messages that say themselves that they have arrived, and take no more bytes than their data.

The words of an empty box are 0, and no word of a message is: what has to be sent is combined with the bits of -0.0, and
the one word that would become 0 so, -0.0 itself, travels as 0.0. So a receiver looks at the words until none is 0, and
the box has to be emptied. (``low_latency`` sends a number with each word: twice the bytes, and nothing to empty.)

A box must be empty before somebody writes to it again, and read before it is emptied. That needs no flags where every
message is an exchange, in which each PE sends to all and receives from all, and boxes come in threes, message n using
box n % 3: at message n a program empties the box of message n - 1, which it has read. Somebody writes there again with
message n + 2, and does so after having received this program's message n + 1, which left after the box was emptied.

Between messages lies the end of a launch, or ``between``: what was done with boxes before comes first for everybody.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.tracing.events import WAIT, clock, note
from triton_dist.language._poll import is_due, no_polls, poll

__all__ = ["BOXES", "between", "empty", "post", "take"]

BOXES = tl.constexpr(3)
"""Of each kind, in turn."""


@triton.jit
def _negative_zero(DTYPE: tl.constexpr):
    return -0x80000000 if DTYPE == tl.float32 else -0x7FFF8000  # noqa: SIM300 (one, or two of 16 bits)


@triton.jit
def post(places, words, mask, DTYPE: tl.constexpr):
    """Store int32 words, of one float32 each or of two 16-bit floats, to places in a box of whoever shall have them."""
    on_their_way = words ^ _negative_zero(DTYPE)
    tl.store(places, tl.where(on_their_way == 0, -0x80000000, on_their_way), mask=mask)


@triton.jit
def take(places, DTYPE: tl.constexpr, trace=None, tile=0):
    """Wait for the words of a message, int32 as they were posted; which is noted in ``trace``, as ``tile``."""
    began = clock(trace)
    words = tl.load(places, volatile=True)
    polls = no_polls()
    while tl.min((words != 0).to(tl.int32).reshape([words.numel])) == 0:
        if is_due(polls):
            missing = tl.where(words == 0, places.to(tl.int64), 0).reshape([words.numel])
            polls = poll(polls, tl.max(missing).to(tl.pointer_type(tl.int32)), dl.CMP_NE, 0, 0)
        else:
            polls += 1
        words = tl.load(places, volatile=True)
    note(trace, WAIT, tile, began)
    return words ^ _negative_zero(DTYPE)


@triton.jit
def empty(places, mask):
    """Empty a box, or what of it was used."""
    tl.store(places, 0, mask=mask)


@triton.jit
def between(count):
    """Order what this program did with boxes before its messages after this: a fence, in the name of all threads.

    Args:
        count: an int32 of this program's own, to which one is added.
    """
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel", scope="sys")
    tl.debug_barrier()
