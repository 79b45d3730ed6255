"""How this process was started, and with whom: asked of torch.distributed or the launcher, checked with the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from triton_dist import environment
from triton_dist.world import launchers
from triton_dist.world.base import Launch
from triton_dist.world.check_in import Member, check_in
from triton_dist.world.launchers import mpi, process_group
from triton_dist.world.watch import Watch

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["discover"]

_worlds: Counter[str] = Counter()  # how many this process has had from each source; every PE counts alike
_stores: dict[str, Store] = {}  # kept: a later world meets at the same place, which one of the PEs may hold


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
        if start.key not in _stores:
            _stores[start.key] = start.meet(seconds)
        _worlds[start.key] += 1
        store = PrefixStore(f"triton_dist/{start.key}/{_worlds[start.key]}", _stores[start.key])
    else:
        store = start.meet(seconds)  # for this world alone
    watch = Watch(start.pe)
    try:
        members = check_in(store, Member.self(start.pe, start.n_pes, watch.address), seconds, start.holder)
        watch.begin(members)
    except BaseException:
        watch.end()
        raise
    local_pe, n_local_pes = start.local or _local_position(start.pe, members)
    return Launch(start.pe, start.n_pes, local_pe, n_local_pes, store, start.launcher, members, watch)


def _local_position(pe: int, members: tuple[Member, ...]) -> tuple[int, int]:
    """Which of how many PEs of this host, counted, where the launcher does not tell."""
    hosts = [member.host_identity for member in members]
    return hosts[:pe].count(hosts[pe]), hosts.count(hosts[pe])
