"""Dispatch with grouped GEMM and grouped GEMM with combine, each one kernel, against the steps one after the other."""

from __future__ import annotations

from typing import Any

import torch
from harness import examples, raises, some
from harness import main as run
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.kernels import moe
from triton_dist.nn import MoE

FP8 = torch.float8_e4m3fn


def together(count: int) -> settings:
    """All PEs draw the same."""
    return settings(max_examples=examples(count), deadline=None, derandomize=True, database=None)


class Layer:
    """This PE's tokens, whose number differs between PEs, and its experts' matrices."""

    def __init__(
        self,
        world: Any,
        tokens: list[int],
        *,
        routing: str = "any",
        top_k: int = 2,
        local: int = 2,
        hidden: int = 16,
        inner: int = 24,
        dtype: torch.dtype = torch.bfloat16,
        max_tokens: int = 40,
        seed: int = 0,
    ) -> None:
        n, self.max_tokens, self.experts = tokens[world.pe % len(tokens)], max_tokens, local * world.n_pes
        generator = torch.Generator().manual_seed(100 * seed + world.pe)
        self.ids = torch.randint(0, self.experts, (n, top_k), generator=generator)  # also repeated ones
        if routing == "one":
            self.ids.fill_(self.experts - 1)
        elif routing == "none":
            self.ids.fill_(-1)
        elif routing == "some":
            self.ids[torch.rand(n, top_k, generator=generator) < 0.5] = -1
        elif routing == "even":
            self.ids = self.ids // 2 * 2
        elif routing == "here":
            self.ids = self.ids % local + local * world.pe
        self.x = torch.randn(n, hidden, generator=generator).to(dtype)
        self.weights = torch.rand(n, top_k, generator=generator)
        self.w13 = (torch.randn(local, 2 * inner, hidden, generator=generator) / 4).to(dtype)
        self.w2 = (torch.randn(local, hidden, inner, generator=generator) / 4).to(dtype)

    def __call__(self, algorithm: str, **options: Any) -> torch.Tensor:
        options = {"num_experts": self.experts, "max_tokens": self.max_tokens} | options
        return moe.moe_layer(self.x, self.ids, self.weights, self.w13, self.w2, algorithm=algorithm, **options)


