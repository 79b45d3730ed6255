"""Dispatch and combine by senders and receivers of their own: the results and bits of the other ways."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from hypothesis import given
from hypothesis import strategies as st
from moe import FP8, Case, case, computed, together, verify_combine, verify_dispatch

from triton_dist.kernels import moe
from triton_dist.kernels.moe import split
from triton_dist.kernels.moe.split import Plan

PLANS = (
    Plan(4, 1, 1, 4, 1, 32),
    Plan(4, 1, 1, 4, 1, 64, True),
    Plan(4, 2, 1, 4, 2, 64, True),
    Plan(3, 1, 1, 4, 4, 128),
)


def exchange(world: Any, case: Case, plan: Plan, dtype: torch.dtype = torch.bfloat16, *, align: int = 1) -> None:
    me = world.pe
    options: dict[str, Any] = {"num_experts": case.num_experts, "max_tokens": case.max_tokens, "align": align}
    if case.scales[0].shape[1]:
        options["scales"] = case.scales[me]
    found = split.dispatch(plan, case.x[me], case.ids[me], case.weights[me], **options)
    verify_dispatch(world, case, found, align)
    y = computed(world, case, found, dtype)
    for _ in range(2):
        verify_combine(world, case, split.combine(plan, y, found), dtype)


def check_moe_split_routings(world: Any) -> None:
    @together
    @given(
        st.lists(st.integers(0, 23), min_size=3, max_size=3),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([1, 3]),
        st.sampled_from(["any", "one", "none", "some", "even"]),
        st.sampled_from([1, 4]),
        st.sampled_from(PLANS),
        st.integers(0, 1 << 16),
    )
    def example(tokens: list[int], top_k: int, local: int, routing: str, align: int, plan: Plan, seed: int) -> None:
        chosen = case(world, tokens, top_k=top_k, local=local, routing=routing, seed=seed, max_tokens=23)
        exchange(world, chosen, plan, align=align)

    example()


def check_moe_split_bounds(world: Any) -> None:
    """No tokens on some PEs or on all, and as many as there may be; the same slots again and again."""
    for plan in PLANS:
        for seed, tokens in enumerate(([23, 0, 1], [0, 23, 17], [0, 0, 0], [23, 23, 23])):
            chosen = case(world, tokens, top_k=3, local=5, seed=seed, max_tokens=23)
            exchange(world, chosen, plan)


def check_moe_split_dtypes_and_scales(world: Any) -> None:
    sizes = (FP8, 272, 3), (torch.float16, 8, 0), (torch.float32, 292, 1), (FP8, 16, 1), (torch.bfloat16, 1000, 0)
    for i, (dtype, hidden, n_scales) in enumerate(sizes):
        chosen = case(world, [3, 0, 8], dtype=dtype, hidden=hidden, n_scales=n_scales, seed=hidden)
        exchange(world, chosen, PLANS[i % len(PLANS)], dtype if dtype != FP8 else torch.bfloat16)


def check_moe_split_bits(world: Any) -> None:
    """As of the other ways, with numbers of which each sum is rounded."""
    chosen = case(world, [23, 9, 23], top_k=3, local=4, hidden=136, seed=3, max_tokens=23)
    me = world.pe
    generator = torch.Generator().manual_seed(me)
    x, weights = torch.randn(chosen.x[me].shape, generator=generator).bfloat16(), torch.rand(chosen.weights[me].shape)
    options = {"num_experts": chosen.num_experts, "max_tokens": 23}
    expected = moe.dispatch(x, chosen.ids[me], weights, **options)
    y = torch.randn(expected.x.shape, generator=generator).bfloat16()
    out = moe.combine(y, expected)
    for plan in PLANS:
        found = split.dispatch(plan, x, chosen.ids[me], weights, **options)
        rows = int(found.counts.sum())
        assert torch.equal(found.x[:rows], expected.x[:rows])
        assert torch.equal(found.counts, expected.counts) and torch.equal(found.offsets, expected.offsets)
        assert torch.equal(found.weights[:rows], expected.weights[:rows])
        assert torch.equal(found.choices[:rows], expected.choices[:rows])
        for weighted in (True, False):
            assert torch.equal(
                split.combine(plan, y, found, weighted=weighted), moe.combine(y, expected, weighted=weighted)
            )
        assert torch.equal(split.combine(plan, y, found), out)


if __name__ == "__main__":
    run(globals())
