"""The layout of B, and of a bias, for ``activation="swiglu"``."""

from __future__ import annotations

import torch

__all__ = ["interleave_gate_up"]


def interleave_gate_up(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The columns of ``gate`` and ``up`` in turn: column 2 i is the i-th of ``gate``, and 2 i + 1 that of ``up``.

    Args:
        gate, up: [K, N] operands of a GEMM, or [N] biases, of the same dtype, on one device. (Weights of ``nn.Linear``
            are transposed: pass ``weight.t()``. A weight that holds both, gates first, is
            ``interleave_gate_up(*weight.t().chunk(2, 1))``.)

    Returns:
        a new tensor, [K, 2 N] or [2 N]. Where ``gate`` has contiguous columns it has, too; else contiguous rows. It is
        a differentiable function of both.

    Raises:
        TypeError, ValueError: an argument is not as described.
    """
    for name, tensor in (("gate", gate), ("up", up)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"interleave_gate_up: {name} must be a torch.Tensor, got {type(tensor).__name__}")
    if gate.shape != up.shape or gate.dim() not in (1, 2) or gate.dtype != up.dtype or gate.device != up.device:
        raise ValueError(
            "interleave_gate_up: gate and up must have the same shape of one or two dimensions, dtype and device, got"
            f" {tuple(gate.shape)} of {gate.dtype} on {gate.device} and {tuple(up.shape)} of {up.dtype} on {up.device}"
        )
    if gate.dim() == 2 and gate.stride(0) == 1 and gate.stride(1) != 1:
        return torch.stack((gate.t(), up.t()), 1).flatten(0, 1).t()
    return torch.stack((gate, up), -1).flatten(-2)
