"""A barrier between the programs of equal number on a group's PEs: program i waits until program i of each has arrived.

What a program stored before it arrived, to any PE, is visible to its partners behind the barrier. A kernel that stores
to its peers' tensors needs two: before its first store, because a peer's stream may not have reached the kernel yet,
and after its last, because what the peers stored here has then arrived.

Barrier state is a row of words for each program: its epoch, and a flag of each member, by rank. A program increments
its epoch, stores it to its own flag at every peer, and waits until its flags have all reached that epoch. Epochs only
grow, so nothing is reset between launches or replays of a CUDA graph. They are int32 and wrap around, so their
difference is compared. A barrier takes the latency of one remote store.

All members launch the same kernels with the same grids, in the same order. Partners must be resident at the same time:
the grid fits on the GPU, or programs reach the barrier in the order of their numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.protocols.members import at_rank, group_size, my_rank, pe_of, stride_of
from triton_dist.kernels.tracing.events import WAIT, clock, record_event
from triton_dist.language._poll import no_polls, poll

__all__ = ["PROGRAMS", "ROW", "arrive", "barrier", "peer_pointers", "signal_all", "wait", "wait_for_rank"]

ROW = 128
"""int32 words for each program: a flag of each member (at most 72, see gpu/p2p.py), and its epoch as the last."""

PROGRAMS = 1024
"""How many programs can use the barrier at a time."""

_ROW = tl.constexpr(ROW)


@triton.jit
def peer_pointers(ptr, MEMBERS: tl.constexpr):
    """The addresses of a symmetric object on all members, by rank: a block of pointers, of the next power of two, the
    rest zero."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))
    addresses = tl.zeros(ranks.shape, tl.int64)
    for rank in tl.static_range(N_PES):
        addresses = tl.where(ranks == rank, at_rank(ptr, rank, MEMBERS).to(tl.int64), addresses)
    return addresses.to(ptr.dtype)


@triton.jit
def signal_all(state, program, number, MEMBERS: tl.constexpr):
    """Signal all members that this program has reached epoch ``number`` and what it has stored has arrived.

    A program for which others wait in several epochs, and which waits in none of them, needs nothing else.
    """
    N_PES: tl.constexpr = group_size(MEMBERS)
    row = state + program * _ROW
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))
    tl.debug_barrier()  # what other threads of the program stored comes before the release, too
    tl.store(row + (_ROW - 1), number)
    flags = peer_pointers(row + my_rank(MEMBERS), MEMBERS)
    tl.atomic_xchg(flags, number, mask=ranks < N_PES, sem="release", scope="sys")


@triton.jit
def arrive(state, program, MEMBERS: tl.constexpr):
    """Arrive at the next barrier; the first half of :func:`barrier`.

    Returns:
        the barrier's epoch, for :func:`wait`.
    """
    number = tl.load(state + program * _ROW + (_ROW - 1)) + 1
    signal_all(state, program, number, MEMBERS)
    return number


@triton.jit
def wait(state, program, number, MEMBERS: tl.constexpr, trace=None, tile=0):
    """Wait until this program of every member has reached epoch ``number``; the second half of :func:`barrier`."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    began = clock(trace)
    row = state + program * _ROW
    ranks = tl.arange(0, triton.next_power_of_2(N_PES))
    first = pe_of(0, MEMBERS)
    missing = True
    polls = no_polls()
    while missing:  # a volatile load is cheaper than an acquire, which is done once
        seen = tl.load(row + ranks, mask=ranks < N_PES, other=0, volatile=True)
        polls = poll(polls, row, dl.CMP_GE, number, first, N_PES, 1, 1, writer_step=stride_of(MEMBERS))
        missing = tl.min(tl.where(ranks < N_PES, seen - number, 0)) < 0
    tl.atomic_add(row + ranks, 0, mask=ranks < N_PES, sem="acquire", scope="sys")
    tl.debug_barrier()  # no thread continues before the one that acquired
    record_event(trace, WAIT, tile, began)


@triton.jit
def wait_for_rank(state, program, number, rank, MEMBERS: tl.constexpr, trace=None, tile=0):
    """Wait until this program of the member ``rank`` has reached epoch ``number``."""
    began = clock(trace)
    # (Triton compiles this to a load that acquires, and to nothing where the result is not used.)
    flag = state + program * _ROW + rank
    pe = pe_of(rank, MEMBERS)
    polls = no_polls()
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") - number < 0:
        polls = poll(polls, flag, dl.CMP_GE, number, pe)
    tl.debug_barrier()  # no thread continues before the one that acquired
    record_event(trace, WAIT, tile, began)


@triton.jit
def barrier(state, program, MEMBERS: tl.constexpr, trace=None, tile=0):
    """Wait until program ``program`` of every member has arrived; what each stored before is then visible to this one.

    Args:
        state: the tensor of :func:`triton_dist.kernels.protocols.workspace.barrier_state`.
        program: which of ``PROGRAMS`` barriers, an integer; commonly ``tl.program_id(0)``. No two programs that run at
            the same time on one PE may name the same.
        MEMBERS: the members of the group whose barrier this is, which ``state`` belongs to.
        trace, tile: where the wait is recorded, and as which tile; see ``tracing/events.py``.
    """
    wait(state, program, arrive(state, program, MEMBERS), MEMBERS, trace, tile)
