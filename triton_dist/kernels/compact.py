"""Messages that say themselves that they have arrived, and take no more bytes than their data.

The words of an empty box are 0, and no word of a message is: what has to be sent is combined with the bits of -0.0, and
the one word that would become 0 so, -0.0 itself, travels as 0.0. So a receiver looks at the words until none is 0, and
the box has to be emptied. (``low_latency`` sends a number with each word: twice the bytes, and nothing to empty.)

A box must be empty before somebody writes to it again, and what somebody wrote must have been read before it is
emptied. So programs tell their partners on all PEs, by flags, how far they have come (``tell``), and look how far those
have (``ask``) before they write or empty anything. Where there is other work before a message, both can be done beside
it, and then cost nothing. Of two boxes in turn, that of message n - 1 may be emptied by who has heard that all have
come to message n; and whoever has come there has emptied that of n - 2, which is used again.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.meet import pointers_everywhere
from triton_dist.kernels.trace import WAIT, clock, note

__all__ = ["ask", "empty", "post", "take", "tell"]


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
    while tl.min((words != 0).to(tl.int32).reshape([words.numel])) == 0:
        words = tl.load(places, volatile=True)
    note(trace, WAIT, tile, began)
    return words ^ _negative_zero(DTYPE)


@triton.jit
def empty(places, mask):
    """Empty a box, or what of it was used."""
    tl.store(places, 0, mask=mask)


@triton.jit
def tell(flags, number, N_PES: tl.constexpr):
    """Tell this program of every PE that it has come to message ``number`` here.

    All threads must have: a ``tl.debug_barrier``, or the end of a launch, lies between what they did before and this.

    Args:
        flags: a symmetric int32 for each PE.
    """
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    theirs = pointers_everywhere(flags + dl.my_pe(), N_PES)
    tl.atomic_xchg(theirs, number, mask=pes < N_PES, sem="release", scope="sys")


@triton.jit
def ask(flags, number, N_PES: tl.constexpr):
    """How far the last of all PEs is beyond message ``number``: not negative, if all have come to it.

    A ``tl.debug_barrier`` has to lie between this and what all threads do.
    """
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    told = tl.load(flags + pes, mask=pes < N_PES, other=0, volatile=True)
    tl.atomic_add(flags + pes, 0, mask=pes < N_PES, sem="acquire", scope="sys")
    return tl.min(tl.where(pes < N_PES, told - number, 0))
