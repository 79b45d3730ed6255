"""Combines in rounds by TMA for Hopper GPUs: PE 0 runs them as threads for all PEs, against those by load and store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises
from moe import Case, case, computed, dispatched, verify_combine
from moe_hopper import gathered

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.hopper import flags
from triton_dist.kernels.moe import combine_batches, combine_by_tma, combine_hopper, combine_ring, rounds_hopper
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import begin_of, parts_of
from triton_dist.kernels.moe.rounds_plan import CombinePlan, combine_plan_for, combine_plan_of

sys.path.insert(0, str(Path(__file__).parents[1]))
import gluon_threads
from gluon_threads import Descriptor, Memory
from triton.experimental.gluon import language as gl

import triton_dist


class Machine:
    """Memory of all PEs that stays from launch to launch: slots hold garbage, and rounds go on behind ``number``."""

    def __init__(self, n_pes: int, lanes: int, plan: CombinePlan, lines: int, number: int) -> None:
        self.memory = Memory(1 << 26)

        def of_pes(size: tuple[int, ...], value: int) -> list[Any]:
            return [self.memory.array(torch.full(size, value, dtype=torch.int32)) for _ in range(n_pes)]

        self.slots = of_pes((4 * n_pes * lanes * plan.batch, lines, 32), -1)
        self.flags, self.rounds = of_pes((n_pes, lanes), number), of_pes((lanes,), number)

    def distances(self, arrays: list[Any], me: int) -> Any:
        places = [self.memory.address(array) for array in arrays]
        away = torch.tensor([place - places[me] for place in places])
        return self.memory.pointer(self.memory.array(away), gl.int64)


def add_up(there: Machine, plan: CombinePlan, routing: Routing, dtype: torch.dtype, given: list[dict[str, Any]],
           weighted: bool) -> None:  # fmt: skip
    """Run the kernel on all PEs, and compare the sums with those of other rounds."""
    memory = there.memory
    used, lines, lanes = memory.used, there.slots[0].shape[1], len(there.rounds[0])
    config = combine_by_tma.configuration(plan, routing, lines, dtype, weighted)

    def map_of(rows: Any) -> Any:
        return Descriptor(rows, (1, plan.box, 32))

    def words(array: Any) -> Any:
        return memory.pointer(array, gl.int32)

    outs, arguments = [], []
    for me, one in enumerate(given):
        outs.append(memory.array(torch.full(one["expected"].shape, -1, dtype=torch.int32)))
        kind = gl.int64 if one["ids"].dtype == torch.int64 else gl.int32
        arguments.append((
            map_of(memory.array(one["y"])), words(memory.array(one["memory"])),
            memory.pointer(memory.array(one["ids"]), kind), words(outs[-1]), map_of(there.slots[me]),
            words(there.slots[me]), words(there.flags[me]), there.distances(there.slots, me),
            there.distances(there.flags, me), words(there.rounds[me]),
            *(begin_of(routing, part) for part in ("rows", "positions", "row_weights")), len(one["ids"]), me, config,
        ))  # fmt: skip
    gluon_threads.run(combine_hopper.moe_combine_rounds_by_tma, lanes, arguments)
    for me, (one, out) in enumerate(zip(given, outs, strict=True)):
        different = (out != one["expected"].numpy()).any(axis=(1, 2)).nonzero()[0]
        assert not len(different), f"tokens {different} of PE {me}"
    memory.used = used


def verify_all(world: Any, plan: CombinePlan, cases: list[Case], lanes: int, dtype: torch.dtype = torch.float16,
               number: int = 0) -> None:  # fmt: skip
    """One combine after the other in the same slots."""
    lines = cases[0].x[0].shape[1] * dtype.itemsize // 128
    there = Machine(world.n_pes, lanes, plan, lines, number) if world.pe == 0 else None

    def words(rows: torch.Tensor) -> torch.Tensor:
        return rows.view(torch.int32).view(len(rows), lines, 32)

    for i, chosen in enumerate(cases):
        found = dispatched(world, chosen, num_sms=2)
        y = computed(world, chosen, found, dtype)
        expected = moe.combine(y, found, weighted=i % 2 == 0)
        if i % 2 == 0:
            verify_combine(world, chosen, expected, dtype)
        given = gathered(world, {
            "y": words(y), "ids": found.routing.ids, "memory": found.memory[: parts_of(found.routing)[-1]],
            "expected": words(expected),
        })  # fmt: skip
        if there is not None:
            with gluon_threads.interpreted(combine_hopper, combine_batches, combine_ring, rounds_hopper, flags):
                add_up(there, plan, found.routing, dtype, given, i % 2 == 0)
        triton_dist.barrier_all()


OPTIONS: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 70, "hidden": 192}


def check_moe_combine_tma(world: Any) -> None:
    """More rounds than slots; ids that repeat and that are -1; and a PE without tokens."""
    kinds = ([70, 3, 41], "any"), ([0, 17, 1], "some")
    verify_all(world, CombinePlan(2, 3, 2, 4), [case(world, n, routing=kind, **OPTIONS) for n, kind in kinds], 2)


def check_moe_combine_tma_routings(world: Any) -> None:
    """PEs without tokens, and none at all; rings of one box; numbers of rounds that wrap around."""
    kinds = (
        ([70, 3, 41], "any"), ([0, 70, 1], "some"), ([0, 0, 0], "any"), ([1, 0, 0], "one"), ([70, 70, 70], "one"),
        ([69, 0, 70], "even"), ([23, 9, 17], "none"),
    )  # fmt: skip
    cases = [case(world, tokens, routing=kind, seed=seed, **OPTIONS) for seed, (tokens, kind) in enumerate(kinds)]
    verify_all(world, CombinePlan(4, 2, 3, 8), cases, 3)
    verify_all(world, CombinePlan(4, 1, 1, 8), cases[:3], 1, number=(1 << 31) - 5)


def check_moe_combine_tma_rows(world: Any) -> None:
    """Rows of several boxes and of part of one; float32; many choices, whose batches are of four tokens."""
    for hidden, top_k, dtype, box in ((704, 5, torch.float16, 4), (96, 2, torch.float32, 2), (64, 9, torch.float16, 1)):
        options: dict[str, Any] = {"hidden": hidden, "top_k": top_k, "max_tokens": 30}
        chosen = case(world, [30, 11, 25], seed=hidden, **options)
        verify_all(world, CombinePlan(box, 5, 4, 4 if top_k > 8 else 8), [chosen, chosen], 2, dtype)


def check_moe_combine_tma_takes(world: Any) -> None:
    """What TMA takes, and what it leaves to load and store; ``algorithm`` is checked."""
    for row_bytes, box in ((14336, 128), (4096, 32), (1024, 8), (32768, 128), (28672, 128)):
        plan = combine_plan_for(2, 8, row_bytes)
        assert plan is not None and (plan.box, plan.batch) == (box, 8), row_bytes
        assert (plan.sent + plan.received) * 2 * box * 128 <= 232448 - 2048 and plan.received >= 3
        most = combine_plan_for(8, 16, row_bytes)
        assert most is not None and most.batch == 4
    others = (1, 8, 7168), (9, 8, 7168), (2, 17, 7168), (2, 8, 7184), (2, 8, 896), (2, 8, 32896)
    for n_pes, top_k, row_bytes in others:
        assert combine_plan_for(n_pes, top_k, row_bytes) is None, (n_pes, top_k, row_bytes)
    assert combine_plan_of(2, 8, 14336) is None, "the CPU world has no TMA"
    found = dispatched(world, case(world, [5, 3], top_k=3), num_sms=2)
    y = found.x.bfloat16()
    assert torch.equal(moe.combine(y, found, algorithm="portable"), moe.combine(y, found))
    for algorithm in ("tma", None):
        with raises(ValueError, "algorithm must be auto or portable"):
            moe.combine(y, found, algorithm=algorithm)  # type: ignore[arg-type]


def check_moe_combine_tma_is_reserved(world: Any) -> None:
    """``kernels.reserve`` makes the memory of the plan that a combine takes."""
    plan = CombinePlan(8, 2, 2, 8)
    with (
        mock.patch.object(combine_by_tma, "combine_plan_of", return_value=plan),
        mock.patch.object(combine_by_tma, "_lanes") as lanes,
    ):
        kernels.reserve("combine", dtype=torch.bfloat16, num_sms=2, hidden=512, num_experts=2 * world.n_pes, top_k=3,
                        max_tokens=9)  # fmt: skip
    assert [(call.args[0], *call.args[2:]) for call in lanes.call_args_list] == [(plan, 8, 2, 0)]
    assert communicator_of().n_pes == world.n_pes


if __name__ == "__main__":
    run(globals())
