"""Slurm's srun, by the variables that it sets for every task of a step."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from triton_dist.world.launchers import host, tcp
from triton_dist.world.launchers.start import Start, check_range, integer

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["find", "first_host"]

_PORTS = range(10_000, 30_000)  # below those that systems give to clients


def find() -> Start | None:
    """See :func:`triton_dist.world.launchers.find`; None outside a step of srun (a batch script is in none)."""
    if "SLURM_STEP_ID" not in os.environ or "SLURM_PROCID" not in os.environ:
        return None
    size = next((name for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if name in os.environ), None)
    if size is None:
        raise RuntimeError("SLURM_STEP_NUM_TASKS or SLURM_NTASKS must be set beside SLURM_PROCID, as srun does")
    pe, n_pes = integer("SLURM_PROCID"), integer(size)
    check_range("SLURM_PROCID", pe, size, n_pes)
    if n_pes == 1:
        return Start("Slurm's srun", 0, 1)
    job, step = os.environ.get("SLURM_JOB_ID", "0"), os.environ["SLURM_STEP_ID"]

    def meet(seconds: float) -> Store:
        nodes = int(os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_NNODES") or 0)
        address = os.environ.get("MASTER_ADDR")
        if nodes == 1 and not address:
            return host.store(f"slurm/{job}/{step}", pe, seconds)
        if not address:
            if not (nodelist := os.environ.get("SLURM_STEP_NODELIST", "")):
                raise RuntimeError("SLURM_STEP_NODELIST must be set beside SLURM_PROCID, or MASTER_ADDR: PE 0's host")
            address = first_host(nodelist)
        port = integer("MASTER_PORT") if os.environ.get("MASTER_PORT") else _port(job, step)
        return tcp.store(address, port, seconds, serves=pe == 0)

    return Start("Slurm's srun", pe, n_pes, meet, key=f"slurm/{job}/{step}")


def first_host(nodelist: str) -> str:
    """The first host of a Slurm host list.

    >>> first_host("node[03-05,9],gpu7"), first_host("a1,a2"), first_host("r[1-2]n[07-09]-ib")
    ('node03', 'a1', 'r1n07-ib')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodelist)
    assert first is not None  # it matches nothing at least
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0])


def _port(job: str, step: str) -> int:
    """One that all PEs of a step work out alike, and that two steps rarely share."""
    number = sum(97**i * int(re.sub(r"\D", "", part) or 0) for i, part in enumerate((step, job)))
    return int(_PORTS[number % len(_PORTS)])
