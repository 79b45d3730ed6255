"""Signals: words updated with release and awaited with acquire: who sees a signal sees what its sender did before."""

from __future__ import annotations

import ctypes
from functools import partial

from triton_dist._C.op_table import Cmp, SignalUpdate, ThreadScope
from triton_dist.cpu.ops.address_checks import count_of, here, offset, the_world, there
from triton_dist.cpu.ops.elements import U64
from triton_dist.cpu.ops.late import copy_of, update_now_or_late
from triton_dist.cpu.ops.progress import looked
from triton_dist.cpu.ops.sync import wait_for
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.world import CpuWorld

__all__ = ["putmem_signal", "putmem_signal_nbi", "signal_fetch", "signal_op", "signal_wait_until"]


def signal_op(sig_addr: int, signal: int, pe: int, sig_op: SignalUpdate) -> None:
    world = the_world()
    at = there(world, "sig_addr", sig_addr, pe, U64.size)
    update_now_or_late(world, at, U64, partial(_update, world, at, signal, sig_op))


def putmem_signal(
    dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, sig_op: SignalUpdate, scope: ThreadScope
) -> None:
    _put_and_signal(dst, src, nbytes, sig_addr, signal, pe, sig_op, nbi=False)


def putmem_signal_nbi(
    dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, sig_op: SignalUpdate, scope: ThreadScope
) -> None:
    _put_and_signal(dst, src, nbytes, sig_addr, signal, pe, sig_op, nbi=True)


def _put_and_signal(
    dst: int, src: int, nbytes: int, sig_addr: int, signal: int, pe: int, sig_op: SignalUpdate, *, nbi: bool
) -> None:
    world = the_world()
    at = there(world, "sig_addr", sig_addr, pe, U64.size)  # checked first: an op that fails has not done half
    place = offset(world, "dst", dst, count_of("nbytes", nbytes)) if nbytes else 0
    data = copy_of(src, nbytes) if nbytes and not nbi and world.delays_updates(pe) else None

    def update() -> None:
        world.heap.write(pe, place, src if data is None else ctypes.addressof(data), nbytes)
        world.heap.fence()  # the signal comes behind the data
        _update(world, at, signal, sig_op)

    update_now_or_late(world, at, U64, update)


def signal_fetch(sig_addr: int) -> int | float:
    world = the_world()
    address = here(world, "sig_addr", sig_addr, 1, U64.size)
    signal = U64.word.load(address, Order.ACQUIRE)
    looked(world, "signal_fetch", (world.pe, address - world.heap.base(world.pe)), signal)
    return U64.result(signal)


def signal_wait_until(sig_addr: int, cmp_value: int, cmp: Cmp) -> int | float:
    """The value that ended the wait."""
    return U64.result(wait_for("signal_wait_until", "sig_addr", sig_addr, cmp_value, cmp, U64))


def _update(world: CpuWorld, place: tuple[int, int], signal: int, sig_op: SignalUpdate) -> None:
    words = world.heap.words(U64.size)
    update = words.store if sig_op is SignalUpdate.SET else words.fetch_add
    update(*place, U64.bits(signal), Order.RELEASE)
