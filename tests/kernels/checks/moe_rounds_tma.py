"""Rounds by TMA for Hopper GPUs: headers in the CPU world, rows by PE 0 as threads for all PEs; against rounds.

``moe.dispatch`` takes them here as on a Hopper GPU, but for the launch that moves rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy
import torch
from harness import main as run
from harness import raises, some
from moe import FP8, Case, case, computed, dispatched, verify_combine, verify_dispatch
from moe_hopper import gathered

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.hopper import flags
from triton_dist.kernels.moe import arguments, rounds_by_tma, rounds_hopper, rounds_plan
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import Dispatched, begin_of, part_of, parts_of
from triton_dist.kernels.moe.rounds_plan import Plan, lanes_of, plan_for

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
    memory, lanes = Memory(1 << 26), lanes_of(plan, programs)
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

    def map_of(rows: Any) -> Any:
        return Descriptor(rows, (1, config.lines, 32))

    outs, arguments = [], []
    for me, one in enumerate(given):
        x = memory.array(one["x"])
        outs.append(memory.array(torch.full(one["rows"].shape, -1, dtype=torch.int32)))
        kind = gl.int64 if one["ids"].dtype == torch.int64 else gl.int32
        addresses = [memory.address(flags) for flags in there.flags]
        distances = memory.array(torch.tensor([address - addresses[me] for address in addresses]))
        arguments.append((
            map_of(x), map_of(outs[-1]), memory.pointer(memory.array(one["ids"]), kind),
            memory.pointer(memory.array(one["memory"]), gl.int32), map_of(there.slots[me]),
            *(map_of(there.slots[(me + i) % n]) for i in range(1, n)), *(8 - n) * [None], begin_of(routing, "rows"),
            begin_of(routing, "positions"), len(one["x"]),
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


@contextmanager
def on_a_hopper_gpu(plan: Plan | None, rows: torch.Tensor, seen: list[Any] | None = None) -> Iterator[None]:
    """``moe.dispatch`` in rounds takes ``plan``; what moves rows copies ``rows``, and notes it in ``seen``."""

    def move_rows(
        given: Plan, x: torch.Tensor, routing: Routing, found: Dispatched, programs: int, buffer: int
    ) -> None:
        assert (given, programs) == (plan, routing.num_sms)
        found.x.copy_(rows)
        if seen is not None:
            seen.append((x, routing, found, buffer))

    with (
        mock.patch.object(arguments, "plan_of", return_value=plan),
        mock.patch.object(rounds_by_tma, "move_rows", move_rows),
    ):
        yield


def exchange(
    world: Any, chosen: Case, plan: Plan, programs: int, align: int, dtype: torch.dtype
) -> tuple[Routing, dict[str, Any]]:
    """Dispatch by other rounds, and by the kernel in front but for rows. Returns what PE 0 needs to move these."""
    me = world.pe
    expected = dispatched(world, chosen, align=align, num_sms=2, algorithm="portable")
    with on_a_hopper_gpu(plan, expected.x):
        found = dispatched(world, chosen, align=align, num_sms=programs)
    routing, x, ids = found.routing, chosen.x[me], found.routing.ids
    assert routing.plan == plan and expected.routing.plan is None
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
        routing, mine = exchange(world, chosen, plan, programs, align, dtype)
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
    verify_all(world, Plan(2, 2), cases[:2], 1, number=(1 << 31) - 5)


def check_moe_rounds_tma_boxes(world: Any) -> None:
    """Rows that fill the box that TMA moves, and others; with scales."""
    for dtype, hidden, n_scales in ((FP8, 1024, 5), (torch.bfloat16, 1472, 0), (torch.float32, 768, 1)):
        options: dict[str, Any] = {"dtype": dtype, "hidden": hidden, "n_scales": n_scales, "max_tokens": 30}
        chosen = case(world, [30, 11, 25], seed=hidden, top_k=5, **options)
        wide = torch.bfloat16 if dtype == FP8 else dtype
        verify_all(world, Plan(2, 4), [(chosen, 1)], 2, wide)


def check_moe_rounds_tma_in_public(world: Any) -> None:
    """Options as of other rounds: rows of experts, buffers, 16 choices, many scales; and ids that are a mistake."""
    plan = Plan(1, 4)
    chosen = case(world, [5, 0, 4], top_k=9, n_scales=2500, max_tokens=6, routing="some")
    expected = dispatched(world, chosen, num_sms=2)
    for options in some(({"buffer": 3}, {}, {"expert_capacity": 160})):
        given = expected if "buffer" in options or not options else dispatched(world, chosen, num_sms=2, **options)
        with on_a_hopper_gpu(plan, given.x, seen := []):
            found = dispatched(world, chosen, num_sms=3, **options)
        assert len(seen) == 1 and seen[0][3] == options.get("buffer", 0)
        if "expert_capacity" in options:
            assert torch.equal(found.offsets, torch.arange(len(found.offsets), dtype=torch.int32) * 160)
        else:
            verify_dispatch(world, chosen, found, 1)
        y = computed(world, chosen, given, torch.bfloat16)
        assert torch.equal(moe.combine(y, found), moe.combine(y, given)), options
    for algorithm in ("tma", None, 3):
        with raises(ValueError, "algorithm must be auto or portable"):
            dispatched(world, chosen, num_sms=2, algorithm=algorithm)
    with on_a_hopper_gpu(plan, expected.x), raises(ValueError, "give one"):
        dispatched(world, chosen, num_sms=2, sm_margin=1)
    with on_a_hopper_gpu(plan, expected.x), raises(ValueError, "buffer must be at least 0"):
        dispatched(world, chosen, num_sms=2, buffer=-1)


def check_moe_rounds_tma_groups(world: Any) -> None:
    """A group's slots are its own, and experts are those of its members, in any order of ranks."""
    me, n = world.pe, world.n_pes
    group, of_all = world.team_world.split_strided(0, n - 1, 2), communicator_of()
    if me not in (0, n - 1):
        return
    experts, generator = 6, torch.Generator().manual_seed(me)
    x = torch.randint(-8, 8, (7, 64), generator=generator).bfloat16()
    ids = torch.randint(-1, experts, (7, 3), generator=generator)
    weights = torch.rand(7, 3, generator=generator)
    sizes: dict[str, Any] = {"num_experts": experts, "max_tokens": 9, "num_sms": 2, "group": group}
    expected = moe.dispatch(x, ids, weights, **sizes)
    before = of_all.workspace_bytes
    with on_a_hopper_gpu(Plan(1, 4), expected.x):
        found = moe.dispatch(x, ids, weights, **sizes)
    assert n == 2 or of_all.workspace_bytes == before, "a group's slots are its own"
    rows = int(expected.counts.sum())
    for name in ("counts", "offsets", "weights", "choices"):
        assert torch.equal(getattr(found, name)[:rows], getattr(expected, name)[:rows]), name
    y = expected.x * 2
    assert torch.equal(moe.combine(y, found), moe.combine(y, expected))


