"""Tokens that several PEs share: copies of them on all, and the tokens of PEs that have slices of the same experts.

Where all PEs have the same tokens, none needs to be sent: a PE computes what its own experts add to them, in a group of
itself, and the sum over PEs is an all-reduce. Where PEs have slices of the same experts, the tokens of all of these PEs
go to each slice, so they are gathered first, and the sums are scattered.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from triton_dist.kernels import functional
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional import replicated
from triton_dist.kernels.functional.operator import operator

__all__ = ["check_grid", "gather_tokens", "own_choices", "sum_gradients"]

_ops: Any = torch.ops.triton_dist


# ---- slices of the same experts


def check_grid(function: str, experts: Communicator, slices: Communicator) -> None:
    """The PEs of ``experts`` have the same rank in ``slices``. *Collective* over both the first time.

    Raises:
        ValueError: they have not; on all of these PEs.
    """
    known = experts.own(_Grids).names
    if slices.name in known:
        return
    told = experts.exchange("the groups of a layer of experts", f"{slices.my_rank} of {slices.n_pes}")
    if len(set(told)) > 1:
        raise ValueError(
            f"{function}: the PEs of group must have the same rank in their tp_groups, which have the same size, as"
            f" those of a column of a mesh have in its rows; PEs {', '.join(map(str, experts.pes))} have ranks"
            f" {', '.join(told)}"
        )
    known.add(slices.name)


class _Grids:
    """The groups of slices that fit a communicator's PEs, by name."""

    def __init__(self, communicator: Communicator) -> None:
        self.names = set[str]()

    def close(self) -> None:
        self.names.clear()


def gather_tokens(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, max_tokens: int, group: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tokens of all PEs of ``group``, ``max_tokens`` of each, and their choices. Those that are filled in have
    none. *Collective*, and differentiable."""
    if ids.shape[0] != x.shape[0] or weights.shape != ids.shape:
        raise ValueError(
            f"moe_layer: topk_ids and topk_weights must be [{x.shape[0]}, top_k], as x has {x.shape[0]} rows, got"
            f" shapes {tuple(ids.shape)} and {tuple(weights.shape)}"
        )
    more = max_tokens - x.shape[0]
    if more < 0:
        raise ValueError(f"moe_layer: x has {x.shape[0]} tokens, and max_tokens is {max_tokens}")
    if more:
        x, weights = (torch.nn.functional.pad(rows, (0, 0, 0, more)) for rows in (x, weights))
        ids = torch.nn.functional.pad(ids, (0, 0, 0, more), value=-1)
    x, ids, weights = (functional.all_gather(rows, 0, group) for rows in (x, ids, weights))
    return x, ids, weights


# ---- copies of the same tokens


@triton.jit
def _own_choices(out, ids, n, FIRST: tl.constexpr, LOCAL: tl.constexpr, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(ids + at, mask=at < n, other=-1).to(tl.int64)
    own = chosen - FIRST
    own = tl.where((own >= 0) & (own < LOCAL), own, -1)
    own = tl.where((chosen < -1) | (chosen >= EXPERTS), LOCAL, own)
    tl.store(out + at, own.to(tl.int32), mask=at < n)


@operator(
    "moe_own_choices",
    schema="(Tensor topk_ids, int first, int local_experts, int num_experts) -> Tensor",
)
def _own_choices_of(ids: torch.Tensor, first: int, local_experts: int, num_experts: int) -> torch.Tensor:
    ids, out = ids.contiguous(), _own_choices_fake(ids, first, local_experts, num_experts)
    n, block = ids.numel(), 1024
    if n:
        _own_choices[(-(-n // block),)](out, ids, n, first, local_experts, num_experts, block)
    return out


@_own_choices_of.register_fake
def _own_choices_fake(ids: torch.Tensor, first: int, local_experts: int, num_experts: int) -> torch.Tensor:
    return ids.new_empty(ids.shape, dtype=torch.int32)


_own_choices_of.refuse_gradients()


def own_choices(ids: torch.Tensor, num_experts: int, group: Any) -> torch.Tensor:
    """``ids`` [T, top_k], numbered from this PE's first expert, int32; -1 for those of other PEs.

    An id that is not in [-1, num_experts) becomes one that a dispatch among this PE's experts refuses.
    """
    size, name = groups.resolve(group)
    local = num_experts // max(size, 1)
    first = local * groups.rank_of(name) if size else 0
    own: torch.Tensor = _ops.moe_own_choices(ids, first, local, num_experts)
    return own


def sum_gradients(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """``tensor``, which all PEs of ``group`` have alike and use differently: its gradient is the sum of theirs."""
    return replicated.sum_gradients(tensor, *groups.resolve(group))
