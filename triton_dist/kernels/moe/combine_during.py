"""A combine while local kernels run that it has nothing to do with, as those of the gradients of experts' matrices.

A combine of low latency has halves: what runs between them is in the current stream, on all multiprocessors, while
rows arrive. In rounds a combine has no halves, but needs ``num_sms`` multiprocessors only: the kernels run beside it in
a side stream, on the others. Nothing in the side stream waits for a peer, and nothing on a peer for what is there, so
all kernels end whichever of them is resident first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from triton_dist.kernels.communicator import calling
from triton_dist.kernels.moe.combine import combine, combine_receive, combine_send
from triton_dist.kernels.moe.results import Dispatched
from triton_dist.kernels.protocols.side_stream import side_stream

__all__ = ["combine_during"]


def combine_during(y: torch.Tensor, dispatched: Dispatched, work: Callable[[], object]) -> torch.Tensor:
    """:func:`~triton_dist.kernels.moe.combine` without weights, while what ``work()`` launches runs. *Collective.*

    Between hosts, rounds come before the work.

    Args:
        work: puts kernels on the current stream, which wait for no peer. It allocates nothing and does not write ``y``.

    Raises:
        As ``combine``; whatever ``work`` raises, behind the end of the combine.
    """
    routing = dispatched.routing
    with calling("combine", routing.comm, between_hosts=True) as comm:
        if not routing.num_sms:
            sent = combine_send(y, dispatched, weighted=False)
            try:
                work()
            finally:  # else its slots stay in flight, and the peers are an exchange ahead
                out = combine_receive(sent)
            return out
        if comm.world.kind == "cpu" or routing.hosts > 1:
            out = combine(y, dispatched, weighted=False)
            work()
            return out
        with side_stream(comm) as side:
            # First, since it needs few multiprocessors, which the other kernels may fill.
            out = combine(y, dispatched, weighted=False)
            with torch.cuda.stream(side):
                work()
        return out
