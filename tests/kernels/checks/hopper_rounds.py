"""Rounds by TMA, in Gluon: rows by choice to their experts and back, as the CPU world interprets Hopper's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises, some
from moe import FP8, Case, case, computed, dispatched, verify_combine, verify_dispatch

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator, communicator_of
from triton_dist.kernels.moe import arguments, combine_by_tma, rounds_by_tma, rounds_plan
from triton_dist.kernels.moe.rounds_by_tma import RoundsMemory
from triton_dist.kernels.moe.rounds_plan import CombinePlan, Plan, combine_plan_for, plan_for

OPTIONS: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 70, "hidden": 192}
KINDS = (
    ([70, 3, 41], "any", 1), ([0, 70, 1], "some", 4), ([0, 0, 0], "any", 1), ([1, 0, 0], "one", 1),
    ([70, 70, 70], "one", 1), ([69, 0, 70], "even", 1), ([23, 9, 17], "none", 1),
)  # fmt: skip
"""Tokens of PEs, where they go, and the alignment of experts' rows. More rounds than slots, and PEs without tokens."""
WRAPS = (1 << 31) - 5


def cases(kinds: Any = KINDS, **options: Any) -> Iterator[tuple[Any, int]]:
    for seed, (tokens, routing, align) in enumerate(some(kinds, 3)):
        yield {"tokens": tokens, "routing": routing, "seed": seed} | OPTIONS | options, align


@contextmanager
def by_plans(plan: Plan | None, combine: CombinePlan | None, number: int = 0) -> Iterator[Communicator]:
    """Dispatches and combines take these plans. Rounds of what is new go on behind ``number``."""
    rounds = RoundsMemory.rounds

    def numbered(self: RoundsMemory, name: str, words: int) -> torch.Tensor:
        is_new = name not in self._rounds
        found = rounds(self, name, words)
        return found.fill_(number) if is_new else found

    with (
        Communicator() as comm,
        mock.patch.object(arguments, "plan_of", return_value=plan),
        mock.patch.object(combine_by_tma, "combine_plan_of", return_value=combine),
        mock.patch.object(RoundsMemory, "rounds", numbered),
    ):
        yield comm


def exchange(world: Any, comm: Any, chosen: Case, programs: int, align: int, dtype: torch.dtype) -> None:
    found = dispatched(world, chosen, align=align, num_sms=programs, group=comm)
    assert found.routing.plan is not None, "by load and store"
    verify_dispatch(world, chosen, found, align)
    y = computed(world, chosen, found, dtype)
    verify_combine(world, chosen, moe.combine(y, found), dtype)


def verify_all(
    world: Any, plan: Plan, combine: CombinePlan, kinds: Any = KINDS, programs: int = 2, number: int = 0,
    results: torch.dtype = torch.bfloat16, **options: Any,
) -> None:  # fmt: skip
    """One exchange after the other in the same slots."""
    with by_plans(plan, combine, number) as comm:
        for given, align in cases(kinds, **options):
            exchange(world, comm, case(world, **given), programs, align, results)


def check_hopper_rounds(world: Any) -> None:
    verify_all(world, Plan(1, 4), CombinePlan(2, 3, 2, 4))


def check_hopper_rounds_of_other_plans(world: Any) -> None:
    """Multiprocessors that only send; two lanes; rings of one box; numbers of rounds that wrap around."""
    verify_all(world, Plan(1, 4, senders=1), CombinePlan(4, 2, 3, 8), programs=3)
    verify_all(world, Plan(2, 2), CombinePlan(4, 1, 1, 8), KINDS[:3], programs=1, number=WRAPS)


def check_hopper_rounds_of_any_rows(world: Any) -> None:
    """Rows that fill the box that TMA moves, of several boxes and of part of one; many choices; scales."""
    for dtype, hidden, top_k, n_scales, box in some((
        (FP8, 1024, 5, 5, 16), (torch.bfloat16, 1472, 9, 0, 16), (torch.float32, 768, 2, 1, 8),
    )):  # fmt: skip
        wide = torch.bfloat16 if dtype == FP8 else dtype
        combine = CombinePlan(box, 5, 4, 4 if top_k > 8 else 8)
        how: dict[str, Any] = {"dtype": dtype, "hidden": hidden, "top_k": top_k, "n_scales": n_scales, "max_tokens": 30}
        verify_all(world, Plan(2, 4), combine, [([30, 11, 25], "any", 1)] * 2, results=wide, **how)


