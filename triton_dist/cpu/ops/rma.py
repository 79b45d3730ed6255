"""Copies between this PE's memory and a peer's symmetric memory.

They complete before they return, those whose name ends in ``_nbi`` too, unless a schedule delays them (see
:mod:`triton_dist.cpu.outstanding`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from triton_dist._C.op_table import ElementType, ThreadScope
from triton_dist.cpu.ops.address_checks import check_aligned, count_of, offset, the_world, there
from triton_dist.cpu.ops.elements import ELEMENTS
from triton_dist.cpu.ops.late import copy_of
from triton_dist.cpu.ops.progress import looked, moved
from triton_dist.cpu.program import running
from triton_dist.cpu.runtime.atomics import Order
from triton_dist.cpu.world import CpuWorld

__all__ = ["g", "getmem", "getmem_nbi", "ibget", "ibput", "iget", "iput", "p", "putmem", "putmem_nbi"]

_POLLABLE = 4096
"""Bytes: a get of more than this fetches data, it does not look whether something has happened."""


def putmem(dst: int, src: int, nbytes: int, pe: int, scope: ThreadScope) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), count_of("nbytes", nbytes)
    if nbytes:
        place = offset(world, "dst", dst, nbytes)
        if world.delays_copies(pe):
            data = copy_of(src, nbytes)
            running().outstanding.add(pe, lambda: world.heap.write(pe, place, ctypes.addressof(data), nbytes))
        else:
            world.heap.write(pe, place, src, nbytes)
        moved()


def putmem_nbi(dst: int, src: int, nbytes: int, pe: int, scope: ThreadScope) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), count_of("nbytes", nbytes)
    if nbytes:
        _copy(world, pe, pe, partial(world.heap.write_nbi, pe, offset(world, "dst", dst, nbytes), src, nbytes))
        moved()


def getmem(dst: int, src: int, nbytes: int, pe: int, scope: ThreadScope) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), count_of("nbytes", nbytes)
    if not nbytes:
        return
    place = offset(world, "src", src, nbytes)
    world.heap.read(pe, place, dst, nbytes)
    if nbytes <= _POLLABLE:
        looked(world, "getmem", (pe, place), ctypes.string_at(dst, nbytes))
    else:
        moved()


def getmem_nbi(dst: int, src: int, nbytes: int, pe: int, scope: ThreadScope) -> None:
    world = the_world()
    pe, nbytes = world.check_pe(pe), count_of("nbytes", nbytes)
    if nbytes:
        place = offset(world, "src", src, nbytes)
        _copy(world, pe, None, partial(world.heap.read_nbi, pe, place, dst, nbytes))
        if nbytes <= _POLLABLE and not world.delays_copies(pe):
            looked(world, "getmem_nbi", (pe, place), ctypes.string_at(dst, nbytes))
        else:
            moved()


def _copy(world: CpuWorld, peer: int, target: int | None, make: Callable[[], None]) -> None:
    """Make a non-blocking copy, a put to ``target`` or, with None, a get from ``peer``, now or later."""
    if world.delays_copies(peer):
        running().outstanding.add(target, make)
    else:
        make()


def iput(
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: ElementType, scope: ThreadScope
) -> None:
    """Element i goes from ``src + i * src_stride`` to ``dst + i * dst_stride``, counted in elements."""
    _put_parts(dst, src, dst_stride, src_stride, *_elements(dst_stride, nelems), pe, type)


def iget(
    dst: int, src: int, dst_stride: int, src_stride: int, nelems: int, pe: int, type: ElementType, scope: ThreadScope
) -> None:
    _get_parts(dst, src, dst_stride, src_stride, *_elements(dst_stride, nelems), pe, type)


def ibput(
    dst: int, src: int, dst_stride: int, src_stride: int, bsize: int, nblocks: int, pe: int,
    type: ElementType, scope: ThreadScope,
) -> None:  # fmt: skip
    """As ``iput``, of blocks of ``bsize`` elements."""
    _put_parts(dst, src, dst_stride, src_stride, *_blocks(dst_stride, bsize, nblocks), pe, type)


def ibget(
    dst: int, src: int, dst_stride: int, src_stride: int, bsize: int, nblocks: int, pe: int,
    type: ElementType, scope: ThreadScope,
) -> None:  # fmt: skip
    _get_parts(dst, src, dst_stride, src_stride, *_blocks(dst_stride, bsize, nblocks), pe, type)


def _elements(dst_stride: int, nelems: int) -> tuple[int, int]:
    """Blocks of one element, which lie at different places in ``dst``: which of them came last would be chance."""
    if count_of("nelems", nelems) > 1 and dst_stride == 0:
        raise ValueError(
            f"dst_stride is 0: all {nelems} elements have one place in dst; pass at least 1, or at most -1"
        )
    return 1, nelems


def _blocks(dst_stride: int, bsize: int, nblocks: int) -> tuple[int, int]:
    """The elements of a block and the number of blocks, which do not overlap in ``dst``."""
    bsize, nblocks = count_of("bsize", bsize), count_of("nblocks", nblocks)
    if nblocks > 1 and abs(dst_stride) < bsize:
        raise ValueError(
            f"dst_stride is {dst_stride}: blocks of {bsize} elements overlap in dst; "
            f"pass at least {bsize}, or at most -{bsize}"
        )
    return bsize, nblocks if bsize else 0


def _put_parts(
    dst: int, src: int, dst_stride: int, src_stride: int, part: int, count: int, pe: int, type: ElementType
) -> None:
    """``count`` parts of ``part`` elements; strides are from the begin of one to that of the next."""
    world, size = the_world(), ELEMENTS[type].size
    world.check_pe(pe)
    if count:
        place, nbytes = _strided(world, "dst", dst, dst_stride * size, count, part * size, size), part * size
        check_aligned("src", src, size)
        if world.delays_copies(pe):
            data = b"".join(ctypes.string_at(src + i * src_stride * size, nbytes) for i in range(count))
            kept = ctypes.create_string_buffer(data, len(data))
            running().outstanding.add(
                pe,
                lambda: world.heap.write_strided(
                    pe, place, dst_stride * size, ctypes.addressof(kept), nbytes, nbytes, count
                ),
            )
        else:
            world.heap.write_strided(pe, place, dst_stride * size, src, src_stride * size, nbytes, count)
        moved()


def _get_parts(
    dst: int, src: int, dst_stride: int, src_stride: int, part: int, count: int, pe: int, type: ElementType
) -> None:
    world, size = the_world(), ELEMENTS[type].size
    world.check_pe(pe)
    if count:
        place, nbytes = _strided(world, "src", src, src_stride * size, count, part * size, size), part * size
        check_aligned("dst", dst, size)
        world.heap.read_strided(pe, place, src_stride * size, dst, dst_stride * size, nbytes, count)
        if nbytes * count <= _POLLABLE:
            found = b"".join(ctypes.string_at(dst + i * dst_stride * size, nbytes) for i in range(count))
            looked(world, "iget", (pe, place), found)
        else:
            moved()


def _strided(world: CpuWorld, name: str, address: int, stride: int, count: int, size: int, align: int) -> int:
    """The offset of the first of ``count`` parts of ``size`` bytes; with a negative stride it lies last."""
    reach = (count - 1) * stride
    lowest = offset(world, name, address + min(reach, 0), abs(reach) + size, align)
    return lowest - min(reach, 0)


def p(dst: int, value: int | float, pe: int, type: ElementType) -> None:
    """A relaxed store: it orders nothing."""
    world, element = the_world(), ELEMENTS[type]
    place = there(world, "dst", dst, pe, element.size)
    store = partial(world.heap.words(element.size).store, *place, element.bits(value), Order.RELAXED)
    if world.delays_copies(pe):
        running().outstanding.add(pe, store)
    else:
        running().outstanding.before_update(pe)
        store()
    moved()


def g(src: int, pe: int, type: ElementType) -> int | float:
    world = the_world()
    element = ELEMENTS[type]
    place = there(world, "src", src, pe, element.size)
    value = element.result(world.heap.words(element.size).load(*place, Order.ACQUIRE))
    looked(world, "g", place, value)
    return value
