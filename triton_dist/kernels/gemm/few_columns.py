"""Products that are so small that an all-gather without barriers puts them side by side: which these are, by which
algorithm, and where they lie before."""

from __future__ import annotations

import torch

from triton_dist.kernels.arguments import word_bytes
from triton_dist.kernels.collectives import model
from triton_dist.kernels.collectives.exchange import fits_exchange
from triton_dist.kernels.collectives.gather_exchange import why_not_gathered
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.protocols.ll import fits
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["FEW_BYTES", "few_columns", "gathers"]

FEW_BYTES = 1 << 20
"""Of the largest such product."""


def gathers(product: torch.Tensor, n_pes: int, limit: int = NO_LIMIT) -> str:
    """The all-gather that puts products like this one side by side, by up to ``limit`` programs: ``low_latency`` or
    ``exchange``; empty if the product is too large for both."""
    row_bytes = product.shape[1] * product.element_size()
    nbytes = product.shape[0] * row_bytes
    if nbytes > FEW_BYTES:
        return ""
    found = {}
    if fits(nbytes // word_bytes(row_bytes), n_pes, limit):
        found["low_latency"] = model.low_latency(nbytes * (n_pes - 1))
    if why_not_gathered(product.dtype, row_bytes) is None and fits_exchange(nbytes // 4, n_pes, limit):
        found["exchange"] = model.exchanged(nbytes, n_pes)
    return min(found, key=found.__getitem__, default="")


def few_columns(comm: Communicator) -> torch.Tensor:
    """Memory for any such product, in bytes, which calls overwrite. *Collective* the first time."""
    return symmetric_buffer(comm, "matrix: few columns", FEW_BYTES)