def check_hopper_rounds_in_public(world: Any) -> None:
    """Options as of other rounds: rows of experts, buffers, 16 choices, many scales; and ids that are a mistake."""
    chosen = case(world, [5, 0, 4], top_k=9, n_scales=2500, max_tokens=6, routing="some")
    with by_plans(Plan(1, 4), None) as comm:
        for options in some(({"expert_capacity": 160}, {"buffer": 3}, {}), 3):
            given = dispatched(world, chosen, num_sms=2, algorithm="portable", **options)
            found = dispatched(world, chosen, num_sms=3, group=comm, **options)
            assert found.routing.plan is not None
            if "expert_capacity" in options:
                assert torch.equal(found.offsets, torch.arange(len(found.offsets), dtype=torch.int32) * 160)
            else:
                verify_dispatch(world, chosen, found, 1)
            y = computed(world, chosen, given, torch.bfloat16)
            assert torch.equal(moe.combine(y, found), moe.combine(y, given)), options
        for algorithm in ("tma", None, 3):
            with raises(ValueError, "algorithm must be auto or portable"):
                dispatched(world, chosen, num_sms=2, algorithm=algorithm)
            with raises(ValueError, "algorithm must be auto or portable"):
                moe.combine(y, found, algorithm=algorithm)
        with raises(ValueError, "give one"):
            dispatched(world, chosen, num_sms=2, sm_margin=1)
        with raises(ValueError, "buffer must be at least 0"):
            dispatched(world, chosen, num_sms=2, buffer=-1)


def check_hopper_rounds_of_groups(world: Any) -> None:
    """A group's slots are its own, and experts are those of its members, in any order of ranks."""
    me, n = world.pe, world.n_pes
    group, of_all = world.team_world.split_strided(0, n - 1, 2), communicator_of()
    if me not in (0, n - 1):
        return
    experts, generator = 6, torch.Generator().manual_seed(me)
    x = torch.randint(-8, 8, (7, 512), generator=generator).bfloat16()
    ids = torch.randint(-1, experts, (7, 3), generator=generator)
    weights = torch.rand(7, 3, generator=generator)
    sizes: dict[str, Any] = {"num_experts": experts, "max_tokens": 9, "num_sms": 2, "group": group}
    expected = moe.dispatch(x, ids, weights, **sizes, algorithm="portable")
    before = of_all.workspace_bytes
    found = moe.dispatch(x, ids, weights, **sizes)
    assert found.routing.plan is not None and expected.routing.plan is None
    assert n == 2 or of_all.workspace_bytes == before, "a group's slots are its own"
    rows = int(expected.counts.sum())
    for name in ("x", "counts", "offsets", "weights", "choices"):
        assert torch.equal(getattr(found, name)[:rows], getattr(expected, name)[:rows]), name
    y = expected.x * 2
    assert torch.equal(moe.combine(y, found), moe.combine(y, expected, algorithm="portable"))


def check_hopper_rounds_take(world: Any) -> None:
    """What TMA takes: the sizes of DeepSeek-V3, Qwen3 and gradients; what it leaves to load and store."""
    for row_bytes, lanes, box in (
        (7168, 2, 64), (14336, 2, 128), (1024, 2, 8), (4096, 2, 32), (28672, 1, 128), (32768, 1, 128),
    ):  # fmt: skip
        plan = plan_for(2, 8, row_bytes, 24)
        assert plan is not None and (plan.lanes, plan.senders) == (lanes, 0), row_bytes
        assert rounds_plan.stages_of(row_bytes // 128, lanes) >= 5
        assert plan_for(8, 16, row_bytes, 64) == plan._replace(senders=16)
        combine = combine_plan_for(2, 8, row_bytes)
        assert combine is not None and (combine.box, combine.batch) == (box, 8), row_bytes
        assert (combine.sent + combine.received) * 2 * box * 128 <= 232448 - 2048 and combine.received >= 3
        most = combine_plan_for(8, 16, row_bytes)
        assert most is not None and most.batch == 4
    others = (1, 8, 7168), (9, 8, 7168), (2, 17, 7168), (2, 8, 7184), (2, 8, 896), (2, 8, 32896)
    for n_pes, top_k, row_bytes in others:
        assert plan_for(n_pes, top_k, row_bytes, 24) is combine_plan_for(n_pes, top_k, row_bytes) is None
    with mock.patch.object(rounds_plan, "is_hopper", return_value=False):
        assert rounds_plan.plan_of(2, 8, 7168, 24) is rounds_plan.combine_plan_of(2, 8, 7168) is None


def check_hopper_rounds_are_reserved(world: Any) -> None:
    """A dispatch and a combine after ``kernels.reserve`` make no memory."""
    chosen = case(world, [5, 8], hidden=512, top_k=3)
    sizes = {"hidden": 512, "num_experts": chosen.num_experts, "top_k": 3, "max_tokens": chosen.max_tokens}
    kernels.reserve("dispatch", "combine", dtype=torch.bfloat16, num_sms=2, **sizes)
    before = communicator_of().workspace_bytes
    with mock.patch.object(rounds_by_tma, "launch", wraps=rounds_by_tma.launch) as launched:
        exchange(world, None, chosen, 2, 1, torch.bfloat16)
    assert launched.called and communicator_of().workspace_bytes == before


if __name__ == "__main__":
    run(globals())
