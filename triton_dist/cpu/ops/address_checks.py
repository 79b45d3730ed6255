"""Where an op acts: addresses that a kernel passes, checked against the symmetric heap."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist.cpu.world import CpuWorld, current

__all__ = ["check_aligned", "check_block", "count_of", "here", "local_array", "offset", "the_world", "there"]


def the_world() -> CpuWorld:
    world = current()
    if world is None:
        raise RuntimeError("there is no world: call triton_dist.init() first")
    return world


def count_of(name: str, value: int) -> int:
    """``value``, a number of bytes or elements."""
    if value < 0:
        raise ValueError(f"{name} is {value}: it must not be negative")
    return value


def offset(world: CpuWorld, name: str, address: int, count: int, align: int = 1) -> int:
    """The offset in the symmetric heap of ``count`` bytes at this PE's ``address``."""
    place = world.heap.find(address)
    if place is None:
        raise ValueError(f"{name} {address:#x} is not in the symmetric heap")
    pe, where = place
    if pe != world.pe:
        raise ValueError(f"{name} {world.describe(address)} is a place on PE {pe}: pass PE {world.pe}'s own address")
    if count > world.heap.size - where:
        raise ValueError(
            f"{count} bytes at {name} {world.describe(address)} leave the symmetric heap, "
            f"which ends {world.heap.size - where} bytes further on"
        )
    if where % align:
        raise ValueError(f"{name} {world.describe(address)} is not aligned to {align} bytes")
    return where


def check_aligned(name: str, address: int, align: int) -> None:
    """``address``, of this process's memory, is a multiple of ``align``, as that of an element is."""
    if address % align:
        raise ValueError(f"{name} {address:#x} is not aligned to {align} bytes")


def check_block(addresses: NDArray[Any], mask: NDArray[Any] | None) -> None:
    """Those of a block that ``mask`` lets through are in this PE's symmetric memory: what lies as far from another
    PE's heap as a private tensor does from this one's is no memory at all."""
    world = the_world()
    begin = world.heap.base(world.pe)
    outside = (addresses < begin) | (addresses >= begin + world.heap.size)
    if mask is not None:
        outside &= np.broadcast_to(mask, addresses.shape)
    if outside.any():
        offset(world, "ptr", int(addresses[outside][0]), 1)


def there(world: CpuWorld, name: str, address: int, pe: int, size: int) -> tuple[int, int]:
    """The PE and the offset of PE ``pe``'s copy of the element of ``size`` bytes at ``address``."""
    return world.check_pe(pe), offset(world, name, address, size, align=size)


def here(world: CpuWorld, name: str, address: int, count: int, size: int) -> int:
    """``address``, which has to hold ``count`` elements of ``size`` bytes in this PE's own symmetric memory."""
    return world.heap.base(world.pe) + offset(world, name, address, count * size, align=size)


def local_array(name: str, address: int, count: int, dtype: Any) -> NDArray[Any]:
    """A view of ``count`` elements of this process's memory. As for the program's own loads, no one checks more."""
    if count == 0:
        return np.empty(0, dtype)
    if address == 0:
        raise ValueError(f"{name} is null")
    nbytes = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)
