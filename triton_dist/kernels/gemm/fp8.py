"""Operands of 8-bit floats: which GPUs multiply them, and the scales that make up for their narrow range.

Scales are of whole operands; or of rows, one for each row of ``a`` and each column of ``b``, as ``torch._scaled_mm``
has them, by which sums are multiplied once; or of blocks, one for 128 elements of a row of ``a``, and one for 128 × 128
of ``b``, as of DeepSeek-V3 (its report, section 3.3.2): the partial sum of every 128 products is multiplied by both in
float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import check_contiguous
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.world.current import current_world

__all__ = [
    "FORMS",
    "FP8",
    "SCALE_BLOCK",
    "BlockScales",
    "RowScales",
    "Scale",
    "check_capability",
    "checked_scale",
    "given_scale",
    "ones",
]

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)

SCALE_BLOCK = 128
"""How many elements, along each side of a block, share a scale."""


class BlockScales(NamedTuple):
    """Scales of blocks; contiguous float32, on this PE's device.

    Attributes:
        a: [M, K / 128], of 128 elements of a row.
        b: [K / 128, N / 128], rounded up, of 128 × 128 elements.
    """

    a: torch.Tensor
    b: torch.Tensor


class RowScales(NamedTuple):
    """Scales of rows; contiguous float32, on this PE's device.

    Attributes:
        a: [M, 1], of the rows of A.
        b: [1, N], of the columns of B.
    """

    a: torch.Tensor
    b: torch.Tensor


Scale = torch.Tensor | BlockScales | RowScales | None
"""What sums are multiplied by: one float32, scales of blocks or rows, or nothing."""

FORMS: dict[type | None, str] = {BlockScales: "blocks", RowScales: "rows"}
"""What scales of parts of operands are called."""

_LARGEST = torch.finfo(torch.float32).max

_FIRST = (8, 9)
"""The compute capability of the first GPUs that multiply them."""


def check_capability(function: str, dtype: torch.dtype, gpu: str, capability: tuple[int, int]) -> None:
    """
    Raises:
        ValueError: a GPU of this name and compute capability does not multiply ``dtype``, which is one of fp8.
    """
    if capability < _FIRST:
        raise ValueError(
            f"{function}: operands are of {dtype}, which this GPU, {gpu} of compute capability"
            f" {'.'.join(map(str, capability))}, does not multiply: it takes {'.'.join(map(str, _FIRST))} (Ada, Hopper)"
            " or more. Convert them to torch.bfloat16"
        )


def given_scale(
    function: str, device: torch.device, a: Any, b: Any, scale_a: Any, scale_b: Any
) -> torch.Tensor | BlockScales | RowScales:
    """What a call's scales, of which it has one at least, are: one of both operands together, which is checked and on
    ``device``, this PE's, or those of rows or blocks, which :func:`checked_scale` checks."""
    form = _form_of(a, b, scale_a, scale_b)
    return _whole(function, device, scale_a, scale_b) if form is None else form(scale_a, scale_b)


def _form_of(a: Any, b: Any, scale_a: Any, scale_b: Any) -> type[BlockScales] | type[RowScales] | None:
    """What scales of parts of ``a`` and ``b`` are, which are not checked either; None, if they are of whole operands.

    They are two matrices. Where their shapes are those of both forms, both say the same.
    """
    if not isinstance(scale_a, torch.Tensor) or not isinstance(scale_b, torch.Tensor):
        return None
    if scale_a.dim() != 2 or scale_b.dim() != 2:
        return None
    matrices = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim() == 2
    if scale_a.shape == scale_b.shape == (1, 1):
        if matrices and a.shape[0] == 1 and b.shape[1] == 1:
            return RowScales
        return BlockScales if matrices and a.shape == (1, SCALE_BLOCK) and b.shape[1] <= SCALE_BLOCK else None
    if scale_a.shape[1] != 1 or scale_b.shape[0] != 1:
        return BlockScales
    one_block = matrices and a.shape[1] == SCALE_BLOCK and scale_b.shape[1] != b.shape[1]
    return BlockScales if one_block else RowScales


