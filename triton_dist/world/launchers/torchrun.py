"""torchrun, and everything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from triton_dist.world.launchers import tcp
from triton_dist.world.launchers.start import Start, check_range, integer

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["find"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def find() -> Start | None:
    """See :func:`triton_dist.world.launchers.find`; None when torchrun did not start this process."""
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return None
    alone = os.environ.get("WORLD_SIZE") == "1"
    missing = [name for name in (_VARIABLES[:2] if alone else _VARIABLES) if not os.environ.get(name)]
    if missing:
        found = ", ".join(f"{name}={os.environ[name]!r}" for name in _VARIABLES if name in os.environ)
        raise RuntimeError(
            f"{' and '.join(missing)} must be set beside {found}: start the program with torchrun, which sets all four,"
            " or unset them to run one PE"
        )
    pe, n_pes = integer("RANK"), integer("WORLD_SIZE")
    check_range("RANK", pe, "WORLD_SIZE", n_pes)
    local = None
    if "LOCAL_RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
        local = integer("LOCAL_RANK"), integer("LOCAL_WORLD_SIZE")

    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)

    def meet(seconds: float) -> Store:
        # torchrun's agent has a store already; started by hand, PE 0 makes it, for torch.distributed, too.
        serves = pe == 0 and not agent
        return tcp.store(os.environ["MASTER_ADDR"], integer("MASTER_PORT"), seconds, serves=serves)

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # the agent's store outlives a failed attempt
    holder = "torchrun's agent" if agent else "PE 0"
    return Start("torchrun", pe, n_pes, meet, local, holder, f"torchrun/{attempt}")
