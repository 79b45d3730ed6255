"""Whole layers of experts: dispatch, GEMM, SwiGLU, GEMM, combine, in two kernels or one after the other. See moe.py.

The peer exchanges tokens by NCCL and multiplies with our grouped GEMMs, the first one with SwiGLU; the router is not
timed. There is no bound: which of GEMMs and exchange takes longer depends on the number of tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from harness import Bench, Contender
from moe_cases import Case, Shape, nccl_combine, nccl_dispatch
from moe_slices import differs
from targets import faster_than_peers

from triton_dist.kernels import moe

__all__ = ["LAYERS", "TINY_LAYER", "Layer", "measure_layer", "ours_layer"]


class LayerShape(NamedTuple):
    """Tokens of a PE, and sizes of an expert."""

    name: str
    tokens: int
    hidden: int
    intermediate: int
    num_experts: int
    top_k: int


LAYERS = tuple(
    LayerShape(f"layer, {model}", tokens, *sizes)
    for model, sizes in (("Qwen3-30B-A3B", (2048, 768, 128, 8)), ("DeepSeek-V3", (7168, 2048, 256, 8)))
    for tokens in (64, 512, 2048, 4096, 8192)
)
TINY_LAYER = LayerShape("tiny", 6, 64, 32, 8, 2)


class Layer:
    """This PE's tokens and the matrices of its experts."""

    def __init__(self, shape: LayerShape, world: Any) -> None:
        self.shape, self.world = shape, world
        routed = Shape(shape.name, shape.tokens, shape.hidden, shape.num_experts, shape.top_k)
        self.case = Case(routed, world, torch.bfloat16)
        local = self.case.local
        generator = torch.Generator(world.device).manual_seed(100 + world.pe)

        def draw(*size: int) -> torch.Tensor:
            made = torch.empty(size, dtype=torch.bfloat16, device=world.device)
            for matrix in made:  # one by one, as float32 takes twice the memory
                matrix.copy_(torch.randn(size[1:], generator=generator, device=world.device) / size[-1] ** 0.5)
            return made

        self.w13 = draw(local, 2 * shape.intermediate, shape.hidden)
        self.w2 = draw(local, shape.hidden, shape.intermediate)
        self.offsets, self.counts = self.case.permutation.groups()

    def by_nccl(self) -> Contender:
        to, back = nccl_dispatch(self.case), nccl_combine(self.case)
        groups = self.offsets, self.counts

        def step(_: int) -> torch.Tensor:
            hidden = moe.grouped_gemm(to(), self.w13.transpose(1, 2), *groups, swiglu=True)
            return back(moe.grouped_gemm(hidden, self.w2.transpose(1, 2), *groups))

        return step


def ours_layer(layer: Layer, **options: Any) -> Contender:
    case, shape = layer.case, layer.shape
    options |= {"num_experts": shape.num_experts, "max_tokens": shape.tokens}
    return lambda _: moe.moe_layer(case.x, case.ids, case.weights, layer.w13, layer.w2, **options)


def measure_layer(bench: Bench, shape: LayerShape) -> None:
    layer = Layer(shape, bench.world)
    contenders: dict[str, Contender] = {
        "ours, fused": ours_layer(layer, algorithm="fused"),
        "ours, fused_hopper": ours_layer(layer, algorithm="fused_hopper"),
        "ours, fused_hopper, 40 SMs": ours_layer(layer, algorithm="fused_hopper", num_sms=40),
        "ours, separate, rounds, 24 SMs": ours_layer(layer, algorithm="separate", num_sms=24),
        "ours, tokens, 24 SMs": ours_layer(layer, algorithm="tokens", num_sms=24),
        "ours, tokens, 64 SMs": ours_layer(layer, algorithm="tokens", num_sms=64),
        "ours, separate": ours_layer(layer, algorithm="separate"),
        "NCCL, our grouped GEMM": layer.by_nccl(),
    }
    expected = layer.by_nccl()(0).clone()
    name = (
        f"{shape.name}, {shape.tokens} x {shape.hidden}, {shape.intermediate}, top {shape.top_k} of {shape.num_experts}"
    )
    entry = bench.compare(name, contenders, check=lambda y, _: differs(y, expected), calls=2)
    bench.say(faster_than_peers(entry, 1.3))
