"""How processes are started, one launcher a file: each says which PE this is, and where the PEs can meet.

:func:`find` asks them in turn. A launcher inside another one wins, since its word is the later one: torchrun's
variables stand over mpirun's, and mpirun's over those of the Slurm step that mpirun started its daemons in.
"""

from __future__ import annotations

from triton_dist.bootstrap.launchers import mpi, slurm, torchrun
from triton_dist.bootstrap.launchers.start import Start

__all__ = ["Start", "find"]


def find() -> Start:
    """What the environment says of this process.

    Raises:
        RuntimeError: it says only half of what is needed, or contradicts itself.
    """
    start = torchrun.find() or mpi.find() or slurm.find()
    if start is None:
        mpi.refuse_unknown()
    return start or Start("python", 0, 1)
