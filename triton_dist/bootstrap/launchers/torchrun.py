"""torchrun, and everything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from triton_dist.bootstrap.launchers import tcp
from triton_dist.bootstrap.launchers.start import MAX_PES, Start, check_range, integer, master, pes, shown

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["find"]

_AGENT_STORE, _RESTARTS = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def find() -> Start | None:
    """See :func:`triton_dist.bootstrap.launchers.find`; None when torchrun did not start this process."""
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return None
    alone = os.environ.get("WORLD_SIZE") == "1"
    missing = [name for name in (_VARIABLES[:2] if alone else _VARIABLES) if not os.environ.get(name)]
    if missing:
        found = ", ".join(shown(name) for name in _VARIABLES if name in os.environ)
        raise RuntimeError(
            f"{' and '.join(missing)} must be set beside {found}: start the program with torchrun, which sets all four,"
            " or unset them to run one PE"
        )
    pe, n_pes = pes("RANK", "WORLD_SIZE")
    local = _local(n_pes)
    agent = _uses_agent_store()
    # The agent's store outlives a failed attempt.
    attempt = integer(_RESTARTS, 0, MAX_PES) if _RESTARTS in os.environ else 0
    if n_pes == 1:
        return Start("torchrun", 0, 1, None, local)
    host, port = master()

    def meet(seconds: float) -> Store:
        # torchrun's agent has a store already; started by hand, PE 0 makes it, for torch.distributed, too.
        serves = pe == 0 and not agent
        return tcp.store(host, port, seconds, serves=serves)

    holder = "torchrun's agent" if agent else "PE 0"
    return Start("torchrun", pe, n_pes, meet, local, holder, f"torchrun/{attempt}")


def _local(n_pes: int) -> tuple[int, int] | None:
    """This PE's number on this host and the number of PEs of this host; None if the variables are not set."""
    size = integer("LOCAL_WORLD_SIZE", 1, n_pes) if "LOCAL_WORLD_SIZE" in os.environ else None
    rank = integer("LOCAL_RANK", 0, n_pes - 1) if "LOCAL_RANK" in os.environ else None
    if rank is None or size is None:
        return None
    check_range("LOCAL_RANK", rank, "LOCAL_WORLD_SIZE", size)
    return rank, size


def _uses_agent_store() -> bool:
    """Whether torchrun's agent has opened the store."""
    text = os.environ.get(_AGENT_STORE, "False")
    if text not in ("True", "False"):
        raise RuntimeError(f"{_AGENT_STORE}={text[:60]!r}: True or False is expected, as torchrun sets it")
    return text == "True"
