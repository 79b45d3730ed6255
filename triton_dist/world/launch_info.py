"""How this process was started: by torchrun, inside an initialised ``torch.distributed``, or alone."""

from __future__ import annotations

import os
import platform
from datetime import timedelta

from torch import distributed
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from triton_dist.world.base import Launch

__all__ = ["discover"]

CONNECT_TIMEOUT = timedelta(minutes=5)

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OTHER_LAUNCHERS = {"OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "PMI_SIZE": "an MPI launcher"}


def discover(generation: int) -> Launch:
    """This process's :class:`Launch`. *Collective* when there are several PEs.

    Args:
        generation: how many worlds this process has had before; every PE passes the same, and each world gets keys of
            its own.

    Raises:
        RuntimeError: the environment says only half of what is needed, or contradicts itself.
    """
    if distributed.is_available() and distributed.is_initialized():
        pe, n_pes = distributed.get_rank(), distributed.get_world_size()
        store = distributed.distributed_c10d._get_default_store() if n_pes > 1 else None
    elif "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        pe, n_pes = _read_torchrun()
        store = _torchrun_store(pe, n_pes) if n_pes > 1 else None
    else:
        _refuse_other_launchers()
        pe, n_pes, store = 0, 1, None
    if store is not None:
        store = PrefixStore(f"triton_dist/{generation}", store)
    local_pe, n_local_pes = _local_position(Launch(pe, n_pes, 0, 1, store))
    return Launch(pe, n_pes, local_pe, n_local_pes, store)


def _read_torchrun() -> tuple[int, int]:
    """RANK and WORLD_SIZE, once it is sure that all of what torchrun sets is there and makes sense."""
    alone = os.environ.get("WORLD_SIZE") == "1"
    missing = [name for name in (_TORCHRUN[:2] if alone else _TORCHRUN) if not os.environ.get(name)]
    if missing:
        found = ", ".join(f"{name}={os.environ[name]!r}" for name in _TORCHRUN if name in os.environ)
        raise RuntimeError(
            f"{' and '.join(missing)} must be set beside {found}: start the program with torchrun, which sets all four,"
            " or unset them to run one PE"
        )
    pe, n_pes = _integer("RANK"), _integer("WORLD_SIZE")
    if not 0 <= pe < n_pes:
        raise RuntimeError(f"RANK={pe} is out of range [0, {n_pes}), which WORLD_SIZE={n_pes} allows")
    return pe, n_pes


def _torchrun_store(pe: int, n_pes: int) -> Store:
    """The store at MASTER_ADDR:MASTER_PORT, found as ``init_process_group("env://")`` does, which stays possible."""
    store: Store
    store, _, _ = next(rendezvous("env://", pe, n_pes, timeout=CONNECT_TIMEOUT))
    return store


def _refuse_other_launchers() -> None:
    for name, launcher in _OTHER_LAUNCHERS.items():
        if os.environ.get(name, "1") != "1":
            raise RuntimeError(
                f"{name}={os.environ[name]}: {launcher} started this process, but only torchrun's variables are read."
                " Start it with torchrun, or call torch.distributed.init_process_group() before triton_dist.init()"
            )


def _local_position(launch: Launch) -> tuple[int, int]:
    """Which of how many PEs of this host: torchrun's word, or else counted by host name."""
    if "LOCAL_RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
        return _integer("LOCAL_RANK"), _integer("LOCAL_WORLD_SIZE")
    hosts = launch.exchange("host", platform.node())
    return hosts[: launch.pe].count(hosts[launch.pe]), hosts.count(hosts[launch.pe])


def _integer(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise RuntimeError(f"{name}={os.environ[name]!r} is not a number") from None
