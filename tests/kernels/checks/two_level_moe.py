"""Dispatch and combine in worlds of pretended hosts, against one process that has all tokens; and what crosses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import moe as of_one_host
import torch
from deep_ep import check_deep_ep_low_latency
from deep_ep import dispatch_and_combine as deep_ep_pair
from harness import main as run
from harness import raises, some
from moe import (
    Case,
    case,
    check_moe_bits_arrive,
    check_moe_capacity,
    check_moe_dtypes_and_scales,
    check_moe_exchanges_in_flight,
    check_moe_few_programs,
    check_moe_mistakes,
    check_moe_room_of_each_expert,
    check_moe_rounds,
    check_moe_rounds_mistakes,
    check_moe_routings,
    check_moe_two_combines_of_one_dispatch,
    computed,
    dispatched,
    exchange,
    verify_dispatch,
)
from moe_layers import (
    check_moe_compiled,
    check_moe_layer_and_gradients,
    check_moe_modules,
    check_moe_opcheck,
    same,
    whole,
)
from two_level import crossing, round_robin

import triton_dist
from triton_dist import environment, kernels
from triton_dist.expert_buffer import buffer
from triton_dist.kernels import Communicator, moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.moe import layer_steps
from triton_dist.kernels.protocols.workspace import Workspace

__all__ = [
    "check_deep_ep_low_latency",
    "check_moe_bits_arrive",
    "check_moe_capacity",
    "check_moe_compiled",
    "check_moe_dtypes_and_scales",
    "check_moe_exchanges_in_flight",
    "check_moe_few_programs",
    "check_moe_layer_and_gradients",
    "check_moe_mistakes",
    "check_moe_modules",
    "check_moe_opcheck",
    "check_moe_room_of_each_expert",
    "check_moe_rounds",
    "check_moe_rounds_mistakes",
    "check_moe_routings",
    "check_moe_two_combines_of_one_dispatch",
]


def verify_combine(members: Any, case: Case, out: torch.Tensor, dtype: torch.dtype) -> None:
    """In the stated order: choices of a PE, PEs of a host, hosts; in float32, and rounded behind each of them."""
    grid = getattr(members, "grid", None) or communicator_of().grid
    local = case.num_experts // members.n_pes
    x, ids, weights = case.x[members.pe].float(), case.ids[members.pe], case.weights[members.pe]
    places = {grid.place_of(rank): rank for rank in range(members.n_pes)}
    total = torch.zeros(x.shape)
    for host in range(grid.hosts):
        of_host = torch.zeros(x.shape)
        for number in range(grid.per_host):
            partial = torch.zeros(x.shape)
            for k in range(ids.shape[1]):
                there = (ids[:, k] >= 0) & (ids[:, k] // local == places[host, number])
                rows = (x * (ids[:, k : k + 1] + 1)).to(dtype).float()
                partial += torch.where(there[:, None], weights[:, k : k + 1] * rows, 0.0)
            of_host += partial.to(dtype).float()
        total += of_host.to(dtype).float()
    assert out.dtype == dtype and torch.equal(out, total.to(dtype)), (out, total)


of_one_host.verify_combine = verify_combine  # the checks of one host expect the sums of several here


def check_several_chunks(world: Any) -> None:
    """Of tokens, also the last ones not whole; PEs without tokens; each half by kernels of its own."""
    cases = (([19, 0, 8, 24], "any"), ([24], "one"), ([9, 17], "some"), ([0], "any"))
    for seed, (tokens, routing) in enumerate(some(cases)):
        chosen = case(world, tokens, top_k=3, routing=routing, seed=seed, max_tokens=24)
        exchange(world, chosen, halves=seed % 2 == 0, align=1 + 3 * (seed % 2))
    chosen = case(world, [24, 3], top_k=3, seed=7, max_tokens=24)
    for num_sms, align in some(((1, 4), (2, 1))):
        exchange(world, chosen, num_sms=num_sms, align=align)
    every = [case(world, [24, 9], top_k=3, seed=seed, max_tokens=24) for seed in some(range(3))]
    for chosen, found in [(chosen, dispatched(world, chosen)) for chosen in every]:  # no combine between them
        verify_dispatch(world, chosen, found, 1)


def check_groups(world: Any) -> None:
    """A column, a row, and PEs that are numbered round-robin over the hosts."""
    per_host = len(world.hosts[0].pes)
    row, column = world.team_world.split_2d(per_host)

    def agree(group: Any) -> None:
        comm = communicator_of(group)
        members = SimpleNamespace(pe=comm.my_rank, n_pes=comm.n_pes, grid=comm.grid)
        for seed, num_sms in enumerate((0, 0, 2)):
            chosen = case(members, [9, 0, 17, 4], top_k=3, seed=seed, max_tokens=17)
            found = dispatched(members, chosen, group=group, num_sms=num_sms)
            verify_dispatch(members, chosen, found, 1)
            out = moe.combine(computed(members, chosen, found, torch.bfloat16), found)
            verify_combine(members, chosen, out, torch.bfloat16)

    agree(column)
    agree(row)
    if world.n_pes % 2 == 0:
        with round_robin(world), Communicator() as comm:
            agree(comm)
    triton_dist.barrier_all()


def check_ids_out_of_range(world: Any) -> None:
    """An error of the kernel before anything is sent; by communicators of their own, which are not used again."""
    for wrong in (world.n_pes, -2, 1 << 40):
        with raises(RuntimeError, r"moe/host_exchange\.py:\d+: .*an expert id is not in \[-1, num_experts\)"):
            ids = torch.tensor([[0], [wrong]])
            moe.dispatch(torch.ones(2, 8), ids, num_experts=world.n_pes, max_tokens=2, group=Communicator())


def check_more_rows_than_capacity(world: Any) -> None:
    ids = torch.arange(2 * world.n_pes)[:, None] % world.n_pes
    sizes = {"num_experts": world.n_pes, "max_tokens": len(ids), "capacity": 2 * world.n_pes - 1}
    with raises(RuntimeError, "more rows arrive than capacity"):
        moe.dispatch(torch.ones(len(ids), 8), ids, **sizes, group=Communicator())


def check_deep_ep(world: Any) -> None:
    deep_ep_pair(world, 8)
    few, buffer._FEW = buffer._FEW, 7
    try:
        deep_ep_pair(world, 8)  # in rounds
    finally:
        buffer._FEW = few


def check_what_auto_takes(world: Any) -> None:
    """Separate steps, where one host would take two kernels, which load and store at all peers."""
    ids = torch.arange(10).view(5, 2) % (2 * world.n_pes)
    given = whole(5, 8, seed=world.pe), ids, torch.ones(5, 2), whole(2, 12, 8, seed=8) / 4, whole(2, 8, 6, seed=9) / 4
    options: dict[str, Any] = {"num_experts": 2 * world.n_pes, "max_tokens": 5}
    expected = moe.moe_layer(*given, **options, algorithm="separate")
    most, layer_steps._FUSED_FROM = layer_steps._FUSED_FROM, 5
    try:
        steps = layer_steps.Steps(2 * world.n_pes, 5, None, 1, "expert", "auto")
        assert [layer_steps.choose(steps, by_tma=False, hosts=n, most=4) for n in (1, 2)] == [
            "fused_hopper",
            "separate",
        ]
        same(moe.moe_layer(*given, **options, num_sms=1), expected)
    finally:
        layer_steps._FUSED_FROM = most


def check_reserved_memory(world: Any) -> None:
    """Reserving makes all that calls of at most this size use."""
    sizes = {"num_experts": 2 * world.n_pes, "max_tokens": 12}
    for num_sms in (0, 2):
        with Communicator() as comm:
            how = sizes | {"num_sms": num_sms, "group": comm}
            made = kernels.reserve("dispatch", "combine", **how, hidden=32, top_k=2, dtype=torch.float32)
            assert min(made.values()) > 0 and sum(made.values()) == comm.workspace_bytes
            count = comm.own(Workspace).made
            for tokens in (12, 0, 1 + world.pe % 3):
                ids = torch.zeros(tokens, 2, dtype=torch.int64)
                received = moe.dispatch(torch.zeros(tokens, 32), ids, **how)
                moe.combine(received.x, received)
            assert comm.own(Workspace).made == count, {*comm.own(Workspace).tensors}


def check_other_functions_of_experts(world: Any) -> None:
    """Those that load and store at peers say so."""
    ids, weights = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1)
    sizes: dict[str, Any] = {"num_experts": world.n_pes, "max_tokens": 2}
    w13, w2 = torch.ones(1, 16, 8), torch.ones(1, 8, 8)
    where = f"PE {world.pe} on host .* cannot reach the memory of PE .* on host .* by load and store"
    with raises(RuntimeError, f"gather_routing: {where}"):
        moe.gather_routing(ids, weights, **sizes)
    for how, experts in (({"algorithm": "fused"}, 1), ({"parallel": "tensor"}, world.n_pes)):
        matrices = w13.expand(experts, -1, -1), w2.expand(experts, -1, -1)
        with raises(RuntimeError, where):
            moe.moe_layer(torch.ones(2, 8), ids, weights, *matrices, **sizes, **how)
    with raises(RuntimeError, f"gather_routing: {where}"):
        kernels.reserve("gather_routing", **sizes, top_k=1)
    triton_dist.barrier_all()


def check_bytes_of_experts_between_hosts(world: Any) -> None:
    """A token crosses once to each host that has one of its experts, with its routing; a row of sums returns."""
    if not environment.get("TRITON_DIST_CHECK"):
        return
    grid, hidden, n_scales, top_k = communicator_of().grid, 40, 3, 3
    for seed, (dtype, routing, num_sms) in enumerate(((torch.bfloat16, "any", 0), (of_one_host.FP8, "some", 2))):
        hidden = 48 if dtype == of_one_host.FP8 else 40
        chosen = case(
            world, [11, 0, 8, 9], top_k=top_k, hidden=hidden, n_scales=n_scales, dtype=dtype, routing=routing,
            seed=seed, max_tokens=11,
        )  # fmt: skip
        local = chosen.num_experts // world.n_pes
        crossing_rows = 0
        for pe, ids in enumerate(chosen.ids):
            for row in ids.tolist():
                hosts = {grid.place_of(e // local)[0] for e in row if e >= 0}
                crossing_rows += len(hosts - {grid.place_of(pe)[0]})
        before = crossing(world)
        found = dispatched(world, chosen, num_sms=num_sms)
        crossed = crossing(world) - before
        message = -(-(hidden * dtype.itemsize + 4 * n_scales + 8 * top_k) // 16) * 16
        assert crossed == crossing_rows * message, f"dispatch: {crossed} bytes crossed, of {crossing_rows} rows"
        y = computed(world, chosen, found, torch.bfloat16)
        before = crossing(world)
        moe.combine(y, found)
        crossed = crossing(world) - before
        assert crossed == crossing_rows * hidden * 2, f"combine: {crossed} bytes crossed, of {crossing_rows} rows"


if __name__ == "__main__":
    run(globals())
