"""What arrives at once or as late as the standard allows: updates of a word of a PE's memory, data before them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from triton_dist.cpu.ops.elements import Element
from triton_dist.cpu.ops.progress import moved
from triton_dist.cpu.program import running
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.world import CpuWorld

__all__ = ["copy_of", "update_now_or_late"]


def copy_of(address: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
    """The bytes there now, for an operation that arrives when they may have changed."""
    return ctypes.create_string_buffer(ctypes.string_at(address, nbytes), nbytes)


def update_now_or_late(world: CpuWorld, place: tuple[int, int], element: Element, update: Callable[[], object]) -> None:
    """``update`` changes the word at ``place``, a PE and an offset, and whatever precedes it in the same operation."""
    program, pe = running(), place[0]
    if not world.delays_updates(pe):
        program.outstanding.before_update(pe)
        update()
        moved()
        return
    recorder, recorded, sent = world.recorder, program.recorded, program.sent

    def bits() -> int:
        return world.heap.words(element.size).load(*place, Order.RELAXED)

    def arrive() -> None:
        if recorder is None:
            update()
            return
        before = bits()
        update()
        recorder.arrived(recorded, sent, (before, bits()) if element.is_integer else None)

    program.outstanding.add(pe, arrive)
    moved()
