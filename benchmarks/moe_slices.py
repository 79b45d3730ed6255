"""Experts of which every PE has a slice: all-gather and grouped GEMM, grouped GEMM and reduce-scatter. See moe.py.

Peers are NCCL's collective and our grouped GEMM, one after the other. Routing is gathered before and not timed, but for
the comparison of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from harness import Bench, Contender

from triton_dist.kernels import moe

__all__ = ["SLICED", "TINY_SLICED", "Slices", "differs", "measure_slices", "ours_gathering", "ours_scattering"]


class SlicedShape(NamedTuple):
    """Tokens of a PE; ``intermediate`` is that of all PEs together."""

    name: str
    tokens: int
    hidden: int
    intermediate: int
    num_experts: int
    top_k: int


SLICED = (
    SlicedShape("slices, Qwen3-30B-A3B", 1024, 2048, 768, 128, 8),
    SlicedShape("slices, Mixtral-8x7B", 1024, 4096, 14336, 8, 2),
    SlicedShape("slices, DeepSeek-V3", 1024, 7168, 2048, 256, 8),
)
TINY_SLICED = SlicedShape("tiny", 6, 64, 64, 8, 2)


class Slices:
    """This PE's tokens and matrices, and what all PEs' results are made of."""

    def __init__(self, shape: SlicedShape, world: Any, dtype: torch.dtype = torch.bfloat16) -> None:
        self.shape, self.world, n = shape, world, world.n_pes
        generator = torch.Generator().manual_seed(7)
        ids = torch.rand(n, shape.tokens, shape.num_experts, generator=generator).topk(shape.top_k, dim=-1).indices
        weights = torch.randint(1, 5, ids.shape, generator=generator) / 4
        device, me = world.device, world.pe
        self.ids, self.weights = ids[me].to(device), weights[me].to(device)
        of_device = torch.Generator(device).manual_seed(me)
        inner = shape.intermediate // n

        def draw(*size: int) -> torch.Tensor:
            return torch.randint(-1, 2, size, generator=of_device, device=device).to(dtype)

        self.x = draw(shape.tokens, shape.hidden)
        self.w13 = draw(shape.num_experts, 2 * inner, shape.hidden).transpose(1, 2)
        self.w2 = draw(shape.num_experts, shape.hidden, inner).transpose(1, 2)
        self.routing = self.gather()
        self.h = draw(self.routing.rows, inner)
        self.tokens = self.routing.tokens.long()

    def gather(self) -> moe.GatheredRouting:
        sizes = {"num_experts": self.shape.num_experts, "max_tokens": self.shape.tokens}
        return moe.gather_routing(self.ids, self.weights, **sizes)

    def gathered_then_multiplied(self, gathered: torch.Tensor) -> torch.Tensor:
        return moe.grouped_gemm(gathered[self.tokens], self.w13, self.routing.offsets, self.routing.counts)

    def multiplied_then_summed(self) -> torch.Tensor:
        """Partial sums of all PEs' tokens: every choice is made here."""
        y = moe.grouped_gemm(self.h, self.w2, self.routing.offsets, self.routing.counts)
        y = y.float() * self.routing.weights[:, None]
        return y[self.routing.positions.long()].sum(dim=2).flatten(0, 1).to(self.x.dtype)

    def nccl_gathering(self) -> Contender:
        gathered = self.x.new_empty(self.world.n_pes * len(self.x), self.shape.hidden)

        def step(_: int) -> torch.Tensor:
            dist.all_gather_into_tensor(gathered, self.x)
            return self.gathered_then_multiplied(gathered)

        return step

    def nccl_scattering(self) -> Contender:
        out = torch.empty_like(self.x)

        def step(_: int) -> torch.Tensor:
            dist.reduce_scatter_tensor(out, self.multiplied_then_summed())
            return out

        return step


def ours_gathering(case: Slices, **options: Any) -> Contender:
    return lambda _: moe.all_gather_grouped_gemm(case.x, case.w13, case.routing, **options)


def ours_scattering(case: Slices, **options: Any) -> Contender:
    return lambda _: moe.grouped_gemm_reduce_scatter(case.h, case.w2, case.routing, **options)


def differs(result: torch.Tensor, expected: torch.Tensor) -> str | None:
    error = (result.float() - expected.float()).abs().max().item()
    largest = expected.float().abs().max().item()
    return f"an error of {error:.3g} where the largest is {largest:.3g}" if not error <= 0.02 * largest else None


def measure_slices(bench: Bench, shape: SlicedShape, rate: float) -> None:
    case, n = Slices(shape, bench.world), bench.world.n_pes
    name = (
        f"{shape.name}, {shape.tokens} x {shape.hidden}, {shape.intermediate} of {shape.num_experts}, top {shape.top_k}"
    )
    bound = (n - 1) * case.x.numel() * case.x.element_size() / rate
    expected = case.nccl_gathering()(0).clone()
    contenders = {
        "ours": ours_gathering(case),
        "ours, 8 SMs send": ours_gathering(case, num_sms=8),
        "ours, 32 SMs send": ours_gathering(case, num_sms=32),
        "NCCL, then our grouped GEMM": case.nccl_gathering(),
    }
    bench.compare(
        f"all_gather_grouped_gemm, {name}", contenders, check=lambda y, _: differs(y, expected), calls=4, bound=bound
    )
    back = case.nccl_scattering()(0).clone()
    contenders = {
        "ours": ours_scattering(case),
        "ours, 16 SMs add": ours_scattering(case, num_sms=16),
        "ours, 48 SMs add": ours_scattering(case, num_sms=48),
        "our grouped GEMM, then NCCL": case.nccl_scattering(),
    }
    bench.compare(
        f"grouped_gemm_reduce_scatter, {name}", contenders, check=lambda y, _: differs(y, back), calls=4, bound=bound
    )
    offsets = case.routing.offsets.clone()
    bench.compare(
        f"gather_routing, {name}",
        {"ours": lambda _: case.gather().offsets},
        check=lambda y, _: differs(y, offsets),
        calls=8,
    )
