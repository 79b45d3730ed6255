"""Copies between this PE's memory and a peer's symmetric memory.

They complete before they return, those whose name ends in ``_nbi`` too: there is nobody else to do them.
"""

from __future__ import annotations

import ctypes

from triton_dist._C._runtime import Order
from triton_dist.world.cpu.ops.elements import ELEMENTS
from triton_dist.world.cpu.ops.places import at_least, offset, the_world, there
from triton_dist.world.cpu.ops.progress import looked, moved

__all__ = ["g", "getmem", "iget", "iput", "p", "putmem"]

_POLLABLE = 4096
"""Bytes: a get of more than this fetches data, it does not look whether something has happened."""


def putmem(dst: int, src: int, nbytes: int, pe: int, scope: int) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), at_least(0, "nbytes", nbytes)
    if nbytes:
        world.heap.write(pe, offset(world, "dst", dst, nbytes), src, nbytes)
        moved()


def getmem(dst: int, src: int, nbytes: int, pe: int, scope: int) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), at_least(0, "nbytes", nbytes)
    if not nbytes:
        return
    place = offset(world, "src", src, nbytes)
    world.heap.read(pe, place, dst, nbytes)
    if nbytes <= _POLLABLE:
        looked(world, "getmem", world.heap.base(pe) + place, ctypes.string_at(dst, nbytes))
    else:
        moved()


def iput(dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, scope: int) -> None:
    """Element i goes from ``src + i * src_stride`` to ``dst + i * dst_stride``, counted in elements."""
    world = the_world()
    size = ELEMENTS[type].size
    pe, nelems = world.check_pe(pe), at_least(0, "nelems", nelems)
    to, source = _bytes("dst_stride", dst_stride, size), _bytes("src_stride", src_stride, size)
    if nelems:
        place = offset(world, "dst", dst, (nelems - 1) * to + size)
        world.heap.write_strided(pe, place, to, src, source, size, nelems)
        moved()


def iget(dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: int, scope: int) -> None:
    world = the_world()
    size = ELEMENTS[type].size
    pe, nelems = world.check_pe(pe), at_least(0, "nelems", nelems)
    to, source = _bytes("dst_stride", dst_stride, size), _bytes("src_stride", src_stride, size)
    if nelems:
        place = offset(world, "src", src, (nelems - 1) * source + size)
        world.heap.read_strided(pe, place, source, dst, to, size, nelems)
        moved()


def _bytes(name: str, stride: int, size: int) -> int:
    return at_least(1, name, stride) * size


def p(dst: int, value: int | float, pe: int, type: int) -> None:
    element = ELEMENTS[type]
    element.word.store(there(the_world(), "dst", dst, pe, element.size), element.bits(value), order=Order.RELAXED)
    moved()


def g(src: int, pe: int, type: int) -> int | float:
    world = the_world()
    element = ELEMENTS[type]
    address = there(world, "src", src, pe, element.size)
    value = element.result(element.word.load(address, order=Order.ACQUIRE))
    looked(world, "g", address, value)
    return value
