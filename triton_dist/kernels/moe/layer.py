"""A layer of experts: dispatch, grouped GEMM, SwiGLU, grouped GEMM, combine, one after the other.

Or, if every PE has a slice of every expert: routing, all-gather and grouped GEMM, SwiGLU, grouped GEMM and
reduce-scatter.

Without gradients only rows that tokens fill are read and written, all others are left as they are.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels.gemm.portable import programs
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe.all_gather_grouped_gemm import all_gather_grouped_gemm
from triton_dist.kernels.moe.combine import combine
from triton_dist.kernels.moe.dispatch import dispatch
from triton_dist.kernels.moe.gathered_routing import gather_routing
from triton_dist.kernels.moe.grouped_gemm import grouped_gemm
from triton_dist.kernels.moe.grouped_gemm_reduce_scatter import grouped_gemm_reduce_scatter

__all__ = ["moe_layer"]


@triton.jit
def _swiglu(out, gate_up, end, N, BLOCK: tl.constexpr):
    """silu(gate) * up of the rows below ``end``, in float32; a row of ``gate_up`` is gate, then up."""
    for row in range(tl.program_id(0), tl.load(end), tl.num_programs(0)):
        for first in range(0, N, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            at = gate_up + tl.cast(row, tl.int64) * 2 * N + columns
            gate = tl.load(at, mask=columns < N, other=0.0).to(tl.float32)
            up = tl.load(at + N, mask=columns < N, other=0.0).to(tl.float32)
            value = gate / (1 + tl.exp(-gate)) * up
            tl.store(out + tl.cast(row, tl.int64) * N + columns, value.to(out.dtype.element_ty), mask=columns < N)


def _swiglu_of_rows(gate_up: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """[R, N] of [R, 2 N], for the rows in front of ``offsets[-1]``."""
    n = gate_up.shape[1] // 2
    out = gate_up.new_empty(len(gate_up), n)
    block = min(2048, int(triton.next_power_of_2(n)))
    _swiglu[(4 * programs(),)](out, gate_up, offsets[-1:], n, block, num_warps=max(1, min(8, block // 128)))
    return out


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
        num_experts, max_tokens, capacity, num_sms: as of :func:`~triton_dist.kernels.moe.dispatch`.
        parallel: ``expert``, where every PE has an equal part of the experts; or ``tensor``, where every PE has a part
            of each expert: w13 is [num_experts, 2 * intermediate / n_pes, hidden], of which w1 and w3 have the same
            rows of the whole ones, and w2 [num_experts, hidden, intermediate / n_pes]. ``num_sms`` is then as of
            :func:`~triton_dist.kernels.moe.all_gather_grouped_gemm`, and there is no ``capacity``.

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
    if parallel not in ("expert", "tensor"):
        raise ValueError(f"moe_layer: parallel must be expert or tensor, got {parallel!r}")
    if parallel == "tensor":
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
        received = dispatch(
            x.contiguous(), topk_ids.contiguous(), topk_weights.float().contiguous(), **sizes, group=group
        )
        groups = received.offsets, received.counts
        hidden = _swiglu_of_rows(grouped_gemm(received.x, w13.transpose(1, 2), *groups), received.offsets)
        return combine(grouped_gemm(hidden, w2.transpose(1, 2), *groups), received)
    received = functional.dispatch(x, topk_ids, topk_weights, **sizes, group=group)
    groups = received.offsets, received.counts
    gate, up = functional.grouped_gemm(received.x, w13.transpose(1, 2), *groups).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return functional.combine(
        functional.grouped_gemm(hidden, w2.transpose(1, 2), *groups), received, topk_weights, group=group
    )


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
        gate_up = all_gather_grouped_gemm(x.contiguous(), up, routing, num_sms=num_sms)
        hidden = _swiglu_of_rows(gate_up, routing.offsets)
        return grouped_gemm_reduce_scatter(hidden, down, routing, num_sms=num_sms)
    weights = weights.float()
    routing = functional.gather_routing(ids, weights, **sizes)
    gate, value = functional.all_gather_grouped_gemm(x, up, routing, num_sms=num_sms, group=group).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * value
    return functional.grouped_gemm_reduce_scatter(hidden, down, routing, weights, num_sms=num_sms, group=group)


def _records_gradients(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
