"""A layer of experts: dispatch, grouped GEMM, SwiGLU, grouped GEMM, combine, one after the other."""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.moe import functional

__all__ = ["moe_layer"]


def moe_layer(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    num_experts: int,
    max_tokens: int,
    capacity: int | None = None,
    group: Any = None,
) -> torch.Tensor:
    """The weighted sum, over a token's experts, of ``w2 · (silu(w1 · x) * (w3 · x))``.

    *Collective*, on the current stream, and differentiable. Every step is a kernel of its own; nothing waits for the
    host. Intermediate results have room for ``capacity`` rows.

    Args:
        x: [T, hidden]: bfloat16, float16 or float32. T may differ between PEs, up to ``max_tokens``.
        topk_ids, topk_weights: [T, top_k], as of :func:`~triton_dist.kernels.moe.dispatch`.
        w13: [L, 2 * intermediate, hidden], of this PE's experts: w1, the gate, and then w3.
        w2: [L, hidden, intermediate].
        num_experts, max_tokens, capacity: as of :func:`~triton_dist.kernels.moe.dispatch`.

    Returns:
        [T, hidden], of ``x``'s dtype.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    if w13.dim() != 3 or w2.dim() != 3 or w13.shape[1] != 2 * w2.shape[2] or w13.shape[2] != w2.shape[1]:
        raise ValueError(
            "moe_layer: w13 must be [L, 2 * intermediate, hidden] and w2 [L, hidden, intermediate], got shapes"
            f" {tuple(w13.shape)} and {tuple(w2.shape)}"
        )
    received = functional.dispatch(
        x, topk_ids, topk_weights, num_experts=num_experts, max_tokens=max_tokens, capacity=capacity, group=group
    )
    groups = received.offsets, received.counts
    gate, up = functional.grouped_gemm(received.x, w13.transpose(1, 2), *groups).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return functional.combine(
        functional.grouped_gemm(hidden, w2.transpose(1, 2), *groups), received, topk_weights, group=group
    )
