"""Dispatch and combine of many tokens by so many PEs that what they send is not all loaded ahead."""

from __future__ import annotations

from typing import Any

from harness import main as run
from moe import case
from moe_many import MANY, exchange_twice

from triton_dist.kernels.moe.combine_many import PES_AHEAD


def check_moe_many_pes(world: Any) -> None:
    assert world.n_pes > PES_AHEAD.value
    for top_k, routing in ((3, "any"), (1, "some")):
        chosen = case(world, [11, 0, MANY], top_k=top_k, local=2, routing=routing, max_tokens=MANY)
        exchange_twice(world, chosen, sm_margin=top_k - 1)


if __name__ == "__main__":
    run(globals())
