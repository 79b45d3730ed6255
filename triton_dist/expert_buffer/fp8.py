"""Rows of float8_e4m3fn with a scale for each 128 elements, as DeepEP's low-latency dispatch converts them."""

from __future__ import annotations

import torch

__all__ = ["BLOCK", "packed_exponents", "to_fp8"]

BLOCK = 128
_LARGEST = 448.0  # of float8_e4m3fn


def to_fp8(x: torch.Tensor, round_scale: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [T, hidden], and scales [T, hidden / 128] float32, which are powers of two if ``round_scale``.

    Raises:
        ValueError: hidden is no multiple of 128.
    """
    if x.shape[1] % BLOCK:
        raise ValueError(f"low_latency_dispatch: with use_fp8 hidden must be a multiple of {BLOCK}, got {x.shape[1]}")
    blocks = x.float().view(len(x), x.shape[1] // BLOCK, BLOCK)
    scales = blocks.abs().amax(dim=-1).clamp(min=1e-4) / _LARGEST
    if round_scale:
        fraction, exponent = torch.frexp(scales)  # a power of two has the fraction 0.5
        scales = torch.ldexp(torch.ones_like(scales), exponent - (fraction == 0.5).int())
    rows = (blocks / scales[:, :, None]).view(x.shape).to(torch.float8_e4m3fn)
    return rows, scales


def packed_exponents(scales: torch.Tensor) -> torch.Tensor:
    """UE8M0: the exponents of float32 powers of two [..., S], four in an int32 [..., S / 4], the first lowest."""
    exponents = (scales.contiguous().view(torch.int32) >> 23).to(torch.uint8)
    return exponents.view(torch.int32)
