"""Mistakes that only a kernel sees, on every PE, by communicators of their own, since exchanges are not completed."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises

from triton_dist.kernels import Communicator, moe
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.moe.arrival_plan import arrival_plan, refuse_more_rows

_MANY = 16
"""Tokens, four for each of the CPU world's multiprocessors."""


def check_moe_ids_out_of_range(world: Any) -> None:
    for wrong in (world.n_pes, -2, 1 << 40):
        ids = torch.tensor([[0], [wrong]])
        with raises(RuntimeError, r"moe/dispatch_counts\.py:\d+: .*an expert id is not in \[-1, num_experts\)"):
            moe.dispatch(torch.ones(2, 8), ids, num_experts=world.n_pes, max_tokens=2, group=Communicator())
        with raises(RuntimeError, r"moe/dispatch_counts\.py:\d+: .*an expert id is not in \[-1, num_experts\)"):
            moe.dispatch(torch.ones(2, 8), ids, num_experts=world.n_pes, max_tokens=_MANY, group=Communicator())
    with raises(RuntimeError, r"moe/dispatch_counts\.py:\d+: .*an expert id is not in \[-1, num_experts\)"):
        moe.dispatch(torch.ones(2, 8), ids, num_experts=world.n_pes, max_tokens=2, num_sms=4, group=Communicator())


def check_moe_gathered_ids_out_of_range(world: Any) -> None:
    for wrong in (world.n_pes, -2, 1 << 40):
        with raises(RuntimeError, r"moe/gathered_routing\.py:\d+: .*an expert id is not in \[-1, num_experts\)"):
            moe.gather_routing(
                torch.tensor([[0], [wrong]]), num_experts=world.n_pes, max_tokens=2, group=Communicator()
            )


def check_moe_more_rows_than_capacity(world: Any) -> None:
    ids = torch.arange(2 * world.n_pes)[:, None] % world.n_pes
    x = torch.ones(len(ids), 8)
    sizes = {"num_experts": world.n_pes, "capacity": 2 * world.n_pes - 1}
    with raises(RuntimeError, "more rows arrive than capacity"):
        moe.dispatch(x, ids, **sizes, max_tokens=len(ids), group=Communicator())
    with raises(RuntimeError, "more rows arrive than capacity"):
        moe.dispatch(x, ids, **sizes, max_tokens=len(ids), num_sms=4, group=Communicator())
    with raises(RuntimeError, "more rows arrive than capacity"):
        moe.dispatch(x, ids, **sizes, max_tokens=_MANY, group=Communicator())


def check_moe_more_rows_than_capacity_of_a_layer_in_two_kernels(world: Any) -> None:
    ids = torch.arange(2 * world.n_pes)[:, None] % world.n_pes
    rows, b = 2 * world.n_pes - 1, torch.ones(1, 8, 8)

    def routed() -> Any:
        return moe.gather_routing(ids, num_experts=world.n_pes, max_tokens=len(ids), group=Communicator())

    with raises(RuntimeError, "dispatch_grouped_gemm: more rows arrive than capacity"):
        moe.dispatch_grouped_gemm(torch.ones(len(ids), 8), b, routed(), capacity=rows)
    with raises(RuntimeError, "grouped_gemm_combine: a has fewer rows than have come"):
        moe.grouped_gemm_combine(torch.ones(rows, 8), b, routed())
    routing = routed()
    with calling("moe_assertions", None) as comm:  # what Hopper's kernels, which assert nothing, have in front of them
        arrival_plan(comm, routing, rows + 1, 64)
        refuse_more_rows(comm, routing, rows + 1)
        with raises(RuntimeError, "dispatch_grouped_gemm: more rows arrive than capacity"):
            arrival_plan(comm, routing, rows, 64)
        with raises(RuntimeError, "grouped_gemm_combine: a has fewer rows than have come"):
            refuse_more_rows(comm, routing, rows)


if __name__ == "__main__":
    run(globals())
