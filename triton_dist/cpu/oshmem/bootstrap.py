"""How the PEs of a CPU world start the library, and cut their heaps from its memory."""

from __future__ import annotations

import ctypes
import os
from typing import NoReturn

from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.oshmem import job
from triton_dist.cpu.oshmem.collectives import SYNC_BYTES, OshmemCollectives
from triton_dist.cpu.oshmem.control import WatchedControl
from triton_dist.cpu.oshmem.heap import ANSWER_BYTES, OshmemHeap
from triton_dist.cpu.oshmem.library import Library
from triton_dist.cpu.runtime.control import Caller
from triton_dist.cpu.team_sync import PLACE_BYTES, HeapBarrier
from triton_dist.cpu.transport import Transport
from triton_dist.process_state import of_process

__all__ = ["join"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SLACK = 16 << 20
"""Bytes that the library's own allocator and its collectives take of the heap."""


def join(launch: Launch, size: int, reserved: int) -> Transport:
    """The library's heap with room for ``size`` bytes, which users ask for, and ``reserved`` bytes more. *Collective.*

    Raises:
        RuntimeError: the library is not there or cannot start; its PEs are not those of the launch; heaps differ.
    """
    pe, n_pes = launch.pe, launch.n_pes
    for other, theirs in enumerate(launch.exchange("heap", str(size))):
        if theirs != str(size):
            raise RuntimeError(
                f"PE {pe} has a symmetric heap of {size} bytes and PE {other} one of {theirs}: "
                "set TRITON_DIST_SYMMETRIC_SIZE alike on all PEs"
            )
    library = of_process(Library)
    if not library.started:
        job.enter(launch)
    heap_bytes = -(-(size + reserved) // _PAGE) * _PAGE
    region_bytes = heap_bytes + SYNC_BYTES + ANSWER_BYTES
    library.start(region_bytes + _SLACK)
    place = library.place
    if place != (pe, n_pes):
        raise RuntimeError(
            f"this process is PE {pe} of {n_pes}, and the OpenSHMEM library counts it as PE {place[0]} of {place[1]}:"
            " with TRITON_DIST_CPU_TRANSPORT=oshmem a world has all processes of the launch, by their ranks"
        )
    begin = library.region(region_bytes, _PAGE)

    def lost(other: int) -> NoReturn:
        doing = f"read memory of PE {other}"
        launch.await_trouble(doing)
        raise BrokenWorldError(
            f"PE {pe} cannot {doing}: the OpenSHMEM library has lost the connection to {launch.members[other]}; it says"
            " why above"
        )

    heap = OshmemHeap(library, pe, n_pes, begin, heap_bytes, heap_bytes + SYNC_BYTES, lost)
    ctypes.memset(begin, 0, reserved)  # an earlier world met there, too
    collectives = OshmemCollectives(library, heap, pe, n_pes, heap_bytes)  # behind the heap of users
    launch.exchange("heap is ready", "")
    places = range(0, 2 * PLACE_BYTES, PLACE_BYTES)
    barriers = {
        caller: HeapBarrier.at(heap, pe, range(n_pes), offset) for caller, offset in zip(Caller, places, strict=True)
    }

    def close() -> None:
        # No PE needs this PE's memory any more when all have said so; the library's barrier then empties its sockets.
        launch.exchange("oshmem ends", "")
        library.call(library.barrier_all)

    return Transport(heap, WatchedControl(launch), barriers, collectives, close)
