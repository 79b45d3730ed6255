"""The tokens and the routing of all PEs that moe.py measures, and dispatch and combine by NCCL.

NCCL's splits and permutations are computed before: what a model would otherwise have to make for each routing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

__all__ = ["FP8", "Case", "Permutation", "Shape", "choices", "nccl_combine", "nccl_dispatch"]

FP8 = torch.float8_e4m3fn


class Shape(NamedTuple):
    name: str
    tokens: int
    hidden: int
    num_experts: int
    top_k: int
    routing: str = "uniform"
    """How tokens choose: ``uniform``; ``zipf``, expert e with a probability that falls as 1 / (1 + e); or ``one PE``,
    whose experts alone are chosen."""


def choices(shape: Shape, n_pes: int, generator: torch.Generator) -> torch.Tensor:
    """Different experts for each token of all PEs, [n_pes, T, top_k]."""
    sizes = n_pes, shape.tokens, shape.num_experts
    scores = torch.rand(sizes, generator=generator)
    if shape.routing == "zipf":  # the largest of log(p) + Gumbel's noise are a draw without replacement
        noise = -(-scores.clamp(1e-20, 1 - 1e-7).log()).log()
        scores = noise - torch.arange(1, shape.num_experts + 1).log()
    elif shape.routing == "one PE":
        scores[..., shape.num_experts // n_pes :] = -1.0
    elif shape.routing != "uniform":
        raise ValueError(f"routing must be uniform, zipf or one PE, got {shape.routing!r}")
    return scores.topk(shape.top_k, dim=-1).indices


class Permutation:
    """Which rows NCCL exchanges for a routing, and their order by expert.

    Args:
        all_ids: [n_pes, T, top_k], of all PEs.
        pe: this one.
        num_experts: of all PEs.
    """

    def __init__(self, all_ids: torch.Tensor, pe: int, num_experts: int) -> None:
        n, self.tokens, self.top_k = all_ids.shape
        local, flat = num_experts // n, all_ids.reshape(n, -1)
        self.by_expert = flat[pe].argsort(stable=True)
        """This PE's choices."""
        self.of_token = self.by_expert // self.top_k
        self.in_splits: list[int] = torch.bincount(flat[pe] // local, minlength=n).tolist()
        here = [(row[row // local == pe]).sort(stable=True).values for row in flat]
        self.out_splits = [len(row) for row in here]
        self.order = torch.cat(here).argsort(stable=True)
        """The rows that come, by expert."""
        self.back = torch.empty_like(self.order)
        self.back[self.order] = torch.arange(len(self.order), device=self.back.device)
        self.rows = sum(self.out_splits)
        self.counts = torch.bincount(torch.cat(here) - pe * local, minlength=local).int()

    def groups(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Offsets and counts of the rows of this PE's experts, as grouped GEMMs take them."""
        return torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0).int()]), self.counts

    def dispatch(self, x: torch.Tensor, received: torch.Tensor | None = None) -> torch.Tensor:
        """The rows of this PE's experts, of tokens [T, hidden]; ``received`` is memory for them."""
        if received is None:
            received = x.new_empty(self.rows, x.shape[1])
        dist.all_to_all_single(received, x[self.of_token], self.out_splits, self.in_splits)
        return received[self.order]

    def combine(self, y: torch.Tensor, factors: torch.Tensor, received: torch.Tensor | None = None) -> torch.Tensor:
        """The weighted sums of tokens, of rows in the order of :meth:`dispatch`."""
        if received is None:
            received = y.new_empty(len(self.by_expert), y.shape[1])
        dist.all_to_all_single(received, y[self.back], self.in_splits, self.out_splits)
        total = torch.zeros(self.tokens, y.shape[1], dtype=torch.float32, device=y.device)
        return total.index_add_(0, self.of_token, received.float() * factors).to(y.dtype)

    def factors(self, weights: torch.Tensor) -> torch.Tensor:
        """Of tokens' weights [T, top_k], as :meth:`combine` takes them."""
        return weights.flatten()[self.by_expert][:, None]


class Case:
    """The tokens and the routing of all PEs, and where each row belongs."""

    def __init__(self, shape: Shape, world: Any, dtype: torch.dtype) -> None:
        self.shape, self.world, self.dtype = shape, world, dtype
        n, self.local = world.n_pes, shape.num_experts // world.n_pes
        generator = torch.Generator().manual_seed(7)
        device = world.device
        ids = choices(shape, n, generator)
        self.all_ids = ids.to(device)
        weights = torch.randint(1, 5, ids.shape, generator=generator) / 4
        self.ids, self.weights = self.all_ids[world.pe].contiguous(), weights[world.pe].to(device)
        self.x = self.tokens_of(world.pe)
        n_scales = shape.hidden // 128 if dtype == FP8 else 0
        self.scales = torch.ones(shape.tokens, n_scales, device=device) if n_scales else None
        flat = self.all_ids.view(n, -1)
        self.permutation = Permutation(self.all_ids, world.pe, shape.num_experts)
        self.by_expert, self.rows = self.permutation.by_expert, self.permutation.rows
        # Whose row each is, in the order of both.
        sources = torch.arange(n, device=device)[:, None].expand_as(flat)[flat // self.local == world.pe]
        tokens = torch.arange(flat.shape[1], device=device).expand_as(flat)[flat // self.local == world.pe]
        sorted_ = flat[flat // self.local == world.pe].argsort(stable=True)
        self.sources, self.source_tokens = sources[sorted_], tokens[sorted_] // shape.top_k

    def tokens_of(self, pe: int) -> torch.Tensor:
        generator = torch.Generator(self.world.device).manual_seed(pe)
        shape, device = (self.shape.tokens, self.shape.hidden), self.world.device
        return torch.randint(-8, 9, shape, generator=generator, device=device).to(self.dtype)

    @property
    def options(self) -> dict[str, Any]:
        return {"num_experts": self.shape.num_experts, "max_tokens": self.shape.tokens, "scales": self.scales}

    def sent_bytes(self) -> float:
        """What this PE sends to others: a row for each pair of a token and a PE."""
        homes = torch.nn.functional.one_hot(self.ids // self.local, self.world.n_pes).amax(dim=1).sum(dim=0)
        homes[self.world.pe] = 0
        row = self.shape.hidden * self.dtype.itemsize + (0 if self.scales is None else 4 * self.scales.shape[1])
        return float(homes.sum().item()) * row

    def received_bytes(self) -> float:
        """What this PE gets from others, which a combine sends back, in rows like those of the dispatch."""
        own = self.all_ids.clone()
        own[self.world.pe] = -1
        here = (own // self.local == self.world.pe) & (own >= 0)
        return float(here.any(dim=-1).sum().item()) * self.shape.hidden * self.dtype.itemsize

    def check_rows(self, result: torch.Tensor, _: int) -> str | None:
        wrong = 0
        for pe in range(self.world.n_pes):
            mine = self.sources == pe
            expected = self.tokens_of(pe)[self.source_tokens[mine]]
            wrong += int((result[: self.rows][mine].float() != expected.float()).sum().item())
        return f"{wrong} elements differ" if wrong else None

    def check_tokens(self, result: torch.Tensor, _: int) -> str | None:
        expected = self.x.float() * self.weights.sum(dim=1, keepdim=True)
        return wrong_tokens(result, expected, 0.02 * expected.abs())


def wrong_tokens(result: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> str | None:
    """Which tokens, of [T, hidden], have errors of more than ``allowed``, and a little for zeros."""
    excess = ((result.float() - expected).abs() - allowed).amax(dim=1)
    wrong = (~(excess <= 1e-3)).nonzero().flatten().tolist()  # also NaN is wrong
    if not wrong:
        return None
    return f"{len(wrong)} tokens are wrong, first {wrong[:4]}, by up to {excess.max().item():.3f} too much"


def nccl_dispatch(case: Case) -> Callable[[], torch.Tensor]:
    received = case.x.new_empty(case.rows, case.shape.hidden).view(torch.uint8)
    return lambda: case.permutation.dispatch(case.x.view(torch.uint8), received).view(case.dtype)


def nccl_combine(case: Case) -> Callable[[torch.Tensor], torch.Tensor]:
    dtype = torch.bfloat16
    received = torch.empty(len(case.by_expert), case.shape.hidden, dtype=dtype, device=case.x.device)
    factors = case.permutation.factors(case.weights)
    return lambda y: case.permutation.combine(y.to(dtype), factors, received)
