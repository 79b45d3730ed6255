"""Slurm's srun, by the variables that it sets for every task of a step."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from triton_dist.bootstrap.launchers import host, tcp
from triton_dist.bootstrap.launchers.start import MAX_PES, Start, host_name, integer, pes

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["find", "first_host"]

_MAX_ID = (1 << 64) - 1
_PORTS = range(10_000, 30_000)  # below those that systems give to clients


def find() -> Start | None:
    """See :func:`triton_dist.bootstrap.launchers.find`; None outside a step of srun (a batch script is in none)."""
    if "SLURM_STEP_ID" not in os.environ or "SLURM_PROCID" not in os.environ:
        return None
    size = next((name for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if name in os.environ), None)
    if size is None:
        raise RuntimeError("SLURM_STEP_NUM_TASKS or SLURM_NTASKS must be set beside SLURM_PROCID, as srun does")
    pe, n_pes = pes("SLURM_PROCID", size)
    if n_pes == 1:
        return Start("Slurm's srun", 0, 1)
    job = integer("SLURM_JOB_ID", 0, _MAX_ID) if "SLURM_JOB_ID" in os.environ else 0
    step = integer("SLURM_STEP_ID", 0, _MAX_ID)
    named = next((name for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES") if os.environ.get(name)), None)
    nodes = integer(named, 1, MAX_PES) if named else 0
    address = host_name("MASTER_ADDR") if os.environ.get("MASTER_ADDR") else ""
    if os.environ.get("MASTER_PORT"):
        port = integer("MASTER_PORT", 1, 65535)
    else:
        port = _PORTS[(step + 97 * job) % len(_PORTS)]  # the same on all PEs of a step; rarely the same for two steps

    def meet(seconds: float) -> Store:
        if nodes == 1 and not address:
            return host.store(f"slurm/{job}/{step}", pe, seconds)
        return tcp.store(address or _first_node(), port, seconds, serves=pe == 0)

    return Start("Slurm's srun", pe, n_pes, meet, key=f"slurm/{job}/{step}")


def first_host(nodelist: str) -> str:
    """The first host of a Slurm host list.

    >>> first_host("node[03-05,9],gpu7"), first_host("a1,a2"), first_host("r[1-2]n[07-09]-ib")
    ('node03', 'a1', 'r1n07-ib')
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodelist)
    assert first is not None  # it matches nothing at least
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0])


def _first_node() -> str:
    """PE 0's host."""
    nodes = os.environ.get("SLURM_STEP_NODELIST", "")
    if not nodes:
        raise RuntimeError("SLURM_STEP_NODELIST must be set beside SLURM_PROCID, or MASTER_ADDR: PE 0's host")
    host = first_host(nodes)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", host):
        raise RuntimeError(f"SLURM_STEP_NODELIST={nodes[:60]!r} begins with no host, as node[03-05,9] does")
    return host
