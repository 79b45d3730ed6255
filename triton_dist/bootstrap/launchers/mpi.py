"""mpirun of Open MPI, of MPICH and of their relatives, and communicators of mpi4py.

Where mpi4py has started MPI, its COMM_WORLD is asked. Without it, what mpirun sets in the environment says which PE
this is, and on one host that is enough to meet.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triton_dist.bootstrap.launchers import host, tcp
from triton_dist.bootstrap.launchers.start import MAX_PES, Start, check_range, integer, master, pes, shown
from triton_dist.decoding import decode, record, text
from triton_dist.decoding import integer as integer_of

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["find", "from_communicator", "refuse_unknown"]


@dataclass(frozen=True)
class _Mpirun:
    """The variables of one family of launchers."""

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str

    def __str__(self) -> str:
        return self.name


_FAMILIES = (
    _Mpirun(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # Hydra, which MPICH shares with Intel's MPI and MVAPICH. Slurm's srun sets PMI_RANK, too, but not the local ones.
    _Mpirun("MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def find() -> Start | None:
    """See :func:`triton_dist.bootstrap.launchers.find`; None when no mpirun started this process."""
    family = next((family for family in _FAMILIES if family.rank in os.environ), None)
    if family is None or family.local_rank not in os.environ:
        return None
    missing = [name for name in (family.size, family.local_size) if name not in os.environ]
    if missing:
        raise RuntimeError(f"{' and '.join(missing)} must be set beside {family.rank}, as {family} does")
    pe, n_pes = pes(family.rank, family.size)
    local = integer(family.local_rank, 0, MAX_PES - 1), integer(family.local_size, 1, n_pes)
    check_range(family.local_rank, local[0], family.local_size, local[1])
    if n_pes == 1:
        return Start(str(family), 0, 1, None, (0, 1))
    if (started := _started_mpi()) is not None:
        if started.COMM_WORLD.Get_size() != n_pes:
            raise RuntimeError(_other_mpi(started, family, n_pes))
        found = from_communicator(started.COMM_WORLD)
        return Start(f"{family}, mpi4py", found.pe, found.n_pes, found.meet, local, key=found.key)

    def meet(seconds: float) -> Store:
        if local[1] == n_pes:
            job = os.environ.get("PMIX_NAMESPACE", "")
            launching = host.launching_process(family.rank)
            return host.store(f"{job}/{launching.pid}/{launching.started}", pe, seconds)
        if os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"):
            return tcp.store(*master(), seconds, serves=pe == 0)
        if importlib.util.find_spec("mpi4py") is not None:
            from mpi4py import MPI

            if MPI.COMM_WORLD.Get_size() != n_pes:
                raise RuntimeError(_other_mpi(MPI, family, n_pes))
            through_mpi = from_communicator(MPI.COMM_WORLD).meet
            assert through_mpi is not None
            return through_mpi(seconds)
        raise RuntimeError(
            f"{family} started {n_pes} PEs on several hosts: to find each other, they need mpi4py (pip install mpi4py),"
            " or MASTER_ADDR, the host of PE 0, and MASTER_PORT, a free port there, set for all of them"
        )

    return Start(str(family), pe, n_pes, meet, local, key="mpi")


def refuse_unknown() -> None:
    """Raises RuntimeError if an unsupported launcher has started several PEs."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if os.environ.get(name, "1") != "1":
            raise RuntimeError(
                f"{shown(name)}: an MPI launcher started this process, but the environment does not say"
                " which PE it is. Start it with torchrun, Open MPI's or MPICH's mpirun or Slurm's srun,"
                " or call triton_dist.init(comm=mpi4py.MPI.COMM_WORLD)"
            )


def from_communicator(communicator: Any) -> Start:
    """The PEs are the ranks of an mpi4py communicator.

    Raises:
        TypeError: it is none.
    """
    if not (hasattr(communicator, "Get_rank") and hasattr(communicator, "Bcast")):
        raise TypeError(f"expected a communicator of mpi4py, got {type(communicator).__name__}")
    pe, n_pes = communicator.Get_rank(), communicator.Get_size()

    def meet(seconds: float) -> Store:
        # Not through tcp.store: no user chose this port, and a store may not be shared with the next communicator's.
        if pe == 0:
            address = _own_address()
            try:
                opened, port = tcp.open_store(address, seconds)
            except (OSError, RuntimeError) as error:
                _broadcast(communicator, ["", 0])
                raise RuntimeError(f"PE 0 cannot open the rendezvous store at {address} ({error})") from None
            _broadcast(communicator, [address, port])
            return opened
        address, port = decode(_broadcast(communicator, None), _PLACE)
        if not address:
            raise RuntimeError("PE 0 cannot open the rendezvous store; its own error gives the reason")
        return tcp.store(address, port, seconds, serves=False)

    return Start("mpi4py", pe, n_pes, meet if n_pes > 1 else None)


_PLACE = record(text(255), integer_of(0, 65535))
_PLACE_BYTES = 512


def _broadcast(communicator: Any, value: Any) -> bytes:
    """PE 0's ``value`` as JSON. mpi4py's own broadcast of objects would unpickle received data."""
    data = bytearray(json.dumps(value).encode().ljust(_PLACE_BYTES))
    communicator.Bcast(data, root=0)
    return bytes(data)


def _own_address() -> str:
    """By which the other hosts know this one: MASTER_ADDR, or what its name stands for."""
    if named := os.environ.get("MASTER_ADDR"):
        return named
    name = socket.gethostname()
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET)}
    except OSError:
        found = set()
    outside = sorted(address for address in found if not address.startswith("127."))
    return outside[0] if outside else "127.0.0.1" if found else name


def _started_mpi() -> Any:
    """mpi4py's MPI module, if this program has started MPI through it."""
    module = sys.modules.get("mpi4py.MPI")
    return module if module is not None and module.Is_initialized() and not module.Is_finalized() else None


def _other_mpi(mpi: Any, family: _Mpirun, n_pes: int) -> str:
    library = mpi.Get_library_version().split(",")[0].strip("\0 \n")
    return (
        f"{family} started {n_pes} PEs, but mpi4py sees a world of {mpi.COMM_WORLD.Get_size()}: it was built for"
        f" another MPI ({library}). Start the program with that one's mpirun, or install mpi4py for this one"
    )
