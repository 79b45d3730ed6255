"""Operands of 8-bit floats: which GPUs multiply them, and the scales that make up for their narrow range.

Scales are of whole operands, or of blocks: one for 128 elements of a row of ``a``, and one for 128 × 128 of ``b``, as
of DeepSeek-V3 (its report, section 3.3.2). The partial sum of every 128 products is then multiplied by both in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import check_contiguous
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.world.current import current_world

__all__ = [
    "FP8",
    "SCALE_BLOCK",
    "BlockScales",
    "Scale",
    "are_of_blocks",
    "block_scales_of",
    "check_capability",
    "ones",
    "scale_of",
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


Scale = torch.Tensor | BlockScales | None
"""What sums are multiplied by: one float32, scales of blocks, or nothing."""

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


def are_of_blocks(a: torch.Tensor, b: torch.Tensor, scale_a: object, scale_b: object) -> bool:
    """Whether scales, which are not checked, are two matrices that have one for each block of ``a`` and ``b``."""
    shapes = [scale.shape for scale in (scale_a, scale_b) if isinstance(scale, torch.Tensor) and scale.dim() == 2]
    single = a.shape == (1, SCALE_BLOCK) and b.shape[1] <= SCALE_BLOCK
    return len(shapes) == 2 and (single or any(shape != (1, 1) for shape in shapes))


def block_scales_of(function: str, a: torch.Tensor, b: torch.Tensor, scale_a: Any, scale_b: Any) -> BlockScales:
    """The scales of blocks of this PE's ``a`` and ``b``, checked."""
    (rows, inner), columns = a.shape, b.shape[1]
    if a.dtype not in FP8:
        raise ValueError(f"{function}: scales are for operands of fp8, got scale_a and scale_b with {a.dtype}")
    if inner % SCALE_BLOCK:
        raise ValueError(
            f"{function}: with scales of blocks K must be a multiple of {SCALE_BLOCK}, got {inner}: pad a and b with"
            " zeros"
        )
    inner_blocks = inner // SCALE_BLOCK
    shapes = {"scale_a": (rows, inner_blocks), "scale_b": (inner_blocks, -(-columns // SCALE_BLOCK))}
    found = {"scale_a": scale_a, "scale_b": scale_b}
    for name, scale in found.items():
        if tuple(scale.shape) != shapes[name] or scale.dtype != torch.float32:
            raise ValueError(
                f"{function}: scales of blocks are scale_a of shape {shapes['scale_a']} and scale_b of shape"
                f" {shapes['scale_b']}, of torch.float32; got {name} of shape {tuple(scale.shape)} and {scale.dtype}"
            )
    check_contiguous(function, **found)
    return BlockScales(*found.values())


def scale_of(
    comm: Communicator,
    function: str,
    dtype: torch.dtype,
    scale_a: torch.Tensor | float | None,
    scale_b: torch.Tensor | float | None,
) -> torch.Tensor | None:
    """What the sums of a product of operands of ``dtype`` are multiplied by: one float32, on this PE's device, for fp8.

    The host never waits for it: it is a tensor, computed on the current stream.
    """
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    given = [name for name, scale in scales.items() if scale is not None]
    if dtype not in FP8:
        if given:
            raise ValueError(f"{function}: scales are for operands of fp8, got {' and '.join(given)} with {dtype}")
        return None
    one = ones(comm)  # made by the first call for fp8, whatever its scales: a later one may be captured in a graph
    first, second = (one if scale is None else _tensor(function, name, scale) for name, scale in scales.items())
    # A new tensor: kernels are not specialised on where a caller's scale lies.
    return first * second if given else one


def ones(comm: Communicator) -> torch.Tensor:
    """A scale of 1, cached."""
    return cached(comm, "scale of one", lambda: torch.ones(1, device=current_world().device))


def _tensor(function: str, name: str, scale: torch.Tensor | float) -> torch.Tensor:
    device = current_world().device
    if isinstance(scale, (int, float)):
        return torch.full((1,), scale, dtype=torch.float32, device=device)
    if not isinstance(scale, torch.Tensor):
        raise TypeError(f"{function}: {name} must be a torch.Tensor or a float, got {type(scale).__name__}")
    if scale.numel() != 1 or scale.dtype != torch.float32 or scale.device != device:
        raise ValueError(
            f"{function}: {name} must be one element of torch.float32 on {device}, for the whole matrix (scales of"
            f" blocks are two matrices); got shape {tuple(scale.shape)} and {scale.dtype}, on {scale.device}"
        )
    return scale.reshape(1)
