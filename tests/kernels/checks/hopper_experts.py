"""The Hopper kernels of experts, in Gluon, as the CPU world interprets them: tokens by TMA, grouped GEMMs, layers.

TMA copies and products of tensor cores are done early or late, by chance, so waits and fences that lack would show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import moe as exchanges
import moe_tokens
import torch
from harness import main as run
from moe import FP8, case, computed, verify_combine, verify_dispatch
from moe_layers import dense

from triton_dist.cpu.executor import Executor
from triton_dist.kernels import moe

KINDS: tuple[tuple[list[int], str], ...] = (
    ([130, 0, 61], "some"),
    ([9, 5, 3], "any"),
    ([0], "any"),
    ([260, 33, 257], "one"),
)
"""Tokens of PEs, and where they go. More rounds than slots; none at all."""


def check_hopper_tokens(world: Any) -> None:
    """Once to each PE and back, launch after launch in the same slots, by one lane and by several."""
    forms: tuple[dict[str, Any], ...] = ({"hidden": 512}, {"hidden": 1024, "dtype": FP8, "n_scales": 8})
    for form in forms:
        for seed, (tokens, routing) in enumerate(KINDS):
            chosen = case(world, tokens, top_k=3, routing=routing, seed=seed, max_tokens=260, **form)
            for num_sms in (1, 3):
                found = moe_tokens.dispatched(world, chosen, num_sms=num_sms)
                assert found.of_ranks is None, "by load and store"
                moe_tokens.verify(world, chosen, found)
                if "dtype" not in form:
                    moe_tokens.verify_sums(world, chosen, found)


def check_hopper_rounds(world: Any) -> None:
    """By choice: as on PEs, rows of their experts."""
    for seed, (tokens, routing) in enumerate(KINDS):
        chosen = case(world, tokens, top_k=3, local=2, hidden=512, routing=routing, seed=seed, max_tokens=260)
        for num_sms, align in ((2, 1), (3, 4)):
            found = exchanges.dispatched(world, chosen, num_sms=num_sms, align=align)
            assert found.routing.plan is not None, "by load and store"
            verify_dispatch(world, chosen, found, align)
            y = computed(world, chosen, found, torch.bfloat16)
            verify_combine(world, chosen, moe.combine(y, found), torch.bfloat16)


def check_hopper_layers(world: Any) -> None:
    """Of every algorithm, against one process."""
    n, me, local, hidden, inner = world.n_pes, world.pe, 2, 512, 64
    experts, dtype = local * n, torch.bfloat16
    generator = torch.Generator().manual_seed(1)
    x = [torch.randn(tokens, hidden, generator=generator).to(dtype) for tokens in (150, 0, 37)[:n]]
    ids = [torch.rand(len(one), experts, generator=generator).topk(2, dim=-1).indices for one in x]
    weights = [torch.rand(len(one), 2, generator=generator) for one in x]
    w13 = (torch.randn(experts, 2 * inner, hidden, generator=generator) / 24).to(dtype)
    w2 = (torch.randn(experts, hidden, inner, generator=generator) / 24).to(dtype)
    expected = dense(x[me].float(), ids[me], weights[me], w13.float(), w2.float())
    here = slice(local * me, local * me + local)
    for algorithm, num_sms, kernels in (
        ("separate", 0, {"moe_grouped_gemm_kernel"}),
        ("separate", 2, {"moe_grouped_gemm_kernel", "moe_dispatch_rounds_by_tma", "moe_combine_rounds_by_tma"}),
        ("tokens", 2, {"moe_grouped_gemm_kernel", "moe_dispatch_tokens_by_tma", "moe_combine_tokens_by_tma"}),
        ("fused_hopper", 1, {"moe_dispatch_grouped_gemm_kernel", "moe_grouped_gemm_combine_kernel"}),
    ):
        for _ in range(2):
            with launched() as seen:
                found = moe.moe_layer(
                    x[me], ids[me], weights[me], w13[here], w2[here],
                    num_experts=experts, max_tokens=150, algorithm=algorithm, num_sms=num_sms,
                )  # fmt: skip
            assert kernels <= seen, (algorithm, seen)
            torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)


@contextmanager
def launched() -> Iterator[set[str]]:
    """The names of the kernels that run."""
    run, seen = Executor.run, set()

    def noted(self: Executor, *arguments: Any) -> None:
        seen.add(self.fn.__name__)
        run(self, *arguments)

    with mock.patch.object(Executor, "run", noted):
        yield seen


if __name__ == "__main__":
    run(globals())
