"""How the processes of a CPU world come to share memory: each tells the others, over the store, where its heap is."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from torch.distributed import Store  # type: ignore[attr-defined]

from triton_dist._C import _runtime
from triton_dist.world.base import Launch

__all__ = ["join"]


@dataclass(frozen=True)
class _Card:
    """What a PE tells the others about itself."""

    host: str
    pid: int
    size: int
    heap_fd: int
    control_fd: int = -1  # only PE 0's is one

    def publish(self, store: Store, pe: int) -> None:
        store.set(f"pe/{pe}", json.dumps(asdict(self)))

    @staticmethod
    def of(store: Store, pe: int) -> _Card:
        return _Card(**json.loads(store.get(f"pe/{pe}")))


def join(launch: Launch, size: int) -> tuple[_runtime.SymmetricHeap, _runtime.ControlBlock]:
    """Make this PE's heap, map the others', and open the control block that PE 0 makes.

    A PE enters the control block before it tells the others of its heap: one whose card can be read is one whose death
    is noticed. None may end before all have joined, since a heap can be opened only while its owner lives: the caller's
    first barrier sees to it.
    """
    pe, n_pes, store = launch.pe, launch.n_pes, launch.store
    heap = _runtime.SymmetricHeap(pe, n_pes, size)
    mine = _Card(socket.gethostname(), os.getpid(), size, heap.fd)
    if pe == 0:
        control = _runtime.ControlBlock.create(n_pes)
        mine = replace(mine, control_fd=control.fd)
    else:
        assert store is not None
        card = _await_card(store, 0)
        _check(pe, mine, 0, card)
        with _explained():
            control = _runtime.ControlBlock.open(card.pid, card.control_fd, n_pes)
    control.enter(pe)
    if store is not None:
        mine.publish(store, pe)
        for other in filter(lambda other: other != pe, range(n_pes)):
            card = _await_card(store, other, control)
            _check(pe, mine, other, card)
            with _explained():
                heap.attach(other, card.pid, card.heap_fd)
    return heap, control


def _await_card(store: Store, pe: int, control: _runtime.ControlBlock | None = None) -> _Card:
    seconds = store.timeout.total_seconds()  # type: ignore[attr-defined]
    deadline = time.monotonic() + seconds
    while not store.check([f"pe/{pe}"]):
        if control is not None and (broken := control.aborted()):
            raise RuntimeError("PE {} {}".format(*broken))
        if time.monotonic() > deadline:
            raise RuntimeError(f"PE {pe} did not join within {seconds:.0f} s: was it started, and did it fail?")
        time.sleep(0.005)
    return _Card.of(store, pe)


def _check(pe: int, mine: _Card, other: int, card: _Card) -> None:
    if card.host != mine.host:
        raise RuntimeError(
            f"PE {pe} is on {mine.host} and PE {other} on {card.host}: "
            "a CPU world shares memory, so it lives on one machine"
        )
    if card.size != mine.size:
        raise RuntimeError(
            f"PE {pe} has a symmetric heap of {mine.size} bytes and PE {other} one of {card.size}: "
            "set TRITON_DIST_SYMMETRIC_SIZE alike on all PEs"
        )


@contextmanager
def _explained() -> Iterator[None]:
    """Around opening another process's memory."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"{error}: the PEs of a CPU world run as one user, in one container, and none may end while they join"
        ) from None
