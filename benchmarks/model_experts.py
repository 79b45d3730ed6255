"""Layers of experts of model.py's peer: the experts of triton_dist.nn.MoE, whose tokens NCCL exchanges.

- A sharded sequence: permute, all_to_all_single, our grouped GEMMs, all_to_all_single, index_add, as torchtitan does.
- Tokens that all PEs have (decode): the rows of this PE's experts, our grouped GEMMs, index_add, all_reduce. An
  exchange would take two all-to-alls and an all-gather there.

Splits and permutations are computed before, from the routing of a run with the same inputs, and are not timed: a graph
cannot be captured with splits that a host reads. The router is timed, as ours is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from moe_cases import Permutation
from torch import nn

from triton_dist.kernels import moe
from triton_dist.nn import MoE

__all__ = ["NcclExperts", "planned", "replace_experts"]


@torch.library.custom_op("benchmarks::experts", mutates_args=())
def experts(
    rows: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """The grouped GEMMs of ours, for compiled functions."""
    expected = -(-rows.shape[0] // counts.shape[0])
    hidden = moe.grouped_gemm(rows, w13.transpose(1, 2), offsets, counts, swiglu=True, expected_rows=expected)
    return moe.grouped_gemm(hidden, w2.transpose(1, 2), offsets, counts, expected_rows=expected)


@experts.register_fake
def _(
    rows: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    return torch.empty_like(rows)


class NcclExperts(nn.Module):
    """A layer with the weights of ``layer``, a triton_dist.nn.MoE of all PEs."""

    def __init__(self, layer: MoE, pe: int) -> None:
        super().__init__()
        self.layer, self.pe, self.planning = layer, pe, False
        self.permutation: Permutation | None = None
        self.own: torch.Tensor | None = None
        """Of replicated tokens: the choices of this PE's experts, by expert."""

    def plan(self, ids: torch.Tensor) -> None:
        """Compute what depends on the routing of ``ids`` [T, top_k], by the host. *Collective.*"""
        n, layer = dist.get_world_size(), self.layer
        if not layer.replicated:
            all_ids = ids.new_empty(n * len(ids), ids.shape[1])
            dist.all_gather(list(all_ids.chunk(n)), ids)
            self.permutation = Permutation(all_ids.unflatten(0, (n, -1)), self.pe, layer.num_experts)
            self.offsets, self.counts = self.permutation.groups()
            return
        local, flat = layer.num_experts // n, ids.flatten() - self.pe * (layer.num_experts // n)
        order = flat.argsort(stable=True)
        self.own = order[(flat[order] >= 0) & (flat[order] < local)]
        self.counts = torch.bincount(flat[self.own], minlength=local).int()
        self.offsets = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0).int()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer, tokens = self.layer, x.reshape(-1, x.shape[-1])
        ids, weights = layer.route(tokens)
        if self.planning:
            self.plan(ids)
        if self.permutation is not None:
            rows = self.permutation.dispatch(tokens)
            y = experts(rows, layer.w13, layer.w2, self.offsets, self.counts)
            out = self.permutation.combine(y, self.permutation.factors(weights))
        else:
            assert self.own is not None
            of_token = self.own // layer.top_k
            y = experts(tokens[of_token], layer.w13, layer.w2, self.offsets, self.counts)
            total = torch.zeros(tokens.shape, dtype=torch.float32, device=x.device)
            total.index_add_(0, of_token, y.float() * weights.flatten()[self.own][:, None])
            out = total.to(x.dtype)
            dist.all_reduce(out)
        if layer.shared_up is not None and layer.shared_down is not None:
            gate, up = layer.shared_up(tokens).chunk(2, dim=-1)
            out = out + layer.shared_down(nn.functional.silu(gate) * up)
        return out.view(x.shape)


def replace_experts(model: Any, pe: int) -> None:
    """Have NCCL exchange the tokens of a model's layers of experts, if it has any."""
    for layer in model.layers:
        if isinstance(layer.mlp, MoE):
            layer.mlp = NcclExperts(layer.mlp, pe)


@contextmanager
def planned(module: nn.Module) -> Iterator[None]:
    """What ``module`` computes here is what its peers' layers of experts are planned for."""
    layers = [layer for layer in module.modules() if isinstance(layer, NcclExperts)]
    for layer in layers:
        layer.planning = True
    yield
    for layer in layers:
        layer.planning = False
