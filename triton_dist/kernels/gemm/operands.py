"""What an algorithm is given: one PE's GEMM, with the scale and the epilogue of its sums; a call's tensors by name."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.epilogue import EMPTY, Epilogue
from triton_dist.kernels.gemm.fp8 import FORMS, BlockScales, Scale
from triton_dist.kernels.gemm.plan_cache import shape_of
from triton_dist.kernels.shards import each_of

__all__ = ["Operands", "Tensors"]


class Tensors(NamedTuple):
    """The tensors of one call by name, of which the steps of a prepared call take theirs.

    ``out`` is what the PE computes of C, or all of it where that is the operation's result.
    """

    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor
    scale: Any = None  # a Scale; which of these it is is known when a step is made
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None

    @classmethod
    def of(cls, scale: type | None, bias: bool, residual: bool, *tensors: torch.Tensor) -> Tensors:
        """A call's tensors in their order: the scales', of which there are as many as this type has, then the bias and
        the residual, if the call has them."""
        a, b, out, *others = tensors
        rest = iter(others)
        found: Scale = None
        if scale is not None:
            found = next(rest) if scale is torch.Tensor else scale(next(rest), next(rest))
        return cls(a, b, out, found, next(rest) if bias else None, next(rest) if residual else None)


class Operands(NamedTuple):
    """``c`` = ``a`` · ``b``, times ``scale`` and after ``epilogue``, by all SMs but ``sm_margin``.

    Attributes:
        comm: whose members compute such a GEMM each.
        a: [M, K], with contiguous rows.
        b: [K, N], with contiguous rows or columns.
        c: the matrix that this PE computes; of a sum over PEs what it gets of that.
        shard: rows of a whole shard, where each PE has one of the rows of A or C; 0: their number by PEs, rounded up.
    """

    comm: Communicator
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    scale: Scale = None
    epilogue: Epilogue = EMPTY
    sm_margin: int = 0
    shard: int = 0

    @property
    def each(self) -> int:
        """Rows of a whole shard of all rows, of which the last PEs may have fewer."""
        return self.shard or each_of(max(self.a.shape[0], self.c.shape[0]), self.comm.n_pes)

    @property
    def of_blocks(self) -> bool:
        """Whether scales are of blocks."""
        return isinstance(self.scale, BlockScales)

    @property
    def scales(self) -> str:
        """What scales of parts of operands are called; empty, if there are none."""
        return FORMS.get(type(self.scale), "")

    @property
    def tensors(self) -> Tensors:
        """As a call has them whose result is ``c``."""
        return Tensors(self.a, self.b, self.c, self.scale, self.epilogue.bias, self.epilogue.residual)

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
