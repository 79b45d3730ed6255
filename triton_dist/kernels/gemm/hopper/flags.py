"""Flags between programs and PEs, where one warp acts for its program.

(The ops of ``triton_dist.language`` act once for a whole program, which a partition of a warp-specialised one is not.)
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from triton_dist.language import CMP_GE
from triton_dist.language._poll import no_polls, poll

__all__ = [
    "acquire",
    "acquire_newest",
    "await_time",
    "clock",
    "fence_async_proxy",
    "nanoseconds",
    "reads_complete",
    "release_all",
    "signal_all",
    "signal_peer",
    "store_nothing",
    "stores_complete",
    "uniform",
    "wait_for_previous",
    "wait_peers",
]


@gluon.jit
def acquire(flag, number, scope: gl.constexpr):
    """Wait until ``flag`` is ``number`` or later, with acquire semantics: stores before its update are visible then.

    Numbers wrap around after 2³² launches, so the sign of their difference gives their order.
    """
    polls = no_polls()
    while gl.atomic_add(flag, 0, sem="acquire", scope=scope) - number < 0:
        polls = poll(polls, flag, CMP_GE, number)


@gluon.jit
def acquire_newest(flag, number, scope: gl.constexpr):
    """As :func:`acquire`; returns the flag, which may be a later number. (Carried through that loop, it takes registers
    that fp8 products do not have.)"""
    polls = no_polls()
    seen = gl.atomic_add(flag, 0, sem="acquire", scope=scope)
    while seen - number < 0:
        polls = poll(polls, flag, CMP_GE, number)
        seen = gl.atomic_add(flag, 0, sem="acquire", scope=scope)
    return seen


@gluon.constexpr_function
def _lanes(num_warps):
    """A PE for each lane."""
    return gl.BlockedLayout([1], [32], [int(num_warps)], [0])


@gluon.jit
def wait_peers(flags, number, me, N_PES: gl.constexpr, step=1):
    """Wait until each peer's flag is ``number`` or later, of flags that are ``step`` words from PE to PE.

    A lane looks at each of them, of up to 32 PEs: one after the other they would take a latency each.

    Returns:
        how much later than ``number`` the earliest of them is.
    """
    gl.static_assert(N_PES <= 32, "a lane is for a PE")
    pes = gl.arange(0, 32, _lanes(gl.num_warps()))
    others = (pes < N_PES) & (pes != me)
    polls = no_polls()
    ahead = _ahead(flags + pes * step, number, others)
    while gl.min(ahead, 0) < 0:
        missing = gl.min(gl.where(ahead < 0, pes, 32), 0)
        polls = poll(polls, flags + missing * step, CMP_GE, number)
        ahead = _ahead(flags + pes * step, number, others)
    gl.barrier()  # what one lane has acquired is visible to all
    return gl.min(ahead, 0)


@gluon.jit
def _ahead(flags, number, others):
    """How much later than ``number`` each flag is; far ahead where there is none."""
    none = gl.zeros(flags.shape, gl.int32, flags.type.layout)
    seen = gl.atomic_add(flags, none, mask=others, sem="acquire", scope="sys")
    return gl.where(others, seen - number, 0x7FFFFFFF)


@gluon.jit
def signal_peer(flag, distance, number):
    """Store ``number`` to a symmetric flag on a peer, ``distance`` bytes away, with release semantics."""
    there = (flag.to(gl.int64) + distance).to(gl.pointer_type(gl.int32))
    gl.atomic_xchg(there, number, sem="release", scope="sys")


@gluon.jit
def signal_all(flag, distances, me, number, N_PES: gl.constexpr):
    """Store ``number`` to a symmetric flag on each peer, of up to 32 PEs, ``distances`` bytes away, with release
    semantics.

    One fence is for all of them, and with the stores a release pattern (PTX ISA, memory consistency model). A release
    of each would wait again for the stores that are still in flight.
    """
    gl.static_assert(N_PES <= 32, "a lane is for a PE")
    gl.barrier()  # what any lane has done and seen comes before the fence of each
    pes = gl.arange(0, 32, _lanes(gl.num_warps()))
    others = (pes < N_PES) & (pes != me)
    there = (flag.to(gl.int64) + gl.load(distances + pes, mask=others, other=0)).to(gl.pointer_type(gl.int32))
    release_all()
    numbers = gl.zeros(there.shape, gl.int32, there.type.layout) + number
    gl.atomic_xchg(there, numbers, mask=others, sem="relaxed", scope="sys")


@gluon.jit
def release_all():
    """What this thread has done and seen is visible to a thread that observes a later store of this one."""
    gl.inline_asm_elementwise("fence.acq_rel.sys; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.constexpr_function
def _wait_group(number):
    return f"cp.async.bulk.wait_group {number}; mov.b32 $0, 0;"


@gluon.jit
def stores_complete(but: gl.constexpr = 0):
    """Wait until this warp's TMA stores, but for the last few, are complete, so that a release covers them.

    ``tma.store_wait`` waits only until their source has been read. An H200 does no more here, either: the fence of
    the release waits for stores to peers that are still in flight (docs/decisions/0119).
    """
    gl.inline_asm_elementwise(_wait_group(but), "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def store_nothing():
    """Close an empty group of bulk copies in place of that of a store, so that a wait may count groups."""
    gl.inline_asm_elementwise(
        "cp.async.bulk.commit_group; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def fence_async_proxy():
    """Make what an acquire has made visible to ordinary loads visible to TMA loads."""
    gl.inline_asm_elementwise("fence.proxy.async; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def reads_complete():
    """Wait until all warps have what they have loaded from shared memory, so that TMA may overwrite it.

    It may still be on its way to registers when all warps have asked for it, and a barrier does not order ordinary
    loads before writes of TMA, which is another proxy (PTX ISA, memory consistency model): the fence does. Without it
    TMA overwrote what had been asked for (docs/decisions/0132).
    """
    fence_async_shared()
    gl.barrier()


@gluon.jit
def wait_for_previous():
    """Wait for the end of the kernel in front, if this one has begun before it (``dependent_launch.py``)."""
    gl.inline_asm_elementwise("griddepcontrol.wait; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def uniform(value):
    """An int32 or int64 that all lanes of the calling warp have, in registers of the warp. Of what came from other
    lanes the compiler does not know that it is one number, and all code that depends on it is slower, TMA's most of
    all (docs/decisions/0124)."""
    if value.dtype == gl.int64:
        upper, lower = _uniform_word((value >> 32).to(gl.int32)), _uniform_word(value.to(gl.int32))
        return (upper.to(gl.int64) << 32) | (lower.to(gl.int64) & 0xFFFFFFFF)
    else:
        return _uniform_word(value)


@gluon.jit
def _uniform_word(value):
    return gl.inline_asm_elementwise(
        "redux.sync.or.b32 $0, $1, 0xffffffff;", "=r,r", [value], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def clock():
    """Cycles of this multiprocessor, modulo 2³²."""
    return gl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def nanoseconds():
    """The time, modulo 2³² ns."""
    return gl.inline_asm_elementwise("mov.u32 $0, %globaltimer_lo;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def await_time(due):
    """Wait until ``due``, by :func:`nanoseconds`."""
    while nanoseconds() - due < 0:
        pass
