"""How the processes of a CPU world come to share memory: each tells the others, over the store, where its heap is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_dist.bootstrap import memfd
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.runtime.control import Caller, ControlBlock
from triton_dist.cpu.runtime.heap import SymmetricHeap
from triton_dist.cpu.team_sync import ControlBarrier
from triton_dist.cpu.transport import Transport
from triton_dist.decoding import integer, record

__all__ = ["DESCRIPTOR", "join"]

DESCRIPTOR = integer(0, (1 << 31) - 1)
"""The schema of a file descriptor."""

_CARD = record(integer(1, 1 << 62), DESCRIPTOR, integer(-1, (1 << 31) - 1))
"""Bytes that users may ask for, the descriptor of the heap, and PE 0's of the control block."""


def join(launch: Launch, size: int, reserved: int) -> Transport:
    """Make this PE's heap, map the others', and open the control block that PE 0 makes.

    The heap has room for ``size`` bytes, which users ask for, and ``reserved`` bytes more.

    None may end before all have joined, since a heap can be opened only while its owner lives: the caller's first
    barrier sees to it.
    """
    _check_one_machine(launch)
    pe, n_pes = launch.pe, launch.n_pes
    heap = SymmetricHeap(pe, n_pes, size + reserved)
    control = ControlBlock.create(n_pes) if pe == 0 else None
    cards = launch.exchange_values("heap", [size, heap.fd, control.fd if control else -1], _CARD)
    for other, (theirs, _, _) in enumerate(cards):
        if theirs != size:
            raise RuntimeError(
                f"PE {pe} has a symmetric heap of {size} bytes and PE {other} one of {theirs}: "
                "set TRITON_DIST_SYMMETRIC_SIZE alike on all PEs"
            )
    if control is None:
        with _explained(launch, 0):
            fd = memfd.open_of(launch.members[0].pid, cards[0][2], "control")
            control = ControlBlock.open(fd, n_pes)
    control.enter(pe)
    for other in filter(lambda other: other != pe, range(n_pes)):
        with _explained(launch, other):
            heap.attach(other, memfd.open_of(launch.members[other].pid, cards[other][1], f"heap_{other}"))
    barriers = {caller: ControlBarrier(control, caller, pe, n_pes) for caller in Caller}
    return Transport(heap, control, barriers)


def _check_one_machine(launch: Launch) -> None:
    for member in launch.members:
        mine = launch.members[launch.pe]
        if member.kernel_identity != mine.kernel_identity:
            raise RuntimeError(
                f"PE {launch.pe} is on {mine.host} and PE {member.pe} on {member.host}: a CPU world shares memory, so"
                " it lives on one machine, in one container. Over several, it takes TRITON_DIST_CPU_TRANSPORT=oshmem"
            )


@contextmanager
def _explained(launch: Launch, pe: int) -> Iterator[None]:
    """Around opening another process's memory."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        launch.check("join the world")
        if launch.members[pe].is_seen_dead:
            raise BrokenWorldError(
                f"PE {launch.pe} cannot join the world: PE {pe} is lost: its {launch.members[pe]} has ended"
            ) from None
        raise RuntimeError(
            f"{error}: the PEs of a CPU world run as one user, in one container, and none may end while they join"
        ) from None
