"""A barrier between the programs of equal number on all PEs: program i waits until program i of every PE has arrived.

What a program stored before it arrived, to any PE, is visible to its partners behind the barrier. A kernel that stores
to its peers' tensors needs two: before its first store, because a peer's stream may not have reached the kernel yet,
and after its last, because what the peers stored here has then arrived.

Barrier state is a row of words for each program: its epoch, and a flag of each PE. A program increments its epoch,
stores it to its own flag at every peer, and waits until its flags have all reached that epoch. Epochs only grow, so
nothing is reset between launches or replays of a CUDA graph. They are int32 and wrap around, so their difference is
compared. A barrier takes the latency of one remote store.

All PEs launch the same kernels with the same grids, in the same order. Partners must be resident at the same time: the
grid fits on the GPU, or programs reach the barrier in the order of their numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.tracing.events import WAIT, clock, record_event
from triton_dist.language._poll import no_polls, poll

__all__ = ["PROGRAMS", "ROW", "arrive", "barrier", "peer_pointers", "signal_all", "wait", "wait_for_pe"]

ROW = 128
"""int32 words for each program: a flag of each PE (at most 72, see gpu/p2p.py), and its epoch as the last."""

PROGRAMS = 1024
"""How many programs can use the barrier at a time."""

_ROW = tl.constexpr(ROW)


@triton.jit
def peer_pointers(ptr, N_PES: tl.constexpr):
    """The addresses of a symmetric object on all PEs, a block of pointers (of the next power of two, the rest zero)."""
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    addresses = tl.zeros(pes.shape, tl.int64)
    for pe in tl.static_range(N_PES):
        addresses = tl.where(pes == pe, dl.symm_at(ptr, pe).to(tl.int64), addresses)
    return addresses.to(ptr.dtype)


@triton.jit
def signal_all(state, program, number, N_PES: tl.constexpr):
    """Signal all PEs that this program has reached epoch ``number`` and what it has stored has arrived.

    A program for which others wait in several epochs, and which waits in none of them, needs nothing else.
    """
    row = state + program * _ROW
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    tl.debug_barrier()  # what other threads of the program stored comes before the release, too
    tl.store(row + (_ROW - 1), number)
    flags = peer_pointers(row + dl.my_pe(), N_PES)
    tl.atomic_xchg(flags, number, mask=pes < N_PES, sem="release", scope="sys")


@triton.jit
def arrive(state, program, N_PES: tl.constexpr):
    """Arrive at the next barrier; the first half of :func:`barrier`.

    Returns:
        the barrier's epoch, for :func:`wait`.
    """
    number = tl.load(state + program * _ROW + (_ROW - 1)) + 1
    signal_all(state, program, number, N_PES)
    return number


@triton.jit
def wait(state, program, number, N_PES: tl.constexpr, trace=None, tile=0):
    """Wait until this program of every PE has reached epoch ``number``; the second half of :func:`barrier`."""
    began = clock(trace)
    row = state + program * _ROW
    pes = tl.arange(0, triton.next_power_of_2(N_PES))
    missing = True
    polls = no_polls()
    while missing:  # a volatile load is cheaper than an acquire, which is done once
        seen = tl.load(row + pes, mask=pes < N_PES, other=0, volatile=True)
        polls = poll(polls, row, dl.CMP_GE, number, writer=0, rows=N_PES, row_step=1)
        missing = tl.min(tl.where(pes < N_PES, seen - number, 0)) < 0
    tl.atomic_add(row + pes, 0, mask=pes < N_PES, sem="acquire", scope="sys")
    tl.debug_barrier()  # no thread continues before the one that acquired
    record_event(trace, WAIT, tile, began)


@triton.jit
def wait_for_pe(state, program, number, pe, trace=None, tile=0):
    """Wait until this program of one PE has reached epoch ``number``."""
    began = clock(trace)
    # (Triton compiles this to a load that acquires, and to nothing where the result is not used.)
    flag = state + program * _ROW + pe
    polls = no_polls()
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") - number < 0:
        polls = poll(polls, flag, dl.CMP_GE, number, pe)
    tl.debug_barrier()  # no thread continues before the one that acquired
    record_event(trace, WAIT, tile, began)


@triton.jit
def barrier(state, program, N_PES: tl.constexpr, trace=None, tile=0):
    """Wait until program ``program`` of every PE has arrived; what each stored before is then visible to this one.

    Args:
        state: the tensor of :func:`triton_dist.kernels.protocols.workspace.barrier_state`.
        program: which of ``PROGRAMS`` barriers, an integer; commonly ``tl.program_id(0)``. No two programs that run at
            the same time on one PE may name the same.
        N_PES: how many PEs the world has.
        trace, tile: where the wait is recorded, and as which tile; see ``tracing/events.py``.
    """
    wait(state, program, arrive(state, program, N_PES), N_PES, trace, tile)
