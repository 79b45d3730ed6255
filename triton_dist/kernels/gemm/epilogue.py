"""Epilogues: what a GEMM does with its float32 sums before it rounds them to C's dtype, once.

A kernel takes an :class:`Epilogue` as one argument, and calls :func:`finish` with the sums of a tile where they are
complete: of a GEMM that is fused with a reduction, where the sum over PEs is. Fields that are None are known when the
kernel is compiled and leave nothing in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["EMPTY", "Epilogue", "finish", "kinds"]


class Epilogue(NamedTuple):
    """What is done with sums. Tensors are on this PE's device, of 16-bit floats or float32.

    Attributes:
        bias: [N], added to every row.
        residual: [rows, N], contiguous, added; a PE that computes all rows of C has ``rows`` of them.
        rows: of the residual.
        columns: N, where there is a bias or a residual.
    """

    bias: Any = None
    residual: Any = None
    rows: Any = None
    columns: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether sums are stored as they are."""
        return all(part is None for part in self)

    def is_bias_of(self, dtype: torch.dtype) -> bool:
        """Whether a bias of this type is all there is."""
        return self.residual is None and self.bias is not None and self.bias.dtype == dtype

    @property
    def kind(self) -> tuple[str, ...]:
        """What is done, without the tensors: the same on all PEs, and chosen for together."""
        return kinds(bias=self.bias, residual=self.residual)


EMPTY = Epilogue()


def kinds(**tensors: Any) -> tuple[str, ...]:
    """What must be equal on all members of the ``tensors`` that there are, unchecked as they may be."""
    there = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return tuple(f"{name} of {getattr(tensor, 'dtype', type(tensor).__name__)}" for name, tensor in there.items())


@triton.jit
def finish(sums, epilogue, rows, columns):
    """The float32 ``sums`` of a tile after the epilogue.

    ``rows`` and ``columns`` are where the tile lies in C. They may lie behind its end.
    """
    if epilogue.bias is not None:
        bias = tl.load(epilogue.bias + columns, mask=columns < epilogue.columns, other=0.0)
        sums += bias.to(tl.float32)[None, :]
    if epilogue.residual is not None:
        places = (rows % epilogue.rows).to(tl.int64)[:, None] * epilogue.columns + columns[None, :]
        there = (columns < epilogue.columns)[None, :]
        sums += tl.load(epilogue.residual + places, mask=there, other=0.0).to(tl.float32)
    return sums