def _check_blocks(function: str, a: torch.Tensor, b: torch.Tensor, scale: BlockScales) -> None:
    (rows, inner), columns = a.shape, b.shape[1]
    if inner % SCALE_BLOCK:
        raise ValueError(
            f"{function}: with scales of blocks K must be a multiple of {SCALE_BLOCK}, got {inner}: pad a and b with"
            " zeros"
        )
    inner_blocks = inner // SCALE_BLOCK
    shapes = {"scale_a": (rows, inner_blocks), "scale_b": (inner_blocks, -(-columns // SCALE_BLOCK))}
    found = {"scale_a": scale.a, "scale_b": scale.b}
    for name, tensor in found.items():
        if tuple(tensor.shape) != shapes[name] or tensor.dtype != torch.float32:
            raise ValueError(
                f"{function}: scales of blocks are scale_a of shape {shapes['scale_a']} and scale_b of shape"
                f" {shapes['scale_b']}, of torch.float32 (of rows: {(rows, 1)} and {(1, columns)}); got {name} of shape"
                f" {tuple(tensor.shape)} and {tensor.dtype}"
            )
    check_contiguous(function, **found)


def _check_rows(function: str, b: torch.Tensor, scale: RowScales, rows: Sequence[int]) -> None:
    """Scales of one of these numbers of ``rows``, and of the columns of ``b``."""
    found = {"scale_a": scale.a, "scale_b": scale.b}
    possible = {"scale_a": [(count, 1) for count in rows], "scale_b": [(1, b.shape[1])]}
    for name, tensor in found.items():
        if tuple(tensor.shape) not in possible[name] or tensor.dtype != torch.float32:
            shapes = [" or ".join(map(str, shapes)) for shapes in possible.values()]
            raise ValueError(
                f"{function}: scales of rows are scale_a of shape {shapes[0]} and scale_b of shape {shapes[1]}, of"
                f" torch.float32; got {name} of shape {tuple(tensor.shape)} and {tensor.dtype}"
            )
    check_contiguous(function, **found)


def checked_scale(
    comm: Communicator,
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    scale: Scale,
    given: Sequence[str],
    rows: Sequence[int],
) -> Scale:
    """What the sums of ``a`` · ``b`` are multiplied by: for operands of fp8 ``scale``, checked; by default 1.

    Args:
        given: the names of the scales that there are.
        rows: how many rows scales of rows may have: those of ``a`` or, where these are gathered, of all of A.
    """
    if a.dtype not in FP8:
        if given:
            raise ValueError(f"{function}: scales are for operands of fp8, got {' and '.join(given)} with {a.dtype}")
        return None
    if isinstance(scale, BlockScales):
        _check_blocks(function, a, b, scale)
        return scale
    if isinstance(scale, RowScales):
        _check_rows(function, b, scale, rows)
        return scale
    one = ones(comm)  # made by the first call for fp8, whatever its scales: a later one may be captured in a graph
    return one if scale is None else scale


def ones(comm: Communicator) -> torch.Tensor:
    """A scale of 1, cached."""
    one = partial(torch.ones, 1, dtype=torch.float32, device=current_world().device)
    return cached(comm, "scale of one", one)


def _whole(function: str, device: torch.device, scale_a: Any, scale_b: Any) -> torch.Tensor:
    """The product of scales of whole operands, of which one may be None: one float32, on ``device``.

    The host never waits for it: it is computed on the current stream.
    """
    first, second = _checked(function, device, "scale_a", scale_a), _checked(function, device, "scale_b", scale_b)
    if first is None or second is None:
        alone = second if first is None else first
        if not isinstance(alone, torch.Tensor):
            return torch.full((1,), alone, dtype=torch.float32, device=device)
        # Kernels are specialised on whether an address is a multiple of 16, as that of a new tensor is.
        return alone if alone.data_ptr() % 16 == 0 else alone.clone()
    if not isinstance(first, torch.Tensor) and not isinstance(second, torch.Tensor):
        first = torch.full((1,), first, dtype=torch.float32, device=device)
    product: torch.Tensor = first * second
    return product


def _checked(function: str, device: torch.device, name: str, scale: Any) -> Any:
    """A scale of a whole operand: a tensor of one element, a number, or None."""
    if scale is None:
        return None
    if isinstance(scale, (int, float)):
        if _LARGEST < abs(scale) < math.inf:
            raise ValueError(f"{function}: {name} must be a number that torch.float32 holds, up to {_LARGEST:.3g}")
        return scale
    if not isinstance(scale, torch.Tensor):
        raise TypeError(f"{function}: {name} must be a torch.Tensor or a float, got {type(scale).__name__}")
    one = scale.numel() == 1 and scale.dtype == torch.float32
    if not one or scale.device != device or scale.layout is not torch.strided:
        raise ValueError(
            f"{function}: {name} must be one element of torch.float32 on {device}, for the whole matrix (scales of"
            f" rows or blocks are two matrices); got shape {tuple(scale.shape)} and {scale.dtype}, on {scale.device}"
        )
    if scale.is_neg():
        scale = scale.resolve_neg()
    return scale if scale.dim() == 1 else scale.reshape(1)
