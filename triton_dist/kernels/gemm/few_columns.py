"""Products that are so small that the LL protocol sends them: which these are, and where they lie before."""

from __future__ import annotations

import torch

from triton_dist.kernels.arguments import word_bytes
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.protocols.ll import LL_PROGRAMS, LL_WORDS, fits
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["FEW_BYTES", "few_columns", "fits_words"]

FEW_BYTES = 4 * LL_PROGRAMS * LL_WORDS
"""Of the largest such product on GPUs; in the CPU world, which exchanges smaller blocks, it is smaller."""


def fits_words(rows: int, row_bytes: int, n_pes: int, limit: int = NO_LIMIT) -> bool:
    """Whether rows of so many bytes can go by the LL protocol, sent by up to ``limit`` programs."""
    return fits(rows * row_bytes // word_bytes(row_bytes), n_pes, limit)


def few_columns(comm: Communicator) -> torch.Tensor:
    """Memory for any such product, in bytes, which calls overwrite. *Collective* the first time."""
    return symmetric_buffer(comm, "matrix: few columns", FEW_BYTES)
