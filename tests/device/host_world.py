"""A world whose PEs, and the threads of whose programs, are threads of this process."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from limits import HANG_SECONDS

from triton_dist.gpu import p2p

__all__ = ["HostWorld", "Pe"]

THREADS = 3  # of a program


class Pe:
    """One PE of a :class:`HostWorld`, for the thread that drives it: its programs have some threads each."""

    def __init__(self, world: HostWorld, number: int) -> None:
        self.number = number
        self.n_pes = world.n_pes
        self._world = world
        self._barriers = np.zeros(1, dtype=np.uint64)
        distances = [(other - number) * len(world.heaps[0]) for other in range(world.n_pes)]
        self._place = number, distances, world.heaps[number].ctypes.data + world.HEAP
        self._state = p2p.state(*self._place)

    def reach_all_but(self, pes: list[int]) -> None:
        """As between hosts: kernels may not load from and store to ``pes``."""
        self._state = p2p.state(*self._place, unreachable=pes)

    def array(self, offset: int, count: int, dtype: Any, pe: int | None = None) -> np.ndarray:
        """Symmetric elements, of this PE or of another."""
        heap = self._world.heaps[self.number if pe is None else pe]
        return heap[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)

    def call(self, name: str, *arguments: Any, result: Any = None) -> Any:
        """Call a routine, by all threads of a program or by one, as its name says; what it returned to the first.

        Arrays stand for their addresses; integers are 64-bit, which suits 32-bit arguments too.
        """
        symbol = name if name.startswith("nvshmem_") else f"triton_dist_{name}"
        routine = self._world.library[symbol]  # an object of this call's own, unlike an attribute
        routine.restype = result
        values = [_argument(value) for value in arguments]
        count = THREADS if name.endswith(("_warp", "_block")) else 1

        def call_as(thread: int) -> Any:
            self._world.library.become(self._state, thread, count, _argument(self._barriers))
            return routine(*values)

        # Daemons: one that waits for ever must not keep pytest from ending.
        others = [threading.Thread(target=call_as, args=(thread,), daemon=True) for thread in range(1, count)]
        for other in others:
            other.start()
        first = call_as(0)
        for other in others:
            other.join()
        return first


class HostWorld:
    """PEs that are threads, their heaps side by side in this process, and the library compiled for this machine."""

    HEAP = 1 << 16

    def __init__(self, library: ctypes.CDLL, n_pes: int) -> None:
        self.library = library
        self.n_pes = n_pes
        size = self.HEAP + -(-p2p.sync_bytes() // 4096) * 4096
        memory = np.zeros(n_pes * size + 4096, dtype=np.uint8)
        start = -memory.ctypes.data % 4096
        self.heaps = [memory[start + pe * size : start + (pe + 1) * size] for pe in range(n_pes)]

    def run(self, program: Callable[[Pe], None]) -> None:
        """Run ``program`` on every PE at once, and raise what one of them raises."""
        errors: list[BaseException] = []

        def be(number: int) -> None:
            try:
                program(Pe(self, number))
            except BaseException as error:
                errors.append(error)

        pes = [threading.Thread(target=be, args=(number,), daemon=True) for number in range(self.n_pes)]
        for pe in pes:
            pe.start()
        deadline = time.monotonic() + HANG_SECONDS
        while any(pe.is_alive() for pe in pes) and not errors and time.monotonic() < deadline:
            time.sleep(0.001)
        if errors:
            raise errors[0]  # the others may be waiting for that one for ever
        assert not any(pe.is_alive() for pe in pes), "PEs wait for each other, and nobody comes"


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, (int, np.integer)):
        return ctypes.c_int64(int(value))
    return value
