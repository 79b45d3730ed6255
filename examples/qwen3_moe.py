"""Decoders with layers of experts for 05_transformer.py and benchmarks/model.py: qwen3.py's with another MLP.

Attention is tensor-parallel, by the styles of qwen3.py. The experts are shared out over the same PEs by
triton_dist.nn.MoE:

- With sequence parallelism (prefill, training) a PE's tokens are its part of the sequence. They are dispatched to the
  PEs of their experts, and combined.
- Without it (decode) all PEs have the same tokens: each computes what its own experts add, and an all-reduce
  sums it up.

`Experts` is the same layer in plain PyTorch, on one PE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from qwen3 import Config
from torch import nn
from torch.nn.functional import linear, silu

from triton_dist.kernels.moe import group_limited_top_k, softmax_top_k
from triton_dist.nn import MoE


@dataclass(frozen=True)
class MoEConfig(Config):
    """Sizes of a model of experts; ``intermediate`` is one expert's.

    ``sigmoid``: tokens choose by sigmoid scores, with the options ``limits`` of
    :func:`~triton_dist.kernels.moe.group_limited_top_k` (DeepSeek-V3); else by softmax. ``shared``: the intermediate
    size of an expert that all tokens pass, or 0.
    """

    block: int = 1
    experts: int = 0
    top_k: int = 0
    sigmoid: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    shared: int = 0

    def check(self, n_pes: int) -> None:
        self.check_shared({"kv_heads": self.kv_heads, "experts": self.experts, "vocabulary": self.vocabulary}, n_pes)

    def mlp(self, group: Any = None, sequence: bool = False, max_tokens: int = 1) -> nn.Module:
        if group is None:
            return Experts(self)
        return MoE(
            self.hidden, self.intermediate, num_experts=self.experts, top_k=self.top_k, max_tokens=max_tokens,
            scoring="sigmoid" if self.sigmoid else "softmax", **self.limits, shared_intermediate=self.shared,
            group=group, replicated=not sequence, device=torch.device("meta"),
        )  # fmt: skip

    def mlp_plan(self, by_columns: Any, by_rows: Any) -> dict[str, Any]:
        return {}  # the module is of this PE's experts already

    def mlp_elements(self) -> int:
        return self.hidden * (self.experts * (3 * self.intermediate + 1) + 3 * self.shared)


DEEPSEEK_LIMITS = {"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5}
CONFIGS = {
    "tiny-moe": MoEConfig(64, 2, 8, 4, 16, 32, 128, experts=8, top_k=2),
    "qwen3-30b-a3b": MoEConfig(2048, 48, 32, 4, 128, 768, 151936, experts=128, top_k=8),
    # DeepSeek-V3's experts, behind attention of Qwen3's kind, which is not DeepSeek's
    "deepseek-v3-experts": MoEConfig(
        7168, 58, 64, 8, 128, 2048, 129280, experts=256, top_k=8, sigmoid=True, limits=DEEPSEEK_LIMITS, shared=2048
    ),
}


class Experts(nn.Module):
    """A layer of experts on one PE, with the parameters of triton_dist.nn.MoE."""

    def __init__(self, c: MoEConfig) -> None:
        super().__init__()
        self.config = c
        self.gate = nn.Parameter(torch.empty(c.experts, c.hidden))
        self.w13 = nn.Parameter(torch.empty(c.experts, 2 * c.intermediate, c.hidden))
        self.w2 = nn.Parameter(torch.empty(c.experts, c.hidden, c.intermediate))
        self.register_buffer("bias", torch.empty(c.experts, dtype=torch.float32) if c.sigmoid else None)
        self.shared_up = nn.Linear(c.hidden, 2 * c.shared, bias=False) if c.shared else None
        self.shared_down = nn.Linear(c.shared, c.hidden, bias=False) if c.shared else None

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The experts of tokens [T, hidden], and their weights."""
        logits = linear(x.float(), self.gate.float())
        if not self.config.sigmoid:
            return softmax_top_k(logits, self.config.top_k)
        return group_limited_top_k(logits, self.config.top_k, bias=self.bias, **self.config.limits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, -2)
        ids, weights = self.route(tokens)
        out = torch.zeros_like(tokens, dtype=torch.float32)
        for expert in range(self.config.experts):
            rows, choices = (ids == expert).nonzero(as_tuple=True)
            gate, up = linear(tokens[rows], self.w13[expert]).chunk(2, -1)
            y = linear(silu(gate) * up, self.w2[expert])
            out = out.index_add(0, rows, y.float() * weights[rows, choices, None])
        out = out.to(x.dtype)
        if self.shared_up is not None and self.shared_down is not None:
            gate, up = self.shared_up(tokens).chunk(2, -1)
            out = out + self.shared_down(silu(gate) * up)
        return out.view(x.shape)
