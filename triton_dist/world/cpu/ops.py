"""The SHMEM operations on shared memory: one function for each op of the dialect.

Copies complete before they return, those whose name ends in ``_nbi`` too: there is nobody else to do them. Signals are
atomic words, updated with release and awaited with acquire, so who sees a signal sees what its sender did before.

Arguments are what the language has checked: addresses and numbers as Python ints. What it cannot check (does a pointer
lie in the heap, is a PE in range) is checked here; the executor adds PE, program and line to the error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from triton_dist._C import _runtime
from triton_dist._C._runtime import Order
from triton_dist.world.cpu import scheduler
from triton_dist.world.cpu.world import CpuWorld, current

__all__ = ["IMPLEMENTATIONS"]

_WORD = 1 << 64
_SIGNAL_SET = 0
_COMPARISONS: tuple[tuple[str, Callable[[int, int], bool]], ...] = (
    ("==", operator.eq),
    ("!=", operator.ne),
    (">", operator.gt),
    (">=", operator.ge),
    ("<", operator.lt),
    ("<=", operator.le),
)


def _world() -> CpuWorld:
    world = current()
    if world is None:
        raise RuntimeError("there is no world: call triton_dist.init() first")
    return world


def _place(world: CpuWorld, what: str, address: int, count: int) -> int:
    """The offset in the symmetric heap of ``count`` bytes at this PE's ``address``."""
    place = world.heap.find(address)
    if place is None:
        raise ValueError(f"{what} {address:#x} is not in the symmetric heap")
    pe, offset = place
    if pe != world.pe:
        raise ValueError(f"{what} {world.describe(address)} is a place on PE {pe}: pass PE {world.pe}'s own address")
    if count > world.heap.size - offset:
        raise ValueError(
            f"{count} bytes at {what} {world.describe(address)} leave the symmetric heap, "
            f"which ends {world.heap.size - offset} bytes further on"
        )
    return offset


def _count(nbytes: int) -> int:
    if nbytes < 0:
        raise ValueError(f"nbytes is {nbytes}: it must not be negative")
    return nbytes


# ---- who and where


def my_pe() -> int:
    return _world().pe


def n_pes() -> int:
    return _world().n_pes


def symm_offset(ptr: int, pe: int) -> int:
    """How far PE ``pe``'s copy of what is at ``ptr`` lies from this PE's, in bytes."""
    world = _world()
    _place(world, "ptr", ptr, 0)
    return world.heap.base(world.check_pe(pe)) - world.heap.base(world.pe)


# ---- copies


def putmem(dst: int, src: int, nbytes: int, pe: int) -> None:
    world = _world()
    pe, nbytes = world.check_pe(pe), _count(nbytes)
    if nbytes:
        world.heap.write(pe, _place(world, "dst", dst, nbytes), src, nbytes)


def getmem(dst: int, src: int, nbytes: int, pe: int) -> None:
    world = _world()
    pe, nbytes = world.check_pe(pe), _count(nbytes)
    if nbytes:
        world.heap.read(pe, _place(world, "src", src, nbytes), dst, nbytes)


# ---- signals


def signal_op(sig_addr: int, signal: int, pe: int, update: int) -> None:
    world = _world()
    _update(_signal_on(world, sig_addr, pe), signal, update)


def putmem_signal(dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, update: int) -> None:
    there = _signal_on(_world(), sig_addr, pe)  # checked first: an op that fails has not done half
    putmem(dst, src, nbytes, pe)
    _update(there, signal, update)


def signal_wait_until(sig_addr: int, cmp_value: int, cmp: int) -> int:
    """The value that ended the wait."""
    world = _world()
    here = _signal_on(world, sig_addr, world.pe)
    expected = cmp_value % _WORD
    sign, holds = _COMPARISONS[cmp]
    seen = 0

    def ready() -> bool:
        nonlocal seen
        seen = _runtime.load64(here, order=Order.ACQUIRE)
        return holds(seen, expected)

    def describe() -> str:
        return f"signal_wait_until: {world.describe(here)} {sign} {expected}, seen {seen}"

    scheduler.running().wait_until(ready, describe)
    return seen if seen < _WORD // 2 else seen - _WORD  # as the bits of an int64, which the language asked for


def _signal_on(world: CpuWorld, sig_addr: int, pe: int) -> int:
    """The address, in this process, of the signal on ``pe``."""
    offset = _place(world, "sig_addr", sig_addr, 8)
    if offset % 8:
        raise ValueError(f"sig_addr {world.describe(sig_addr)} is not aligned to 8 bytes")
    return world.heap.base(world.check_pe(pe)) + offset


def _update(address: int, signal: int, update: int) -> None:
    if update == _SIGNAL_SET:
        _runtime.store64(address, signal % _WORD, order=Order.RELEASE)
    else:
        _runtime.fetch_add64(address, signal % _WORD, order=Order.RELEASE)


# ---- order


def fence() -> None:
    _world()
    _runtime.fence()


def barrier_all() -> None:
    """Of one program of each PE at a time."""
    world = _world()
    _runtime.fence()
    with world.kernel_barrier() as passed:
        scheduler.running().wait_until(passed, lambda: f"barrier_all: not all {world.n_pes} PEs have come")


def token_zero(token: int) -> int:
    return 0


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "my_pe": my_pe,
    "n_pes": n_pes,
    "symm_offset": symm_offset,
    "putmem": putmem,
    "putmem_nbi": putmem,
    "getmem": getmem,
    "getmem_nbi": getmem,
    "putmem_signal": putmem_signal,
    "putmem_signal_nbi": putmem_signal,
    "signal_op": signal_op,
    "signal_wait_until": signal_wait_until,
    "fence": fence,
    "quiet": fence,
    "barrier_all": barrier_all,
    "sync_all": barrier_all,
    "token_zero": token_zero,
}
"""By the dialect's name; called with the op's operands and then its attributes, in the order of its definition."""
