"""Two-level all-reduce: a two-level reduce-scatter of as many parts as there are PEs, and an all-gather of them.

2 · (H - 1) / H · n bytes leave each host for the network, shared by its PEs: the least for n bytes. Every part is
reduced by one PE, so all PEs get the same bits.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.collectives.two_level.all_gather import gather_parts
from triton_dist.kernels.collectives.two_level.reduce_scatter import reduce_parts
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.prepared import Step, steps

__all__ = ["all_reduce"]


def all_reduce(
    comm: Communicator, output: torch.Tensor, input: torch.Tensor, op: str = "sum", *, limit: int = NO_LIMIT
) -> tuple[Step, ...] | None:
    to, source = output.view(-1), input.view(-1)
    part = -(-source.numel() // (16 * comm.n_pes)) * 16  # parts are as well aligned as the whole is
    reduced = reduce_parts(comm, to, source, op, part, in_place=True, limit=limit)
    gathered = gather_parts(comm, to, to, part, in_place=True, limit=limit)
    return steps(
        (reduced, lambda output, input: (output, input)),
        (gathered, lambda output, input: (output, output)),
    )
