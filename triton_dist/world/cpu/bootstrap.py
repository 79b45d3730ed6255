"""How the processes of a CPU world come to share memory: each tells the others, over the store, where its heap is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from triton_dist._C import _runtime
from triton_dist.world.base import BrokenWorldError, Launch

__all__ = ["join"]


def join(launch: Launch, size: int, reserved: int) -> tuple[_runtime.SymmetricHeap, _runtime.ControlBlock]:
    """Make this PE's heap, map the others', and open the control block that PE 0 makes.

    The heap has room for ``size`` bytes, which users ask for, and ``reserved`` bytes more.

    None may end before all have joined, since a heap can be opened only while its owner lives: the caller's first
    barrier sees to it.
    """
    _check_one_machine(launch)
    pe, n_pes = launch.pe, launch.n_pes
    heap = _runtime.SymmetricHeap(pe, n_pes, size + reserved)
    control = _runtime.ControlBlock.create(n_pes) if pe == 0 else None
    mine = {"size": size, "heap": heap.fd, "control": control.fd if control else -1}
    cards = [json.loads(card) for card in launch.exchange("heap", json.dumps(mine))]
    for other, card in enumerate(cards):
        if card["size"] != size:
            raise RuntimeError(
                f"PE {pe} has a symmetric heap of {size} bytes and PE {other} one of {card['size']}: "
                "set TRITON_DIST_SYMMETRIC_SIZE alike on all PEs"
            )
    if control is None:
        with _explained(launch, 0):
            control = _runtime.ControlBlock.open(launch.members[0].pid, cards[0]["control"], n_pes)
    control.enter(pe)
    for other in filter(lambda other: other != pe, range(n_pes)):
        with _explained(launch, other):
            heap.attach(other, launch.members[other].pid, cards[other]["heap"])
    return heap, control


def _check_one_machine(launch: Launch) -> None:
    for member in launch.members:
        mine = launch.members[launch.pe]
        if member.kernel_identity != mine.kernel_identity:
            raise RuntimeError(
                f"PE {launch.pe} is on {mine.host} and PE {member.pe} on {member.host}: a CPU world shares memory, so"
                " it lives on one machine, in one container"
            )


@contextmanager
def _explained(launch: Launch, pe: int) -> Iterator[None]:
    """Around opening another process's memory."""
    try:
        yield
    except RuntimeError as error:
        launch.check("join the world")
        if launch.members[pe].is_seen_dead:
            raise BrokenWorldError(
                f"PE {launch.pe} cannot join the world: PE {pe} is lost: its {launch.members[pe]} has ended"
            ) from None
        raise RuntimeError(
            f"{error}: the PEs of a CPU world run as one user, in one container, and none may end while they join"
        ) from None
