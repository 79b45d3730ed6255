"""Trace events of a program, if it is traced: when it computed, waited for and sent its tiles.

    began = clock(trace)
    ...                                       # compute tile 7
    record_event(trace, COMPUTE, 7, began)

``trace`` is an argument of the kernel, what :func:`triton_dist.kernels.tracing.recorder.record` returns: a tensor, or
None. Then both are no instruction, and the kernel's machine code is that of a kernel without them.

Every program writes to a row of its own, so nothing is shared. Both act once for a whole program.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer, smid

__all__ = ["COMPUTE", "KINDS", "SEND", "WAIT", "WORDS", "clock", "record_event"]

COMPUTE = tl.constexpr(0)
WAIT = tl.constexpr(1)
SEND = tl.constexpr(2)
KINDS = ("compute", "wait", "send")

WORDS = tl.constexpr(4)
"""int64 words of an event: kind, tile, begin, end; of a row's header: events, room for events, SM, nothing."""


@triton.jit
def clock(trace):
    """The time now, in nanoseconds; 0, and no instruction, without a trace."""
    if trace is None:
        return 0
    else:
        return globaltimer()


@triton.jit
def record_event(trace, kind, tile, began):
    """What this program did from ``began`` until now: ``COMPUTE``, ``WAIT``, ``SEND`` or a number of your own."""
    if trace is not None:
        now = globaltimer()
        row = trace + tl.program_id(0).to(tl.int64) * (tl.load(trace + 1) + 1) * WORDS
        count = tl.load(row)
        tl.debug_barrier()  # all threads have read the count
        if count < tl.load(row + 1):
            event = row + (count + 1) * WORDS
            tl.store(event, kind)
            tl.store(event + 1, tile)
            tl.store(event + 2, began)
            tl.store(event + 3, now)
        tl.store(row, count + 1)
        tl.store(row + 2, smid())
