"""Operands of 8-bit floats: which GPUs multiply them, and the scales that make up for their narrow range."""

from __future__ import annotations

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.world.current import current_world

__all__ = ["FP8", "check_capability", "ones", "scale_of"]

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)

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
            f"{function}: {name} must be one element of torch.float32 on {device}, for the whole matrix; got shape"
            f" {tuple(scale.shape)} and {scale.dtype}, on {scale.device}"
        )
    return scale.reshape(1)