def same(layer: Layer, *, group: Any = None, **options: Any) -> None:
    close(layer("fused", group=group, **options), layer("separate", group=group))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """But for the order in which the CPU's matrix product adds, which depends on a row's place in its tile."""
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 5e-3, torch.float32: 1e-5}[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def check_moe_whole_routings(world: Any) -> None:
    @together(3)
    @given(
        st.lists(st.integers(0, 24), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([1, 3]),
        st.sampled_from(["any", "one", "none", "some", "even", "here"]),
        st.integers(0, 3),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, local: int, routing: str, num_sms: int, seed: int) -> None:
        same(Layer(world, tokens, top_k=top_k, local=local, routing=routing, seed=seed), num_sms=num_sms)

    example()


def check_moe_whole_ends(world: Any) -> None:
    """No tokens, as many as there is room for, all to one expert, and none to any."""
    for tokens, routing in some((([0], "any"), ([40, 0, 0], "one"), ([0, 40, 0], "here"), ([40], "none"))):
        same(Layer(world, tokens, routing=routing))


def check_moe_whole_sizes_and_dtypes(world: Any) -> None:
    for i, (dtype, hidden, inner) in enumerate(
        ((torch.bfloat16, 136, 8), (torch.float16, 8, 72), (torch.float32, 20, 33))
    ):
        same(Layer(world, [37, 0, 40], dtype=dtype, hidden=hidden, inner=inner, seed=i))


def check_moe_layers_by_tokens(world: Any) -> None:
    """``tokens``, whose rows cross once, against rows for each choice; none, repeated and skewed choices."""
    for i, (tokens, routing, options) in enumerate(
        some(
            (
                ([12, 3, 20], "any", {}),
                ([40], "none", {"num_sms": 2}),
                ([0, 40, 0], "some", {"num_sms": 2}),
                ([12, 3, 20], "here", {"num_sms": 1}),
                ([7, 0], "one", {"capacity": 7 * 3 * world.n_pes}),
            )
        )
    ):
        layer = Layer(world, tokens, top_k=3, local=2, routing=routing, seed=i, dtype=torch.float32)
        close(layer("tokens", **options), layer("separate"))
    close(layer("tokens", group=world.team_world), layer("separate"))


def check_moe_whole_calls_that_follow_each_other(world: Any) -> None:
    """Neither tokens nor sums are overwritten before a slow PE has read them, and bits do not depend on programs."""
    layers = [Layer(world, [12, 3, 20], seed=i, routing=("one", "some")[i]) for i in range(2)]
    expected = [layer("separate") for layer in layers]
    first = None
    for options in ({}, {"num_sms": 1}):
        found = [layer("fused", **options) for layer in layers * 2]
        first = first or found
        assert all(torch.equal(one, other) for one, other in zip(found, first, strict=True)), options
    for one, other in zip(found, expected * 2, strict=True):
        close(one, other)


def check_moe_whole_steps(world: Any) -> None:
    """Rows are those of a dispatch, with scales of fp8, and sums may go without weights: all sums are exact."""
    layer = Layer(world, [5, 0, 9], hidden=144, inner=20)
    generator = torch.Generator().manual_seed(world.pe)

    def draw(*shape: int, least: int = -2) -> torch.Tensor:
        return torch.randint(least, 3, shape, generator=generator).float()

    layer.x, layer.w13, layer.w2 = draw(*layer.x.shape), draw(*layer.w13.shape), draw(*layer.w2.shape)
    layer.weights = draw(*layer.weights.shape, least=1) / 4
    sizes: dict[str, Any] = {"num_experts": layer.experts, "max_tokens": layer.max_tokens}
    scales = draw(len(layer.x), 1, least=1)
    x, w = layer.x.to(FP8), layer.w13.to(FP8).transpose(1, 2)
    of_columns = draw(len(w), w.shape[2], least=1)
    received = moe.dispatch(x, layer.ids, layer.weights, scales=scales, **sizes)
    groups, n_rows = (received.offsets, received.counts), int(received.offsets[-1])
    given: dict[str, Any] = {"b_scales": of_columns, "out_dtype": torch.float32}
    expected = moe.grouped_gemm(received.x, w, *groups, a_scales=received.scales, **given)
    routing = moe.gather_routing(layer.ids, layer.weights, **sizes)
    found = moe.dispatch_grouped_gemm(x, w, routing, a_scales=scales, **given)
    assert torch.equal(found[:n_rows], expected[:n_rows])
    back = layer.w2[:, :, :16].transpose(1, 2)
    rows = expected[:, :16].contiguous()
    for weighted in (True, False):
        wanted = moe.combine(moe.grouped_gemm(rows, back, *groups), received, weighted=weighted)
        assert torch.equal(moe.grouped_gemm_combine(rows, back, routing, weighted=weighted), wanted)


def check_moe_whole_capacity(world: Any) -> None:
    """As few rows as come; one less is an error (moe_assertions.py)."""
    layer = Layer(world, [7, 3, 5])
    sizes: dict[str, Any] = {"num_experts": layer.experts, "max_tokens": layer.max_tokens}
    rows = int(moe.dispatch(layer.x, layer.ids, layer.weights, **sizes).offsets[-1])
    same(layer, capacity=max(rows, 1))


def check_moe_whole_groups(world: Any) -> None:
    """Every other PE, and all but the first."""
    for shape in ((0, 2, (world.n_pes + 1) // 2), (world.n_pes > 1, 1, world.n_pes - (world.n_pes > 1))):
        team = world.team_world.split_strided(*map(int, shape))
        if not team:
            continue

        class Members:
            pe, n_pes = team.my_pe, team.n_pes

        same(Layer(Members, [4, 0, 6]), group=team)


def check_moe_whole_modules(world: Any) -> None:
    """Without gradients fused, and with them the steps one after the other."""
    torch.manual_seed(world.pe)
    layer = MoE(16, 24, num_experts=2 * world.n_pes, top_k=2, max_tokens=8, algorithm="fused")
    x = torch.randn(5, 16)
    out = layer(x)
    out.sum().backward()
    assert layer.w13.grad is not None and layer.gate.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(layer(x), out, rtol=1e-5, atol=1e-5)


def check_moe_whole_mistakes(world: Any) -> None:
    layer, n = Layer(world, [2]), world.n_pes
    sizes: dict[str, Any] = {"num_experts": layer.experts, "max_tokens": layer.max_tokens}
    routing = moe.gather_routing(layer.ids, layer.weights, **sizes)
    w = layer.w13.transpose(1, 2)
    with raises(ValueError, "moe_layer: algorithm must be auto, separate, tokens, fused or fused_hopper, got 'fast'"):
        layer("fast")
    with raises(ValueError, "algorithm is for parallel='expert', got 'fused'"):
        layer("fused", parallel="tensor")
    with raises(ValueError, "MoE: algorithm must be", "'fast'"):
        MoE(16, 24, num_experts=n, top_k=1, max_tokens=8, algorithm="fast")
    with raises(ValueError, "half of b's columns are gates, got 47 columns"):
        moe.dispatch_grouped_gemm(layer.x, w[:, :, 1:], routing, swiglu=True)
    with raises(ValueError, "dispatch_grouped_gemm: algorithm must be portable or hopper, got 'tma'"):
        moe.dispatch_grouped_gemm(layer.x, w, routing, algorithm="tma")
    with raises(ValueError, "capacity must be an int, and at least 1, got 0"):
        moe.dispatch_grouped_gemm(layer.x, w, routing, capacity=0)
    with raises(ValueError, "dispatch_grouped_gemm: a has 1 rows, and routing is of 2 tokens"):
        moe.dispatch_grouped_gemm(layer.x[:1], w, routing)
    with raises(TypeError, "grouped_gemm_combine: routing must be what gather_routing returns"):
        moe.grouped_gemm_combine(layer.x, w, layer.ids)
    if n > 1:
        routing = moe.gather_routing(layer.ids, layer.weights, num_experts=layer.experts + 1, max_tokens=40)
        with raises(ValueError, f"dispatch_grouped_gemm: num_experts must be a multiple of the {n} PEs"):
            moe.dispatch_grouped_gemm(layer.x, w, routing)


if __name__ == "__main__":
    run(globals())
