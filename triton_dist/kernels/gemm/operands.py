"""What an algorithm is given: one PE's GEMM, with the scale and the epilogue of its sums."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.epilogue import EMPTY, Epilogue
from triton_dist.kernels.gemm.fp8 import BlockScales, Scale
from triton_dist.kernels.gemm.plan_cache import shape_of

__all__ = ["Operands"]


class Operands(NamedTuple):
    """``c`` = ``a`` · ``b``, times ``scale`` and after ``epilogue``, by all SMs but ``sm_margin``.

    Attributes:
        comm: whose members compute such a GEMM each.
        a: [M, K], with contiguous rows.
        b: [K, N], with contiguous rows or columns.
        c: the matrix that this PE computes; of a sum over PEs what it gets of that.
    """

    comm: Communicator
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    scale: Scale = None
    epilogue: Epilogue = EMPTY
    sm_margin: int = 0

    @property
    def of_blocks(self) -> bool:
        """Whether scales are of blocks."""
        return isinstance(self.scale, BlockScales)

    @property
    def scales(self) -> tuple[torch.Tensor, ...]:
        """The tensors of the scales, in the order in which a call has them."""
        if isinstance(self.scale, BlockScales):
            return tuple(self.scale)
        return () if self.scale is None else (self.scale,)

    @property
    def fold(self) -> int:
        """How many columns of ``b`` make one of ``c``."""
        return self.epilogue.fold

    def key(self, *plan: Hashable, rows: int | None = None) -> tuple[Hashable, ...]:
        """The key of a ``plan`` of this name in the plan cache; for so many ``rows``, by default those of ``a``."""
        return (
            *plan,
            self.fold,
            self.of_blocks,
            self.sm_margin,
            *shape_of(self.a.shape[0] if rows is None else rows, self.b),
        )
