"""An all-gather by the copy engine while kernels run on the current stream, which leaves them every multiprocessor.

Copies to the peers are in a side stream. A barrier of all members in front of them and of the kernels says that every
member's memory may be written, and one behind both that every member's copies have arrived. Both barriers are kernels
on the current stream, and the side stream waits for nothing but the first one. So no copy waits for a kernel that runs
at the same time, on any PE, and persistent kernels that fill the GPU may run beside the copies. A barrier in the side
stream would find no multiprocessor there. A lost PE is reported by a barrier, or by what the kernels wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from triton_dist.kernels.collectives import model
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.prepared import Prepared, nothing, steps
from triton_dist.kernels.protocols.peer_addresses import PeerAddresses
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_barrier import stream_barrier
from triton_dist.kernels.protocols.stream_work import StreamWork, copy

__all__ = ["gather_during", "is_worthwhile"]


def is_worthwhile(comm: Communicator, nbytes: int) -> bool:
    """Whether :func:`gather_during` is possible, and gains time, with ``nbytes`` of each member: the same on all.

    Members must map each other's memory. And an all-gather behind the kernels must take longer than the copies take to
    begin. In the CPU world, where times mean nothing, every size is worthwhile.
    """
    if comm.n_pes == 1 or comm.grid.hosts > 1 or nbytes == 0:
        return False
    peers = comm.n_pes - 1
    return comm.world.kind == "cpu" or model.direct(nbytes * peers) > model.copy_engine(0, peers)


Memory = Callable[[Communicator, torch.Tensor], torch.Tensor]
"""Symmetric memory for what all members gather who each have an input like this one: as many elements of each, in the
order of ranks. *Collective* when it is made."""


def gather_during(
    comm: Communicator, function: str, memory: Memory, input: torch.Tensor, work: Callable[[], object]
) -> torch.Tensor:
    """Gather every member's ``input``, while what ``work()`` launches runs. *Collective*, in a call of ``comm``.

    Args:
        comm: whose members map each other's memory.
        function: whose call it is, for messages.
        memory: where to. ``work`` does not use it.
        input: contiguous; ``work`` does not write it.
        work: puts kernels on the current stream.

    Returns:
        what ``memory`` returns.

    Raises:
        RuntimeError: a member's ``input`` is of another shape or dtype. Whatever ``work`` raises.
    """
    prepared = comm.own(Prepared)
    signature = prepared.signature(("gather_during", function), input)
    if not prepared.repeat(signature, input, work):
        compared = function, input.shape, input.dtype
        comm.compare(*compared)  # before memory is made, which members make alike
        memory(comm, input)
        before = stream_barrier(comm)
        run = partial(_run, comm, memory)
        run(input, work)
        after = stream_barrier(comm)
        prepared.keep(signature, steps((before, nothing), (run, _all), (after, nothing)), *compared)
    return memory(comm, input)


def _all(*given: Any) -> Sequence[Any]:
    return given


def _run(comm: Communicator, memory: Memory, input: torch.Tensor, work: Callable[[], object]) -> None:
    """What is between the barriers. The copies come first: should both streams be in one hardware queue, as with
    ``CUDA_DEVICE_MAX_CONNECTIONS=1``, the kernels begin when they have ended."""
    gathered = memory(comm, input)
    if comm.world.kind == "cpu":
        mine = gathered.view(comm.n_pes, -1)[comm.my_rank]
        for rank in range(comm.n_pes):
            comm.peer(mine, rank).copy_(input.view(-1))
        work()
        return
    with side_stream(comm) as side:
        _send(comm, side.cuda_stream, gathered, input)
        work()


def _send(comm: Communicator, side: int, gathered: torch.Tensor, input: torch.Tensor) -> None:
    """Copy ``input`` to all members, to one after the other. Each begins with another member, so that a member receives
    from one at a time. This PE's own copy is the last: the driver may make it by a kernel, which waits for the others.
    """
    n_pes, me, nbytes = comm.n_pes, comm.my_rank, input.nbytes
    addresses = comm.own(PeerAddresses).of(gathered)
    copies = [copy(addresses[(me + i) % n_pes] + me * nbytes, 0, nbytes) for i in range(1, n_pes + 1)]
    StreamWork(copies)(side, input.data_ptr())
