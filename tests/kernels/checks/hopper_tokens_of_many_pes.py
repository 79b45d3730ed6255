"""Tokens once to each PE by TMA, of more PEs than four, which take both words of where tokens go."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import some
from hopper_tokens import KINDS, by_tma
from moe import case
from moe_tokens import dispatched, verify, verify_sums

from triton_dist.kernels.moe.rounds_plan import TokensPlan


def check_hopper_tokens_of_many_pes(world: Any) -> None:
    """To slots and to a symmetric result in turn, and back."""
    options: dict[str, Any] = {"top_k": 4, "local": 2, "max_tokens": 51, "hidden": 192}
    out = world.empty((world.n_pes * 51, 192), torch.bfloat16)
    with by_tma(TokensPlan(3, world.n_pes)) as comm:
        for seed, (counts, routing) in enumerate(some(KINDS[:3])):
            chosen = case(world, [count // 3 for count in counts], routing=routing, seed=seed, **options)
            for to in (None, out):
                found = dispatched(world, chosen, num_sms=2, group=comm, out=to)
                assert found.of_ranks is None, "by load and store"
                verify(world, chosen, found)
                verify_sums(world, chosen, found)


if __name__ == "__main__":
    run(globals())
