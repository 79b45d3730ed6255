"""Rounds by TMA for Hopper GPUs: headers in the CPU world, rows by PE 0 as threads for all PEs; against rounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from harness import main as run
from moe import FP8, Case, case, computed, verify_combine, verify_dispatch
from moe_hopper import gathered

from triton_dist.kernels import moe
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.gemm.hopper import flags
from triton_dist.kernels.moe import arguments, rounds_by_tma, rounds_hopper
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import begin_of, part_of, parts_of, result_of
from triton_dist.kernels.moe.rounds_by_tma import Plan
from triton_dist.kernels.moe.rounds_headers import exchange_headers

sys.path.insert(0, str(Path(__file__).parents[1]))
import gluon_threads
from gluon_threads import Descriptor, Memory
from triton.experimental.gluon import language as gl

import triton_dist


class Machine(NamedTuple):
    """Memory of all PEs that stays from launch to launch."""

    memory: Memory
    slots: list[Any]
    flags: list[Any]
    rounds: list[Any]
    done: list[Any]


def machine(n_pes: int, programs: int, plan: Plan, lines: int, number: int) -> Machine:
    """All slots hold garbage, and the rounds go on behind ``number``."""
    memory, lanes = Memory(1 << 26), rounds_by_tma.lanes_of(plan, programs)
    slots = [memory.array(torch.full((4 * n_pes * lanes * plan.batch, lines, 32), -1, dtype=torch.int32))
             for _ in range(n_pes)]  # fmt: skip
    of_flags = [memory.array(torch.full((n_pes, lanes), number, dtype=torch.int32)) for _ in range(n_pes)]
    return Machine(
        memory,
        slots,
        of_flags,
        [memory.array(torch.full((programs,), number, dtype=torch.int32)) for _ in slots],
        [memory.array(torch.full((lanes,), number, dtype=torch.int32)) for _ in slots],
    )


def move(there: Machine, plan: Plan, routing: Routing, given: list[dict[str, Any]], lines: int, programs: int) -> None:
    """Run the kernel on all PEs, and compare the rows with those of other rounds."""
    n, memory = len(given), there.memory
    used, config = memory.used, rounds_by_tma.configuration(plan, routing, lines)
    loads, stores = config.load_heights, config.store_heights

    def maps(rows: Any, heights: tuple[int, ...]) -> list[Any]:
        return [Descriptor(rows, (1, height, 32)) for height in heights] + [None] * (3 - len(heights))

    outs, arguments = [], []
    for me, one in enumerate(given):
        x = memory.array(one["x"])
        outs.append(memory.array(torch.full(one["rows"].shape, -1, dtype=torch.int32)))
        kind = gl.int64 if one["ids"].dtype == torch.int64 else gl.int32
        addresses = [memory.address(flags) for flags in there.flags]
        distances = memory.array(torch.tensor([address - addresses[me] for address in addresses]))
        peers = [one_map for i in range(1, n) for one_map in maps(there.slots[(me + i) % n], stores)]
        arguments.append((
            *maps(x, loads), *maps(there.slots[me], loads), *maps(outs[-1], stores), *peers, *(8 - n) * [None] * 3,
            memory.pointer(memory.array(one["ids"]), kind), memory.pointer(memory.array(one["memory"]), gl.int32),
            begin_of(routing, "rows"), begin_of(routing, "positions"), len(one["x"]),
            memory.pointer(there.flags[me], gl.int32), memory.pointer(distances, gl.int64),
            memory.pointer(there.rounds[me], gl.int32), plan.senders,
            memory.pointer(there.done[me], gl.int32), me, config,
        ))  # fmt: skip
    gluon_threads.run(rounds_hopper.moe_dispatch_rounds_by_tma, programs, arguments)
    for one, out in zip(given, outs, strict=True):
        different = (out != one["rows"].numpy()).any(axis=(1, 2)) & one["kept"].numpy()
        assert not different.any(), f"rows {numpy.flatnonzero(different)}"
        assert (out[~one["kept"].numpy()] == -1).all(), "a row that belongs to no token"
    memory.used = used


def exchange(
    world: Any, chosen: Case, programs: int, align: int, dtype: torch.dtype, buffer: int = 0
) -> tuple[Routing, dict[str, Any]]:
    """Dispatch by other rounds, and by the kernel in front but for rows. Returns what PE 0 needs to move these."""
    me = world.pe
    ids = chosen.ids[me].to(torch.int32 if me % 2 else torch.int64)
    x, weights = chosen.x[me], chosen.weights[me]
    scales = chosen.scales[me] if chosen.scales[0].shape[1] else None
    expected = moe.dispatch(
        x, ids, weights, num_experts=chosen.num_experts, max_tokens=chosen.max_tokens, align=align, scales=scales,
        num_sms=2,
    )  # fmt: skip
    with calling("dispatch", None) as comm:
        routing = arguments.check_routing(
            comm, "dispatch", x, ids, weights, chosen.num_experts, chosen.max_tokens, align, None, num_sms=programs
        )
        found = result_of(routing, x.dtype, x.shape[1], 0 if scales is None else scales.shape[1], torch.zeros)
        exchange_headers(scales, routing, found, programs, 16, buffer)
    found.x.copy_(expected.x)
    verify_dispatch(world, chosen, found, align)
    verify_combine(world, chosen, moe.combine(computed(world, chosen, found, dtype), found), dtype)
    positions = part_of(found.memory, routing, "positions").view(world.n_pes, chosen.max_tokens, -1)
    kept = torch.zeros(len(found.x), dtype=torch.bool)
    for pe, of_pe in enumerate(chosen.ids):
        rows = positions[pe, : len(of_pe)]
        kept[rows[rows >= 0].long()] = True
    assert kept.sum() == found.counts.sum()

    def words(rows: torch.Tensor) -> torch.Tensor:
        return rows.view(torch.int32).view(len(rows), rows.shape[1] * rows.element_size() // 128, 32)

    return routing, {
        "x": words(x), "ids": ids, "memory": found.memory[: parts_of(routing)[-1]], "rows": words(expected.x),
        "kept": kept,
    }  # fmt: skip


def verify_all(
    world: Any, plan: Plan, cases: list[tuple[Case, int]], programs: int = 3, dtype: torch.dtype = torch.bfloat16,
    number: int = 0,
) -> None:  # fmt: skip
    """One exchange after the other in the same slots."""
    x = cases[0][0].x[0]
    lines = x.shape[1] * x.element_size() // 128
    there = machine(world.n_pes, programs, plan, lines, number) if world.pe == 0 else None
    for chosen, align in cases:
        routing, mine = exchange(world, chosen, programs, align, dtype)
        given = gathered(world, mine)
        if there is not None:
            with gluon_threads.interpreted(rounds_hopper, flags):
                move(there, plan, routing, given, lines, programs)
        triton_dist.barrier_all()


OPTIONS: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 70, "hidden": 192}


def check_moe_rounds_tma(world: Any) -> None:
    """More rounds than slots; ids that repeat and that are -1; and a PE without tokens."""
    kinds = ([70, 3, 41], "any", 1), ([0, 17, 1], "some", 4)
    cases = [(case(world, tokens, routing=kind, **OPTIONS), align) for tokens, kind, align in kinds]
    verify_all(world, Plan(1, 4), cases, 2)


def check_moe_rounds_tma_plans(world: Any) -> None:
    """PEs without tokens, and none at all; multiprocessors that only send; numbers of rounds that wrap around."""
    kinds = (
        ([70, 3, 41], "any", 1), ([0, 70, 1], "some", 4), ([0, 0, 0], "any", 1), ([1, 0, 0], "one", 1),
        ([70, 70, 70], "one", 1), ([69, 0, 70], "even", 1), ([23, 9, 17], "none", 1),
    )  # fmt: skip
    cases = [
        (case(world, tokens, routing=kind, seed=seed, **OPTIONS), align)
        for seed, (tokens, kind, align) in enumerate(kinds)
    ]
    verify_all(world, Plan(1, 4), cases)
    verify_all(world, Plan(1, 4, senders=1), cases)
    verify_all(world, Plan(2, 2, False, False), cases[:2], 1, number=(1 << 31) - 5)


def check_moe_rounds_tma_boxes(world: Any) -> None:
    """Rows of one box, of several, of one that ends behind the row; with scales."""
    sizes = (FP8, 1024, 5, True, False), (torch.bfloat16, 1472, 0, True, True), (torch.float32, 768, 1, False, False)
    for dtype, hidden, n_scales, loads, stores in sizes:
        options: dict[str, Any] = {"dtype": dtype, "hidden": hidden, "n_scales": n_scales, "max_tokens": 30}
        chosen = case(world, [30, 11, 25], seed=hidden, top_k=5, **options)
        wide = torch.bfloat16 if dtype == FP8 else dtype
        verify_all(world, Plan(2, 4, loads, stores), [(chosen, 1)], 2, wide)


if __name__ == "__main__":
    run(globals())
