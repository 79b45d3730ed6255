"""A layer of experts: dispatch, grouped GEMM, SwiGLU, grouped GEMM, combine, one after the other, or in two kernels.

Or, if every PE has a slice of every expert: routing, all-gather and grouped GEMM, SwiGLU, grouped GEMM and
reduce-scatter.

Without gradients only rows that tokens fill are read and written, all others are left as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.functional.layout import contiguous
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm
from triton_dist.kernels.moe.arguments import check_sizes
from triton_dist.kernels.moe.combine import combine
from triton_dist.kernels.moe.dispatch import dispatch
from triton_dist.kernels.moe.functional_layer import dispatch_and_multiply, multiply_and_combine
from triton_dist.kernels.moe.gathered_routing import gather_routing
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter
from triton_dist.kernels.moe.swiglu import swiglu_of_rows
from triton_dist.kernels.moe.whole_experts import dispatch_grouped_gemm, grouped_gemm_combine

__all__ = ["ALGORITHMS", "ONE_OF", "choose", "moe_layer"]

ALGORITHMS = "auto", "separate", "fused", "fused_hopper"
ONE_OF = f"{', '.join(ALGORITHMS[:-1])} or {ALGORITHMS[-1]}"

_FUSED_FROM = 4096
"""Tokens of a PE from which on two kernels are faster than separate steps in rounds, and the most experts."""
_FUSED_EXPERTS = 256


def choose(max_tokens: int, num_experts: int, num_sms: int) -> str:
    """What ``auto`` takes, from measurements (docs/decisions/0085); the same on all PEs."""
    fused = num_sms > 0 and max_tokens >= _FUSED_FROM and num_experts <= _FUSED_EXPERTS
    return "fused" if fused else "separate"


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
    num_sms: int = 0,
    parallel: str = "expert",
    algorithm: str = "auto",
    group: Any = None,
) -> torch.Tensor:
    """The weighted sum, over a token's experts, of ``w2 · (silu(w1 · x) * (w3 · x))``.

    *Collective*, on the current stream, and differentiable. Nothing waits for the host. Intermediate results have room
    for ``capacity`` rows.

    Args:
        x: [T, hidden]: bfloat16, float16 or float32. T may differ between PEs, up to ``max_tokens``.
        topk_ids, topk_weights: [T, top_k], as of :func:`~triton_dist.kernels.moe.dispatch`.
        w13: [L, 2 * intermediate, hidden], of this PE's experts: w1, the gate, and then w3.
        w2: [L, hidden, intermediate].
        num_experts, max_tokens, capacity, num_sms: as of :func:`~triton_dist.kernels.moe.dispatch`.
        parallel: ``expert``, where every PE has an equal part of the experts; or ``tensor``, where every PE has a part
            of each expert: w13 is [num_experts, 2 * intermediate / n_pes, hidden], of which w1 and w3 have the same
            rows of the whole ones, and w2 [num_experts, hidden, intermediate / n_pes]. ``num_sms`` is then as of
            :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`, and there is no ``capacity``.
        algorithm: for ``expert``. ``separate``: every step is a kernel of its own. ``fused``: the routing is gathered;
            then dispatch, GEMM and SwiGLU are one kernel, and GEMM and combine another one, in which ``num_sms``
            programs move rows while the others multiply. Sums and roundings are the same. ``fused_hopper``: the same
            with the warp-specialised kernels of Hopper GPUs, where they take the operands, which have not run on a GPU
            yet. Where gradients are recorded or PyTorch traces, steps are separate with any. ``auto`` is ``fused`` if
            ``num_sms`` is given, max_tokens is 4096 or more, and there are up to 256 experts, else ``separate``.

    Returns:
        [T, hidden], of ``x``'s dtype.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    check_sizes("moe_layer", num_experts, max_tokens, 1, capacity, num_sms)
    for name, tensor in (("x", x), ("topk_ids", topk_ids), ("topk_weights", topk_weights), ("w13", w13), ("w2", w2)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"moe_layer: {name} must be a torch.Tensor, got {type(tensor).__name__}")
    if w13.dim() != 3 or w2.dim() != 3 or w13.shape[1] != 2 * w2.shape[2] or w13.shape[2] != w2.shape[1]:
        raise ValueError(
            "moe_layer: w13 must be [L, 2 * intermediate, hidden] and w2 [L, hidden, intermediate], got shapes"
            f" {tuple(w13.shape)} and {tuple(w2.shape)}"
        )
    if parallel not in ("expert", "tensor"):
        raise ValueError(f"moe_layer: parallel must be expert or tensor, got {parallel!r}")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"moe_layer: algorithm must be {ONE_OF}, got {algorithm!r}")
    if parallel == "tensor":
        if algorithm != "auto":
            raise ValueError(
                f"moe_layer: algorithm is for parallel='expert', got {algorithm!r}: slices of experts overlap always"
            )
        if capacity is not None:
            raise ValueError("moe_layer: capacity is for parallel='expert': slices of experts have room for all rows")
        return _tensor_parallel(x, topk_ids, topk_weights, w13, w2, num_experts, max_tokens, num_sms, group)
    sizes: dict[str, Any] = {
        "num_experts": num_experts,
        "max_tokens": max_tokens,
        "capacity": capacity,
        "num_sms": num_sms,
    }
    given = (x, topk_weights, w13, w2)
    if not torch.compiler.is_compiling() and not _records_gradients(*given):
        if algorithm == "auto":
            algorithm = choose(max_tokens, num_experts, num_sms)
            if algorithm == "fused" and communicator_of(group).grid.hosts > 1:  # it loads and stores at all peers
                algorithm = "separate"
        if algorithm.startswith("fused"):
            return _fused(
                x, topk_ids, topk_weights, w13, w2, algorithm, num_experts, max_tokens, capacity, num_sms, group
            )
        received = dispatch(
            x.contiguous(), topk_ids.contiguous(), topk_weights.float().contiguous(), **sizes, group=group
        )
        groups = received.offsets, received.counts
        # If all PEs have as many tokens. There may be room for n_pes times as many rows.
        rows = -(-topk_ids.numel() // len(received.counts))
        hidden = grouped_gemm(received.x, w13.transpose(1, 2), *groups, swiglu=True, expected_rows=rows)
        return combine(grouped_gemm(hidden, w2.transpose(1, 2), *groups, expected_rows=rows), received)
    both, received = dispatch_and_multiply(x, topk_ids, topk_weights, w13.transpose(1, 2), **sizes, group=group)
    gate, up = both.chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return multiply_and_combine(hidden, w2.transpose(1, 2), received, topk_weights, group=group)


def _fused(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    algorithm: str,
    num_experts: int,
    max_tokens: int,
    capacity: int | None,
    num_sms: int,
    group: Any,
) -> torch.Tensor:
    routing = gather_routing(
        ids.contiguous(), weights.float().contiguous(), num_experts=num_experts, max_tokens=max_tokens, group=group
    )
    how: dict[str, Any] = {"num_sms": num_sms, "algorithm": "hopper" if algorithm == "fused_hopper" else "portable"}
    hidden = dispatch_grouped_gemm(contiguous(x), w13.transpose(1, 2), routing, swiglu=True, capacity=capacity, **how)
    return grouped_gemm_combine(hidden, w2.transpose(1, 2), routing, **how)


def _tensor_parallel(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    num_experts: int,
    max_tokens: int,
    num_sms: int,
    group: Any,
) -> torch.Tensor:
    sizes: dict[str, Any] = {"num_experts": num_experts, "max_tokens": max_tokens, "group": group}
    up, down = w13.transpose(1, 2), w2.transpose(1, 2)
    if not torch.compiler.is_compiling() and not _records_gradients(x, weights, w13, w2):
        routing = gather_routing(ids.contiguous(), weights.float().contiguous(), **sizes)
        gate_up = all_gather_grouped_gemm(contiguous(x), up, routing, num_sms=num_sms)
        hidden = swiglu_of_rows(gate_up, routing.offsets)
        return grouped_gemm_reduce_scatter(hidden, down, routing, num_sms=num_sms)
    weights = weights.float()
    routing = functional.gather_routing(ids, weights, **sizes)
    gate, value = functional.all_gather_grouped_gemm(x, up, routing, num_sms=num_sms, group=group).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * value
    return functional.grouped_gemm_reduce_scatter(hidden, down, routing, weights, num_sms=num_sms, group=group)


def _records_gradients(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
