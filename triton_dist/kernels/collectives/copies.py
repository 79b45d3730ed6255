"""Parts of a tensor that the copy engine sends to the peers, between two barriers.

A kernel of few programs copies this PE's own part meanwhile: the copy engine has one queue for a GPU's own copies and
those to peers. It is on the current stream, and the barriers and the copies between them are on a side stream, so that
a prepared call (``prepared.py``) is one launch with the rest beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.collectives.parts import is_wide, widened
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Step, launch, nothing, steps
from triton_dist.kernels.protocols.peer_addresses import PeerAddresses
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.protocols.stream_barrier import stream_barrier
from triton_dist.kernels.protocols.stream_work import PlacedWork, StreamWork, copy

__all__ = ["copy_engine"]

_BLOCK = 4096
_OUTPUTS = 64


@triton.jit
def copies_own_part(to, source, n, BLOCK: tl.constexpr, WIDE: tl.constexpr = False):
    n = widened(n, WIDE)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(to + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


def copy_engine(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, *, limit: int = NO_LIMIT
) -> Sequence[Step] | None:
    """Store to this PE's part of every member's ``output``, of which each member has one: ``input``, or, if that is as
    large as ``output``, the member's part of it.

    With the one program of a barrier there are at most ``limit``; if that is 1, this PE's own copy comes first.
    """
    n_pes, me = comm.n_pes, comm.my_rank
    has_parts = input.numel() == output.numel() and n_pes > 1
    nbytes = output.numel() // n_pes * output.element_size()
    step = nbytes if has_parts else 0

    def own(output: torch.Tensor, input: torch.Tensor) -> Sequence[torch.Tensor]:
        here = slice(n := me * (output.numel() // n_pes), n + output.numel() // n_pes)
        return output.view(-1)[here], input.view(-1)[here] if has_parts else input

    def addresses_of_own(output: torch.Tensor, input: torch.Tensor) -> Sequence[int]:
        return output.data_ptr() + me * nbytes, input.data_ptr() + me * step

    send = _Sends(comm, nbytes, step)

    def where(output: torch.Tensor, input: torch.Tensor) -> Sequence[Any]:
        return output, input.data_ptr()

    to, source = own(output, input)
    grid = (max(1, min(32, triton.cdiv(to.numel(), _BLOCK), limit - 1)),)
    wide = is_wide(to.numel(), _BLOCK)
    if comm.world.kind == "cpu":
        copies_own_part[grid](to, source, to.numel(), _BLOCK, wide)
        stream_barrier(comm)
        parts = input.view(n_pes, -1) if has_parts else input.expand(n_pes, -1)
        for i in range(1, n_pes):
            comm.peer(to, (me + i) % n_pes).copy_(parts[(me + i) % n_pes])
        stream_barrier(comm)
        return None
    if limit == 1:
        copied = launch(copies_own_part, grid, (to, source), to.numel(), _BLOCK, wide, num_warps=8)
        before = stream_barrier(comm)
        send(comm.current_stream(), *where(output, input))
        after = stream_barrier(comm)
        return steps((copied, addresses_of_own), (before, nothing), (send, where), (after, nothing))
    with side_stream(comm) as side:
        copied = launch(copies_own_part, grid, (to, source), to.numel(), _BLOCK, wide, num_warps=8)
        with torch.cuda.stream(side):
            before = stream_barrier(comm)
            send(side.cuda_stream, *where(output, input))
            after = stream_barrier(comm)
    return steps((copied, addresses_of_own, (before, nothing), (send, where), (after, nothing)))


class _Sends(PlacedWork):
    """Copies of ``nbytes`` to this PE's part of the peers' tensors like one. The source has parts, each ``step`` bytes
    behind the one before; 0: one for all."""

    def __init__(self, comm: Communicator, nbytes: int, step: int) -> None:
        self._comm = comm
        self._nbytes = nbytes
        self._step = step
        self._found: dict[tuple[int, ...], StreamWork] = {}  # by where the tensor lies on the members

    def at(self, tensor: torch.Tensor) -> StreamWork:
        comm, nbytes = self._comm, self._nbytes
        peers = comm.own(PeerAddresses).of(tensor)
        found = self._found.get(peers)
        if found is None:
            if len(self._found) == _OUTPUTS:
                self._found.clear()
            others = [(comm.my_rank + i) % comm.n_pes for i in range(1, comm.n_pes)]
            found = self._found[peers] = StreamWork(
                [copy(peers[rank] + comm.my_rank * nbytes, rank * self._step, nbytes) for rank in others]
            )
        return found
