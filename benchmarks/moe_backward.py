"""Forward and backward of layers of experts: gradients of tokens, of their weights and of both matrices. See moe.py.

The peer exchanges rows by NCCL, a row for each choice, with splits and permutations that are computed before, and
multiplies with our grouped GEMMs and their gradients. It has room for the rows that come, and so have our contenders
but the one that says so. "One after the other" is ours without anything beside a combine. The router is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from harness import Bench, Contender
from moe_cases import Case
from moe_layers import Layer, LayerShape
from moe_slices import differs
from targets import faster_than_peers

import triton_dist
from triton_dist.kernels import moe
from triton_dist.kernels.moe import functional

__all__ = ["BACKWARD", "compare_backward", "measure_backward"]

BACKWARD = tuple(LayerShape("backward, Qwen3-30B-A3B", tokens, 2048, 768, 128, 8) for tokens in (512, 4096))
NAMES = "tokens", "weights", "w13", "w2"

AllToAll = Callable[[torch.Tensor, torch.Tensor, list[int], list[int]], object]
"""As ``torch.distributed.all_to_all_single``."""
Gradients = Callable[[], tuple[torch.Tensor, ...]]
"""Computes a layer, and the gradients of what :data:`NAMES` says."""


class Exchange:
    """Rows to the PEs of their experts and back, a row for each choice."""

    def __init__(self, case: Case, all_to_all: AllToAll) -> None:
        self.case, self._all_to_all, self._rows = case, all_to_all, case.permutation
        self.tokens = self._rows.of_token

    def to_experts(self, rows: torch.Tensor) -> torch.Tensor:
        received = rows.new_empty(self.case.rows, rows.shape[1])
        self._all_to_all(received, rows, self._rows.out_splits, self._rows.in_splits)
        return received[self._rows.order]

    def to_tokens(self, y: torch.Tensor) -> torch.Tensor:
        received = y.new_empty(len(self.tokens), y.shape[1])
        self._all_to_all(received, y[self._rows.back], self._rows.in_splits, self._rows.out_splits)
        return received

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.new_zeros(self.case.shape.tokens, rows.shape[1]).index_add_(0, self.tokens, rows)


class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        ctx.exchange = exchange
        return exchange.to_experts(x[exchange.tokens])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        exchange = ctx.exchange
        return exchange.sums(exchange.to_tokens(grad).float()).to(grad.dtype), None


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, weights: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        ctx.exchange, factors = exchange, weights.view(-1)[exchange.case.by_expert][:, None]
        received = exchange.to_tokens(y)
        ctx.save_for_backward(received, factors)
        return exchange.sums(received.float() * factors).to(y.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (received, factors), exchange = ctx.saved_tensors, ctx.exchange
        rows = grad[exchange.tokens].float()
        of_weights = torch.empty_like(factors[:, 0])
        of_weights[exchange.case.by_expert] = (rows * received.float()).sum(dim=-1)
        of_y = exchange.to_experts((rows * factors).to(grad.dtype))
        return of_y, of_weights.view(grad.shape[0], -1), None


class Backward:
    """A layer whose tokens, weights and matrices want gradients."""

    def __init__(self, layer: Layer) -> None:
        self.layer, case = layer, layer.case
        given = case.x, case.weights, layer.w13, layer.w2
        self.leaves = [tensor.detach().requires_grad_() for tensor in given]
        generator = torch.Generator(case.x.device).manual_seed(200 + layer.world.pe)
        self.grad = torch.randn(case.x.shape, generator=generator, device=case.x.device).to(case.x.dtype)
        rows = torch.bincount(case.all_ids.view(-1) // case.local)
        self.capacity = int(rows.max().item())
        """Room for the rows that come to a PE, the most that come to one."""

    def gradients(self, compute: Callable[..., torch.Tensor]) -> Gradients:
        return lambda: torch.autograd.grad(compute(*self.leaves), self.leaves, self.grad)

    def ours(self, **options: Any) -> Gradients:
        case, shape = self.layer.case, self.layer.shape
        sizes = {"num_experts": shape.num_experts, "max_tokens": shape.tokens, "capacity": self.capacity}
        return self.gradients(lambda x, *given: moe.moe_layer(x, case.ids, *given, **(sizes | options)))

    def one_after_the_other(self, **options: Any) -> Gradients:
        """An operator for each step."""
        case, shape = self.layer.case, self.layer.shape
        options |= {"num_experts": shape.num_experts, "max_tokens": shape.tokens, "capacity": self.capacity}

        def compute(x: torch.Tensor, weights: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
            received = functional.dispatch(x, case.ids, weights, **options)
            y = _experts(received.x, *matrices, received.offsets, received.counts)
            return functional.combine(y, received, weights)

        return self.gradients(compute)

    def peer(self, all_to_all: AllToAll) -> Gradients:
        exchange, groups = Exchange(self.layer.case, all_to_all), (self.layer.offsets, self.layer.counts)

        def compute(x: torch.Tensor, weights: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
            rows: torch.Tensor = Dispatch.apply(x, exchange)
            out: torch.Tensor = Combine.apply(_experts(rows, *matrices, *groups), weights, exchange)
            return out

        return self.gradients(compute)


def _experts(
    rows: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor, offsets: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    gate, up = functional.grouped_gemm(rows, w13.transpose(1, 2), offsets, counts).chunk(2, dim=-1)
    hidden = torch.nn.functional.silu(gate) * up
    return functional.grouped_gemm(hidden, w2.transpose(1, 2), offsets, counts)


def _differ(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> str | None:
    for name, ours, theirs in zip(NAMES, found, expected, strict=True):
        if problem := differs(ours, theirs):
            return f"gradient of {name}: {problem}"
    return None


def measure_backward(bench: Bench, shape: LayerShape) -> None:
    case = Backward(Layer(shape, bench.world))
    ways = {
        "ours": case.ours(),
        "ours, rounds, 24 SMs": case.ours(num_sms=24),
        "ours, room for all rows": case.ours(capacity=None),
        "ours, one after the other": case.one_after_the_other(),
        "ours, one after the other, rounds": case.one_after_the_other(num_sms=24),
        "NCCL, our grouped GEMM": case.peer(dist.all_to_all_single),
    }
    expected = [tensor.clone() for tensor in ways["NCCL, our grouped GEMM"]()]

    def step(_: int, compute: Gradients) -> torch.Tensor:
        return compute()[0]

    def check(found: torch.Tensor, _: int) -> str | None:
        return differs(found, expected[0])

    for name, compute in ways.items():  # the other gradients; those of tokens are checked in each graph
        if problem := bench.agree(_differ(compute(), tuple(expected)) or ""):
            bench.wrong.append(f"{shape.name}, {name}: {problem}")
    contenders: dict[str, Contender] = {name: partial(step, compute=compute) for name, compute in ways.items()}
    title = (
        f"{shape.name}, {shape.tokens} x {shape.hidden}, {shape.intermediate}, top {shape.top_k} of {shape.num_experts}"
    )
    entry = bench.compare(title, contenders, check=check, calls=2)
    bench.say(faster_than_peers(entry, 1.3))


def compare_backward(layer: Layer) -> str | None:
    """What is wrong with a contender, in the CPU world, where the peer exchanges rows through symmetric memory."""
    case, world = Backward(layer), layer.world
    rows, hidden = len(layer.case.by_expert), layer.shape.hidden
    sent = triton_dist.zeros(world.n_pes, rows, hidden, dtype=layer.case.x.dtype)

    def all_to_all(out: torch.Tensor, given: torch.Tensor, out_splits: list[int], in_splits: list[int]) -> None:
        for part, mine in zip(sent, given.split(in_splits), strict=True):
            part[: len(mine)] = mine
        triton_dist.barrier_all()
        for pe, part in enumerate(out.split(out_splits)):
            part.copy_(triton_dist.peer(sent, pe)[world.pe, : len(part)])
        triton_dist.barrier_all()

    expected = case.peer(all_to_all)()
    contenders = case.ours(), case.ours(num_sms=2), case.ours(capacity=None), case.one_after_the_other()
    return next((problem for contender in contenders if (problem := _differ(contender(), expected))), None)
