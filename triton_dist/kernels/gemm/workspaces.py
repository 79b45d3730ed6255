"""Symmetric workspace of GEMMs, by what it holds: who computes there and who reserves it name it alike.

Operations share it, and each overwrites what it holds.
"""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.workspace import symmetric_buffer

__all__ = ["gathered_rows", "gathered_scales", "local_result", "partial_sums", "symmetric_matrix"]


def gathered_rows(comm: Communicator, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """For all of A. *Collective* when it has to grow, as all of these."""
    return symmetric_matrix(comm, "gathered", rows, columns, dtype)


def gathered_scales(comm: Communicator, rows: int, columns: int) -> torch.Tensor:
    """For float32 scales of all of A's rows, or of their blocks."""
    return symmetric_matrix(comm, "gathered scales", rows, columns, torch.float32)


def local_result(comm: Communicator, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """For the result of a local GEMM, which a collective then takes."""
    return symmetric_matrix(comm, "product", rows, columns, dtype)


def partial_sums(comm: Communicator, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """For partial sums of other PEs, of a ring, or of tiles that this PE owns.

    A PE is stored to when its launch has begun, and has read by then all that the launch before was sent.
    """
    return symmetric_matrix(comm, "partial sums", rows, columns, dtype)


def symmetric_matrix(
    communicator: Communicator, name: str, rows: int, columns: int, dtype: torch.dtype
) -> torch.Tensor:
    """A matrix, symmetric on the members, that operations of this ``name`` share; they overwrite what it holds.

    *Collective* when it has to grow.
    """
    nbytes = rows * columns * dtype.itemsize
    return symmetric_buffer(communicator, f"matrix: {name}", nbytes).view(dtype).view(rows, columns)
