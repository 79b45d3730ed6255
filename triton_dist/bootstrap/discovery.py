"""How this process was started, and with whom: asked of torch.distributed or the launcher, checked with the others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from triton_dist import environment
from triton_dist.bootstrap import launchers
from triton_dist.bootstrap.authentication import read_secret
from triton_dist.bootstrap.deadline import within
from triton_dist.bootstrap.failure_detector import FailureDetector
from triton_dist.bootstrap.key_agreement import agree, create_key
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.launchers import mpi, process_group
from triton_dist.bootstrap.rendezvous import Member, check_in
from triton_dist.process_state import of_process

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["discover"]

Result = TypeVar("Result")

_SLACK_SECONDS = 8.0  # for the steps to detect the timeout themselves and to report it to the other PEs


class Sources:
    """What launchers have led to. One for each process, since a later world meets where an earlier one met."""

    def __init__(self) -> None:
        self.worlds: Counter[str] = Counter()
        """How many worlds this process has had from each launch, by its key. Every PE counts alike."""
        self.stores: dict[str, Store] = {}
        """The store of each launch. One of the PEs may hold it."""
        self._inherited: list[dict[str, Store]] = []
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a child of fork(), which is no PE of these launches: two processes cannot share a connection."""
        self._inherited.append(self.stores)  # kept, since a store's end waits for its thread, which the child lacks
        self.worlds, self.stores = Counter(), {}


def discover(group: Any = None, comm: Any = None) -> Launch:
    """This process's :class:`Launch`. *Collective* when there are several PEs.

    Args:
        group: a process group of torch.distributed, whose ranks are the PEs.
        comm: a communicator of mpi4py, whose ranks are the PEs.

    Without either: an initialised torch.distributed, else what the launcher has put into the environment.

    Raises:
        RuntimeError: the environment says only half of what is needed, or contradicts itself; a PE does not come within
            ``TRITON_DIST_INIT_TIMEOUT`` seconds, or has failed; PEs have different ideas of their world.
        TypeError, ValueError: ``group`` or ``comm`` is not what it should be.
    """
    if group is not None and comm is not None:
        raise ValueError("give a process group or a communicator, not both")
    if group is not None:
        start = process_group.from_group(group)
    elif comm is not None:
        start = mpi.from_communicator(comm)
    else:
        start = process_group.find() or launchers.find()
    if start.n_pes == 1:
        return Launch(0, 1, *(start.local or (0, 1)), None, start.launcher)
    return _meet(start, environment.get("TRITON_DIST_INIT_TIMEOUT"))


def _meet(start: launchers.Start, seconds: float) -> Launch:
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    assert start.meet is not None
    store: Store
    if start.key:
        sources = of_process(Sources)
        if start.key not in sources.stores:
            sources.stores[start.key] = start.meet(seconds)
        sources.worlds[start.key] += 1
        store = PrefixStore(f"triton_dist/{start.key}/{sources.worlds[start.key]}", sources.stores[start.key])
    else:
        store = start.meet(seconds)  # for this world alone
    path = environment.get("TRITON_DIST_SECRET_FILE")
    secret = None if path is None else read_secret(path)
    one_host = start.local is not None and start.local[1] == start.n_pes
    detector = FailureDetector(start.pe)
    key_file = create_key() if start.pe == 0 and secret is None else -1
    me = Member.self(start.pe, start.n_pes, has_secret=secret is not None, detector=detector.address, key=key_file)
    try:
        members = _within(start, seconds, lambda: check_in(store, me, seconds, start.holder))
        key, authenticated = _within(
            start, seconds, lambda: agree(store, me, members, secret, seconds, start.holder, one_host=one_host)
        )
        detector.begin(members, key, authenticated)
    except BaseException:
        detector.end()
        raise
    finally:
        if key_file >= 0:
            os.close(key_file)
    local_pe, n_local_pes = start.local or _local_position(start.pe, members)
    return Launch(start.pe, start.n_pes, local_pe, n_local_pes, authenticated, start.launcher, members, detector)


def _within(start: launchers.Start, seconds: float, step: Callable[[], Result]) -> Result:
    """A step of the rendezvous with a time limit. The time limits of the store itself are not reliable."""
    try:
        return within(seconds + _SLACK_SECONDS, step)
    except TimeoutError:
        raise RuntimeError(
            f"PE {start.pe} gets no answer from the rendezvous store within {seconds:g} s"
            f" (TRITON_DIST_INIT_TIMEOUT): {start.holder} is stopped or unreachable"
        ) from None


def _local_position(pe: int, members: tuple[Member, ...]) -> tuple[int, int]:
    """Which of how many PEs of this host, counted, where the launcher does not tell."""
    hosts = [member.host_identity for member in members]
    return hosts[:pe].count(hosts[pe]), hosts.count(hosts[pe])
