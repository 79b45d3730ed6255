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

__all__ = ["ACTIVATIONS", "EMPTY", "Epilogue", "finish", "fold_of", "kinds"]


ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "swiglu")


class Epilogue(NamedTuple):
    """What is done with sums: ``activation(sums + bias) + residual``. Tensors are on this PE's device, of 16-bit floats
    or float32.

    Attributes:
        activation: a constant, the name of one. ``swiglu`` makes one column of two, SiLU of the first times the second:
            they lie side by side, and so in the registers of one thread.
        bias: [N], added to every row.
        residual: [rows, N], contiguous, added; a PE that computes all rows of C has all of them. (How many there are is
            an argument of kernels: Triton specialises on numbers in a tuple, and would compile anew for other rows.)
        columns: N, where there is a bias or a residual.
    """

    activation: Any = None
    bias: Any = None
    residual: Any = None
    columns: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether sums are stored as they are."""
        return all(part is None for part in self)

    def is_bias_of(self, dtype: torch.dtype) -> bool:
        """Whether a bias of this type is all there is."""
        alone = self.residual is None and self.activation is None
        return alone and self.bias is not None and self.bias.dtype == dtype

    @property
    def fold(self) -> int:
        """How many columns of sums make one of C."""
        return int(fold_of(None if self.activation is None else self.activation.value))

    @property
    def kind(self) -> tuple[str, ...]:
        """What is done, without the tensors: the same on all PEs, and chosen for together."""
        return kinds(None if self.activation is None else self.activation.value, bias=self.bias, residual=self.residual)


EMPTY = Epilogue()


def kinds(activation: str | None, **tensors: Any) -> tuple[str, ...]:
    """What must be equal on all members of the ``tensors`` that there are, unchecked as they may be."""
    there = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    found = tuple(f"{name} of {getattr(tensor, 'dtype', type(tensor).__name__)}" for name, tensor in there.items())
    return found if activation is None else (f"activation {activation}", *found)


@triton.constexpr_function
def fold_of(activation):
    """How many columns of sums make one of C, a constant."""
    return 2 if activation == "swiglu" else 1


@triton.jit
def finish(sums, epilogue, rows, of_residual, columns):
    """The float32 ``sums`` of a tile after the epilogue.

    ``rows`` are those of the residual, which has ``of_residual``, and ``columns`` those of A · B. They may lie behind
    the end. (Gluon's kernels are compiled from this source, too, so it calls no function of ours.)
    """
    if epilogue.bias is not None:
        bias = tl.load(epilogue.bias + columns, mask=columns < epilogue.columns, other=0.0)
        sums += bias.to(tl.float32)[None, :]
    if epilogue.activation == "gelu":
        sums = 0.5 * sums * (1.0 + tl.erf(sums * 0.7071067811865476))
    elif epilogue.activation == "gelu_tanh":  # x · (1 + tanh u) / 2 is x · sigmoid(2 u)
        sums = sums / (1.0 + tl.exp(-1.5957691216057308 * (sums + 0.044715 * sums * sums * sums)))
    elif epilogue.activation == "silu":
        sums = sums / (1.0 + tl.exp(-sums))
    elif epilogue.activation == "swiglu":
        gate, up = tl.split(sums.reshape([sums.shape[0], sums.shape[1] // 2, 2]))
        sums = gate / (1.0 + tl.exp(-gate)) * up
    if epilogue.residual is not None:
        places = rows.to(tl.int64)[:, None] * epilogue.columns + columns[None, :]
        there = (rows < of_residual)[:, None] & (columns < epilogue.columns)[None, :]
        sums += tl.load(epilogue.residual + places, mask=there, other=0.0).to(tl.float32)
    return sums
