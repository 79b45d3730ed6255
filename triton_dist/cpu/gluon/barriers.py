"""mbarriers: phases that end when so many have arrived, and so many bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_dist.cpu.gluon.partition import constant, perhaps_pause
from triton_dist.cpu.gluon.shared_memory import Blocks
from triton_dist.cpu.program import running

__all__ = ["Barrier", "arrive", "barrier_of", "expect", "init", "invalidate", "wait"]


class Barrier:
    """One mbarrier (PTX ISA, mbarrier object)."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.phase, self.left, self.nbytes = 0, count, 0
        self.loads: list[Callable[[], None]] = []
        """TMA loads that have not arrived."""

    def arrive(self, count: int, nbytes: int = 0) -> None:
        """``count`` arrive, and the phase waits for so many bytes more."""
        if count > self.left:
            raise RuntimeError(
                f"{self}: {count} more arrive than the {self.count} of its phase: each has to wait for the end of the"
                " phase before it arrives again"
            )
        self.left -= count
        self.receive(-nbytes)

    def receive(self, nbytes: int) -> None:
        """Bytes have arrived, maybe before they are expected."""
        self.nbytes -= nbytes
        if self.left == 0 and self.nbytes == 0:
            self.phase, self.left = self.phase + 1, self.count

    def has_ended(self, parity: int) -> bool:
        """Whether the phase of this parity has ended, which is the one that runs or the one before it."""
        loads, self.loads = self.loads, []
        for load in loads:
            load()
        return self.phase & 1 != parity

    def __str__(self) -> str:
        return f"mbarrier {self.name}, phase {self.phase}, {self.left} of {self.count} to arrive, {self.nbytes} bytes"


def barrier_of(blocks: Blocks) -> Barrier:
    found = blocks.of.barriers.get(blocks.offset)
    if not isinstance(found, Barrier):
        raise RuntimeError("this mbarrier was not initialized: call mbarrier.init first")
    return found


def init(mbarrier: Blocks, count: Any) -> None:
    """``mbarrier.init``."""
    name = f"{mbarrier.offset // 8} of its {mbarrier.of.bytes.nbytes // 8}"
    mbarrier.of.barriers[mbarrier.offset] = Barrier(name, int(constant(count)))


def invalidate(mbarrier: Blocks) -> None:
    """``mbarrier.invalidate``."""
    barrier_of(mbarrier)
    del mbarrier.of.barriers[mbarrier.offset]


def expect(mbarrier: Blocks, bytes_per_cta: Any = None, pred: Any = True) -> None:
    """``mbarrier.expect``: arrives, and the phase lasts until so many bytes are there."""
    if constant(pred):
        perhaps_pause()
        barrier_of(mbarrier).arrive(1, int(constant(bytes_per_cta)))


def arrive(mbarrier: Blocks, *, count: Any = 1, pred: Any = True) -> None:
    """``mbarrier.arrive``."""
    if constant(pred):
        perhaps_pause()
        barrier_of(mbarrier).arrive(int(constant(count)))


def wait(mbarrier: Blocks, phase: Any, pred: Any = True, deps: Any = ()) -> None:
    """``mbarrier.wait``: for the end of the phase of this parity."""
    if constant(pred):
        barrier, parity = barrier_of(mbarrier), int(constant(phase)) & 1
        running().wait_until(lambda: barrier.has_ended(parity), lambda: f"mbarrier.wait for parity {parity}: {barrier}")
