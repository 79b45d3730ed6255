"""Results of local GEMMs that are so small that an all-gather without barriers puts them side by side: which these are,
by which algorithm, and where they lie before."""

from __future__ import annotations

import torch

from triton_dist.kernels.collectives.all_gather import without_barriers
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["FEW_BYTES", "few_columns", "side_by_side_algorithm"]

FEW_BYTES = 1 << 20
"""Of the largest such result."""


def side_by_side_algorithm(result: torch.Tensor, n_pes: int, limit: int = NO_LIMIT) -> str:
    """The all-gather that puts results like this one side by side, by up to ``limit`` programs: ``low_latency`` or
    ``exchange``; empty if the result is too large for both."""
    row_bytes = result.shape[1] * result.element_size()
    nbytes = result.shape[0] * row_bytes
    found = without_barriers(result.dtype, nbytes, row_bytes, n_pes, limit) if nbytes <= FEW_BYTES else {}
    return min(found, key=found.__getitem__, default="")


def few_columns(comm: Communicator) -> torch.Tensor:
    """Memory for any such result, in bytes, which calls overwrite. *Collective* the first time."""
    return symmetric_buffer(comm, "matrix: few columns", FEW_BYTES)
