"""Received tokens grouped by expert, and their sums: what lies between ``dispatch_tokens`` and grouped GEMMs.

A token that came once becomes a row for each of its experts on this PE, and the weighted rows become one again, for
``combine_tokens``. So a token crosses once, whatever number of its experts a PE has. All of it is local: rows are read
and written at the rate of this PE's memory, by all multiprocessors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from triton_dist.kernels.arguments import check_contiguous, in_int32
from triton_dist.kernels.gemm.portable import programs
from triton_dist.kernels.gradients import refuse_gradients
from triton_dist.kernels.local_launches import launch_again
from triton_dist.kernels.moe.gathered_routing import GatheredRouting, of_one_pe
from triton_dist.kernels.moe.tokens import DispatchedTokens
from triton_dist.kernels.options import check_int
from triton_dist.kernels.prepared import launch

__all__ = [
    "GroupedTokens",
    "check_received",
    "check_rows_of",
    "gradients_of_sums",
    "group_by_expert",
    "rows_by_expert",
    "sum_over_experts",
    "sums",
]


class GroupedTokens(NamedTuple):
    """Rows of a PE's experts, as a grouped GEMM wants them. R is the capacity; rows behind the last hold anything.

    Attributes:
        x: [R, hidden], grouped by expert, and of an expert in the order of tokens, then choices.
        scales: [R, S] float32, or None.
        weights: [tokens, top_k] float32, of the tokens that came.
        routing: which row each choice has.
    """

    x: torch.Tensor
    scales: torch.Tensor | None
    weights: torch.Tensor
    routing: GatheredRouting

    @property
    def counts(self) -> torch.Tensor:
        """[L] int32, how many rows each expert has."""
        return self.routing.counts

    @property
    def offsets(self) -> torch.Tensor:
        """[L + 1] int32, where the rows of each expert begin; and the end of the last."""
        return self.routing.offsets


@triton.jit
def _copy(out, source, row, positions, K: tl.constexpr, R, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a row of so many int32 words to the rows of its choices."""
    for first in range(0, WORDS, BLOCK):
        words = first + tl.arange(0, BLOCK)
        there = words < WORDS
        values = tl.load(source + row * WORDS + words, mask=there)
        for k in range(K):
            to = tl.load(positions + k)
            if (to >= 0) & (to < R):
                tl.store(out + to.to(tl.int64) * WORDS + words, values, mask=there)


@triton.jit(do_not_specialize=["n_tokens", "R"])
def moe_group_by_expert(
    out, x, out_scales, scales, positions, end, n_tokens, R, K: tl.constexpr, WORDS: tl.constexpr,
    SCALES: tl.constexpr, BLOCK: tl.constexpr, BLOCK_OF_SCALES: tl.constexpr,
):  # fmt: skip
    assert tl.load(end) <= R, "group_by_expert: there are more rows than the capacity"
    choices = tl.arange(0, triton.next_power_of_2(K))
    for token in range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        of_token = positions + tl.cast(token, tl.int64) * K
        if tl.max(tl.load(of_token + choices, mask=choices < K, other=-1), axis=0) >= 0:
            row = tl.cast(token, tl.int64)
            _copy(out, x, row, of_token, K, R, WORDS, BLOCK)
            if SCALES > 0:
                _copy(out_scales, scales, row, of_token, K, R, SCALES, BLOCK_OF_SCALES)


@triton.jit(do_not_specialize=["n_tokens"])
def moe_sum_over_experts(
    out, y, weights, positions, n_tokens, K: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr
):
    choices = tl.arange(0, triton.next_power_of_2(K))
    for token in range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        of_token = tl.cast(token, tl.int64) * K
        if tl.max(tl.load(positions + of_token + choices, mask=choices < K, other=-1), axis=0) >= 0:
            for first in range(0, COLUMNS, BLOCK):
                columns = first + tl.arange(0, BLOCK)
                there = columns < COLUMNS
                total = tl.zeros([BLOCK], tl.float32)
                for k in range(K):
                    row = tl.load(positions + of_token + k)
                    if row >= 0:
                        values = tl.load(y + row.to(tl.int64) * COLUMNS + columns, mask=there, other=0.0)
                        total += tl.load(weights + of_token + k) * values.to(tl.float32)
                to = out + tl.cast(token, tl.int64) * COLUMNS + columns
                tl.store(to, total.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["n_tokens"])
