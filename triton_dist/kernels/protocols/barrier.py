"""Programs of different PEs meet: program i of every PE waits until program i of all others has come.

What a program stored before it came, anywhere, its partners see after. A kernel that stores into its peers' tensors
meets twice: before its first store, because a peer's stream may not have come to this kernel yet, and after its last,
because then what the peers stored here has arrived.

The room is a row of words for each program: a counter of its meetings, and a flag from each PE. A program adds one to
its counter, writes the new number to its flag at every peer, and waits until its own flags have all come to that
number. Numbers only grow, so nothing is ever reset: launches follow each other, and replays of CUDA graphs do, without
the host. They are int32, which wraps around, so what is compared is their difference. It takes the latency of one
remote write, not that of a round trip.

All PEs launch the same kernels with the same grids, in the same order; programs that meet must run at the same time as
their partners, which they do if grids fit on the GPU, or if their programs meet in the order of their numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.tracing.events import WAIT, clock, note
from triton_dist.language._poll import is_due, no_polls, poll

__all__ = ["PROGRAMS", "ROW", "announce", "arrive", "meet", "pointers_everywhere", "wait", "wait_for"]

ROW = 128
"""int32 words for each program: a flag from each PE (at most 72, see gpu/p2p.py), and, last, the counter."""

PROGRAMS = 1024
"""How many programs can meet."""

_ROW = tl.constexpr(ROW)


@triton.jit
def pointers_everywhere(ptr, N_PES: tl.constexpr):
    """The addresses of a symmetric object on all PEs, a block of pointers (of the next power of two, the rest zero)."""
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    addresses = tl.zeros(pes.shape, tl.int64)
    for pe in tl.static_range(N_PES):
        addresses = tl.where(pes == pe, dl.symm_at(ptr, pe).to(tl.int64), addresses)
    return addresses.to(ptr.dtype)


@triton.jit
def announce(room, program, number, N_PES: tl.constexpr):
    """Tell all PEs that this program has come to meeting ``number``, and what it has stored is there.

    Who is waited for in several meetings, and waits in none of them, need not join the others.
    """
    row = room + program * _ROW
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    tl.debug_barrier()  # what other threads of the program stored comes before the release, too
    tl.store(row + (_ROW - 1), number)
    flags = pointers_everywhere(row + dl.my_pe(), N_PES)
    tl.atomic_xchg(flags, number, mask=pes < N_PES, sem="release", scope="sys")


@triton.jit
def arrive(room, program, N_PES: tl.constexpr):
    """Come to the next meeting; the first half of :func:`meet`.

    Returns:
        the number of the meeting, for :func:`wait`.
    """
    number = tl.load(room + program * _ROW + (_ROW - 1)) + 1
    announce(room, program, number, N_PES)
    return number


@triton.jit
def wait(room, program, number, N_PES: tl.constexpr, trace=None, tile=0):
    """Wait until this program of every PE has arrived; the second half of :func:`meet`."""
    began = clock(trace)
    row = room + program * _ROW
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    missing = True
    polls = no_polls()
    while missing:  # looking is cheaper than acquiring, which is done once
        seen = tl.load(row + pes, mask=pes < N_PES, other=0, volatile=True)
        missing = tl.min(tl.where(pes < N_PES, seen - number, 0)) < 0
        if is_due(polls):
            pe = tl.min(tl.where((pes < N_PES) & (seen - number < 0), pes, N_PES - 1))
            polls = poll(polls, row + pe, dl.CMP_GE, number, tl.load(row + pe, volatile=True), pe)
        else:
            polls += 1
    tl.atomic_add(row + pes, 0, mask=pes < N_PES, sem="acquire", scope="sys")
    tl.debug_barrier()  # nobody goes on before the thread that acquired has
    note(trace, WAIT, tile, began)


@triton.jit
def wait_for(room, program, number, pe, trace=None, tile=0):
    """Wait until this program of one PE has come to meeting ``number``."""
    began = clock(trace)
    # (Of one word, Triton makes this a load that acquires, and of a result that nobody uses, nothing.)
    flag = room + program * _ROW + pe
    polls = no_polls()
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    while seen - number < 0:
        polls = poll(polls, flag, dl.CMP_GE, number, seen, pe)
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    tl.debug_barrier()  # nobody goes on before the thread that acquired has
    note(trace, WAIT, tile, began)


@triton.jit
def meet(room, program, N_PES: tl.constexpr, trace=None, tile=0):
    """Wait until program ``program`` of every PE is here; then what each had stored before is visible to this one.

    Args:
        room: the tensor of :func:`triton_dist.kernels.protocols.workspace.room`.
        program: which of ``PROGRAMS`` meetings to join, an integer; commonly ``tl.program_id(0)``. No two programs that
            run at the same time on one PE may name the same.
        N_PES: how many PEs the world has.
        trace, tile: where, and as which tile, waiting is noted; see ``trace.py``.
    """
    wait(room, program, arrive(room, program, N_PES), N_PES, trace, tile)