def check_moe_rounds_tma_takes(world: Any) -> None:
    """What TMA takes: the sizes of DeepSeek-V3, Qwen3 and gradients; what it leaves to load and store."""
    for row_bytes, lanes in ((7168, 2), (14336, 2), (1024, 2), (4096, 2), (28672, 1), (32768, 1)):
        plan = plan_for(2, 8, row_bytes, 24)
        assert plan is not None and (plan.lanes, plan.senders) == (lanes, 0), row_bytes
        assert rounds_plan.stages_of(row_bytes // 128, lanes) >= 5
        assert plan_for(8, 16, row_bytes, 64) == plan._replace(senders=16)
    others = (1, 8, 7168), (9, 8, 7168), (2, 17, 7168), (2, 8, 7184), (2, 8, 896), (2, 8, 32896)
    for n_pes, top_k, row_bytes in others:
        assert plan_for(n_pes, top_k, row_bytes, 24) is None, (n_pes, top_k, row_bytes)
    assert rounds_plan.plan_of(2, 8, 7168, 24) is None, "the CPU world has no TMA"


def check_moe_rounds_tma_are_reserved(world: Any) -> None:
    """A dispatch after ``kernels.reserve`` makes no memory."""
    chosen = case(world, [5, 8], hidden=128, top_k=3)
    plan = Plan(1, 4)
    expected = dispatched(world, chosen, num_sms=2)
    sizes = {"hidden": 128, "num_experts": chosen.num_experts, "top_k": 3, "max_tokens": chosen.max_tokens}
    with on_a_hopper_gpu(plan, expected.x), mock.patch.object(rounds_by_tma, "_lanes") as lanes:
        kernels.reserve("dispatch", dtype=torch.bfloat16, num_sms=2, **sizes)
        assert [call.args[0] for call in lanes.call_args_list] == [plan]
        before = communicator_of().workspace_bytes
        dispatched(world, chosen, num_sms=2)
    assert communicator_of().workspace_bytes == before


if __name__ == "__main__":
    run(globals())