def moe_sum_over_experts_backward(
    of_y, of_weights, grad, y, weights, positions, n_tokens, K: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Of a token's rows its gradient, times their weights; and of the weights its product with the rows."""
    choices = tl.arange(0, triton.next_power_of_2(K))
    for token in range(tl.program_id(0), n_tokens, tl.num_programs(0)):
        of_token = tl.cast(token, tl.int64) * K
        if tl.max(tl.load(positions + of_token + choices, mask=choices < K, other=-1), axis=0) >= 0:
            for k in range(K):
                row = tl.load(positions + of_token + k)
                if row >= 0:
                    weight = tl.load(weights + of_token + k)
                    total = tl.zeros([BLOCK], tl.float32)
                    for first in range(0, COLUMNS, BLOCK):
                        columns = first + tl.arange(0, BLOCK)
                        there = columns < COLUMNS
                        at = row.to(tl.int64) * COLUMNS + columns
                        given = tl.load(grad + tl.cast(token, tl.int64) * COLUMNS + columns, mask=there, other=0.0)
                        given = given.to(tl.float32)
                        total += given * tl.load(y + at, mask=there, other=0.0).to(tl.float32)
                        tl.store(of_y + at, (weight * given).to(of_y.dtype.element_ty), mask=there)
                    tl.store(of_weights + of_token + k, tl.sum(total, axis=0))


def group_by_expert(received: DispatchedTokens, *, capacity: int | None = None) -> GroupedTokens:
    """Make a row of each token that has come for each of its experts on this PE. On the current stream; no other PE is
    involved. It may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        received: what :func:`~triton_dist.kernels.moe.dispatch_tokens` has returned, with ids.
        capacity: R, for how many rows there is room; by default ``top_k`` times as many as for tokens, which is all
            that can come. It is an error of the kernel (a device-side assertion on a GPU) if there are more.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    ids, weights, rows = check_received(received, capacity)
    refuse_gradients("group_by_expert", received.x, weights)
    routing = of_one_pe(ids, received.routing.local_experts)
    x, scales = rows_by_expert(received.x, received.scales, routing, rows)
    return GroupedTokens(x, scales, weights, routing)


def check_received(received: object, capacity: int | None) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The ids and weights of the tokens that :func:`group_by_expert` is given, and for how many rows there is room."""
    if not isinstance(received, DispatchedTokens):
        raise TypeError(
            f"group_by_expert: received must be what dispatch_tokens has returned, got {type(received).__name__}"
        )
    ids, weights = received.topk_ids, received.topk_weights
    if ids is None or weights is None:
        raise ValueError("group_by_expert: received has no ids: its tokens were sent by a handle, without them")
    if capacity is None:
        return ids, weights, ids.shape[0] * ids.shape[1]
    check_int("group_by_expert", "capacity", capacity, 1)
    return ids, weights, min(ids.shape[0] * ids.shape[1], capacity)


def rows_by_expert(
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: GatheredRouting,
    rows: int,
    new: Callable[..., torch.Tensor] = torch.empty,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The rows of :func:`group_by_expert`, and their scales; ``new`` makes the former."""
    out = new(rows, x.shape[1], dtype=x.dtype, device=x.device)
    out_scales = None if scales is None else scales.new_empty(rows, scales.shape[1])
    words, n_scales = x.shape[1] * x.element_size() // 4, 0 if scales is None else scales.shape[1]
    block = min(2048, int(triton.next_power_of_2(words)))
    launch_again(
        "group_by_expert", moe_group_by_expert, (4 * programs(),),
        (
            in_int32(out), in_int32(x),
            *((routing.memory,) * 2 if scales is None or out_scales is None else (out_scales, scales)),
            routing.positions, routing.offsets[-1:],
        ),
        routing.n_tokens, rows, routing.top_k, words, n_scales, block,
        int(triton.next_power_of_2(max(1, n_scales))), num_warps=_warps(block), debug=True, sanitize_overflow=False,
    )  # fmt: skip
    return out, out_scales


def sum_over_experts(y: torch.Tensor, grouped: GroupedTokens) -> torch.Tensor:
    """The weighted sum of each token's rows, in float32 and in the order of its choices: [tokens, hidden] of ``y``'s
    dtype, for :func:`~triton_dist.kernels.moe.combine_tokens`. Rows of tokens that have not come hold anything. On the
    current stream; no other PE is involved.

    Args:
        y: [R, hidden], contiguous: bfloat16, float16 or float32, for the rows of ``grouped.x``.
        grouped: what :func:`group_by_expert` has returned.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
    """
    check_contiguous("sum_over_experts", y=y)
    check_rows_of(y, grouped)
    refuse_gradients("sum_over_experts", y, grouped.weights)
    return sums(y, grouped.weights, grouped.routing)


def check_rows_of(y: torch.Tensor, grouped: object) -> None:
    """``y`` has a row for each of ``grouped``."""
    if not isinstance(grouped, GroupedTokens):
        raise TypeError(
            f"sum_over_experts: grouped must be what group_by_expert has returned, got {type(grouped).__name__}"
        )
    if y.dim() != 2 or len(y) != len(grouped.x) or y.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(
            f"sum_over_experts: y must be [{len(grouped.x)}, hidden] of bfloat16, float16 or float32, a row for each of"
            f" grouped.x, got {tuple(y.shape)} of {y.dtype}"
        )


def sums(
    y: torch.Tensor,
    weights: torch.Tensor,
    routing: GatheredRouting,
    new: Callable[..., torch.Tensor] = torch.empty,
) -> torch.Tensor:
    """Those of :func:`sum_over_experts`."""
    out = new(routing.n_tokens, y.shape[1], dtype=y.dtype, device=y.device)
    block = _block_of(y)
    launch_again(
        "sum_over_experts", moe_sum_over_experts, (4 * programs(),), (out, y, weights, routing.positions),
        routing.n_tokens, routing.top_k, y.shape[1], block, num_warps=_warps(block),
    )  # fmt: skip
    return out


def gradients_of_sums(
    grad: torch.Tensor, y: torch.Tensor, weights: torch.Tensor, routing: GatheredRouting
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the rows and of the weights. Rows that no token fills are zeros."""
    of_y, of_weights, block = torch.zeros_like(y), torch.zeros_like(weights), _block_of(y)
    launch(
        moe_sum_over_experts_backward, (4 * programs(),),
        (of_y, of_weights, grad, y, weights, routing.positions), routing.n_tokens, routing.top_k, y.shape[1], block,
        num_warps=_warps(block),
    )  # fmt: skip
    return of_y, of_weights


def _block_of(y: torch.Tensor) -> int:
    return min(1024, int(triton.next_power_of_2(max(1, y.shape[1]))))


def _warps(block: int) -> int:
    return max(1, min(8, block // 256))
