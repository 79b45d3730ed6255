"""Tokens once to each PE by TMA, in Gluon, as the CPU world interprets Hopper's kernels; against load and store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import some
from hopper_rounds import WRAPS, by_plans
from moe import FP8, Case, case
from moe_tokens import dispatched, verify, verify_sums

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator, calling, communicator_of
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.moe import arguments, rounds_plan, tokens, tokens_by_tma
from triton_dist.kernels.moe.rounds_plan import TokensPlan, row_time_for, sums_plan_for, tokens_plan_for
from triton_dist.kernels.moe.token_batches import tables_of

KINDS = (
    ([151, 3, 41], "any"), ([0, 70, 1], "some"), ([0, 0, 0], "any"), ([1, 0, 0], "one"), ([151, 151, 151], "one"),
    ([69, 0, 70], "even"), ([23, 9, 17], "none"),
)  # fmt: skip
"""Tokens of PEs, and where they go. More rounds than slots, and PEs without tokens."""


@contextmanager
def by_tma(plan: TokensPlan, number: int = 0) -> Iterator[Communicator]:
    """Tokens and sums take ``plan``. Rounds go on behind ``number``."""
    with (
        by_plans(None, None, number) as comm,
        mock.patch.object(tokens, "tokens_plan_of", return_value=plan),
        mock.patch.object(tokens, "sums_plan_of", return_value=plan),
    ):
        yield comm


def exchange(world: Any, comm: Any, chosen: Case, lanes: int, *, by_bits: bool = False) -> moe.DispatchedTokens:
    found = dispatched(world, chosen, num_sms=lanes, group=comm)
    assert found.of_ranks is None, "by load and store"
    verify(world, chosen, found)
    if not by_bits:
        verify_sums(world, chosen, found)
    return found


def verify_again(chosen: Case, found: moe.DispatchedTokens, x: torch.Tensor) -> None:
    """Other rows go where those went, also if the ids have changed, and by load and store what TMA does not take."""
    n, ids = int(found.n_rows), found.routing.ids.clone()
    found.routing.ids.fill_(-1)
    with calling("again", None) as comm:
        again = tokens.run_again(comm, "again", x.float(), found, None, 2)
    assert torch.equal(again.x[:n], found.x[:n].float()) and int(again.n_rows) == n
    found.routing.ids.copy_(ids)


def check_hopper_tokens(world: Any) -> None:
    """Ids that repeat and that are -1; rings of few rows; one dispatch after the other in the same slots."""
    options: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 151, "hidden": 192}
    with by_tma(TokensPlan(2, 3)) as comm:
        for seed, (counts, routing) in enumerate(some(KINDS, 3)):
            chosen = case(world, counts, routing=routing, seed=seed, **options)
            exchange(world, comm, chosen, 2)
    chosen = case(world, [20, 3, 9], **options)
    with mock.patch.object(arguments, "sms", return_value=24), by_tma(TokensPlan(2, 3)) as comm:
        for lanes in some((24, 4, 11)):  # of which few have tokens
            exchange(world, comm, chosen, lanes)
    with mock.patch.object(tokens, "tokens_plan_of", return_value=TokensPlan(2, 2)):
        verify_again(chosen, exchange(world, None, chosen, 2), chosen.x[world.pe])


def check_hopper_tokens_of_fp8(world: Any) -> None:
    """Scales, ids of 32 bits, and numbers of rounds that wrap around."""
    options: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 151, "n_scales": 5, "dtype": FP8, "hidden": 256}
    for plan, lanes, number, kinds in ((TokensPlan(6, 5), 3, 0, KINDS), (TokensPlan(2, 2), 1, WRAPS, KINDS[:2])):
        with by_tma(plan, number) as comm:
            for seed, (counts, routing) in enumerate(some(kinds, 3)):
                chosen = case(world, counts, routing=routing, seed=seed, **options)
                exchange(world, comm, chosen, lanes, by_bits=True)


def check_hopper_tokens_to_results(world: Any) -> None:
    """Rows that peers store to a symmetric result; again and again, between dispatches by slots. Of 24 lanes several
    programs, of which some have no tokens, tell each PE what comes. Numbers of calls and of claims wrap around."""
    kinds = (
        (TokensPlan(2, 3), 2, torch.bfloat16, 0, 4, 0), (TokensPlan(2, 2), 3, FP8, 5, 8, WRAPS),
        (TokensPlan(3, 2), 24, FP8, 1, 4, 0),
    )  # fmt: skip
    for plan, lanes, dtype, n_scales, unit, number in kinds:
        options: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 151, "n_scales": n_scales, "dtype": dtype}
        out = world.empty((world.n_pes * 151, 256), dtype)
        with (
            mock.patch.object(arguments, "sms", return_value=24),
            mock.patch.object(tokens_by_tma, "unit_for", return_value=unit),
            by_tma(plan, number) as comm,
        ):
            for seed, (counts, routing) in enumerate(some(KINDS, 3)):
                chosen = case(world, counts, routing=routing, seed=seed, hidden=256, **options)
                for to in (out, None, out)[: 3 if seed % 3 == 0 else 1]:
                    found = dispatched(world, chosen, num_sms=lanes, group=comm, out=to)
                    assert found.of_ranks is None and (found.x is out) == (to is not None)
                    verify(world, chosen, found)
                if dtype != FP8:
                    verify_sums(world, chosen, found)


def check_hopper_tokens_to_results_of_several_kinds(world: Any) -> None:
    """Rows of one size in turn, with other scales and for other numbers of tokens, share slots of early tokens."""
    out = world.empty((world.n_pes * 151, 256), FP8)
    kinds = [{"n_scales": n_scales, "max_tokens": most} for n_scales, most in ((5, 151), (0, 90), (1, 151))]
    with by_tma(TokensPlan(2, 2)) as comm:
        for turn, kind in enumerate(some((0, 1, 2, 0, 0, 2, 1, 0))):
            options: dict[str, Any] = {"top_k": 3, "local": 2, "dtype": FP8, "hidden": 256} | kinds[kind]
            counts = [options["max_tokens"] - 40 * ((pe + turn) % 3) for pe in range(world.n_pes)]
            chosen = case(world, counts, seed=turn, **options)
            to = out[: world.n_pes * chosen.max_tokens]
            verify(world, chosen, dispatched(world, chosen, num_sms=3, group=comm, out=to))


def check_hopper_tokens_as_the_library_takes_them(world: Any) -> None:
    options: dict[str, Any] = {"top_k": 3, "hidden": 512, "max_tokens": 260}
    chosen = (0, [130, 0, 61], "some"), (1, [260, 33, 257], "one")
    for lanes, (seed, counts, routing) in some(tuple(product((1, 3), chosen)), 3):
        exchange(world, None, case(world, counts, routing=routing, seed=seed, **options), lanes)


def check_hopper_tokens_return_throttled(world: Any) -> None:
    """A lane of a combine sends no row before it is due; a PE to which nothing came sends none."""
    options: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 151, "hidden": 192}
    chosen, seconds, lanes = case(world, [33, 33, 33], **options), 0.03, 3
    others = [pe for pe in range(world.n_pes) if pe != world.pe]
    sent = sum(int((chosen.ids[pe] // 2 == world.pe).any(dim=1).sum()) for pe in others)
    with mock.patch.object(tokens_by_tma, "row_time_for", return_value=1e9 * seconds), by_tma(TokensPlan(3, 3)) as comm:
        found = dispatched(world, chosen, num_sms=lanes, group=comm)
        began = time.perf_counter()
        verify_sums(world, chosen, found)
        took = time.perf_counter() - began
        exchange(world, comm, case(world, [0, 9, 0], **options), 1)
    # Lanes end together, when the link has taken all rows; the last token of each goes to all PEs at once.
    assert took > (sent - lanes * len(others)) * seconds > 0.5, (took, sent)


def check_hopper_tokens_take(world: Any) -> None:
    """What TMA takes, what it leaves to load and store, and what its rings take of shared memory."""
    for row_bytes in (14336, 7168, 4096, 1024, 32768, 28672):
        plan = tokens_plan_for(2, 8, row_bytes)
        assert plan is not None and tokens_plan_for(8, 16, row_bytes) == plan
        box = 128 * (1 << (row_bytes // 128 - 1).bit_length())
        assert min(plan) >= 2 and sum(plan) * box <= 232448 - 4096
    for n_pes, top_k, row_bytes in ((1, 8, 7168), (9, 8, 7168), (2, 17, 7168), (2, 8, 7184), (2, 8, 896)):
        assert tokens_plan_for(n_pes, top_k, row_bytes) is None, (n_pes, top_k, row_bytes)
    assert sums_plan_for(2, 16512) is None and sums_plan_for(9, 7168) is None
    sums = sums_plan_for(2, 14336)
    assert sums is not None and sum(sums) == sum(tokens_plan_for(2, 8, 14336) or ())
    # Stores are throttled in rounds of few bytes, unless rows are small.
    for sizes, rate in (((2, 24, 8, 14336), 358e9), ((4, 24, 8, 14336), 350e9), ((2, 24, 8, 4096), 330e9)):
        assert abs(sizes[3] / rate * 1e9 / row_time_for(*sizes) - 1) < 0.01, sizes
    assert row_time_for(4, 64, 8, 14336) == row_time_for(2, 132, 8, 14336) == row_time_for(2, 24, 8, 2048) == 0
    with mock.patch.object(rounds_plan, "is_hopper", return_value=False):
        assert rounds_plan.tokens_plan_of(2, 8, 14336) is rounds_plan.sums_plan_of(2, 14336) is None
    chosen = case(world, [5, 3], top_k=3, hidden=512)
    with mock.patch.object(tokens_by_tma, "move_tokens", wraps=tokens_by_tma.move_tokens) as moved:
        for options in ({"num_sms": 0}, {"algorithm": "portable"}):
            verify(world, chosen, dispatched(world, chosen, **options))
        with mock.patch.object(tokens, "MOST_ROWS", world.n_pes * chosen.max_tokens - 1):
            verify(world, chosen, dispatched(world, chosen))
        assert not moved.called
        found = dispatched(world, chosen)
        assert moved.called
    tables = tables_of(found.routing)
    assert tables.goes % 2 == 0 and communicator_of().n_pes == world.n_pes


def check_hopper_tokens_are_reserved(world: Any) -> None:
    """A call after ``kernels.reserve`` makes no memory, whatever moves the tokens."""
    options: dict[str, Any] = {"top_k": 3, "hidden": 512, "n_scales": 2}
    for takes, max_tokens in ((True, 8), (False, 9)):
        chosen = case(world, [5, 8], max_tokens=max_tokens, **options)
        sizes = {"hidden": 512, "num_experts": chosen.num_experts, "top_k": 3, "max_tokens": max_tokens, "num_sms": 2}
        out = world.empty((world.n_pes * max_tokens, 512), torch.bfloat16)
        with mock.patch.object(rounds_plan, "is_hopper", return_value=takes):
            kernels.reserve("dispatch_tokens", "combine_tokens", dtype=torch.bfloat16, scales=2, **sizes)
            before = communicator_of().workspace_bytes
            dispatched(world, chosen, out=out)
            found = dispatched(world, chosen)
            assert (found.of_ranks is None) == takes
            moe.combine_tokens(found.x, found)
            assert communicator_of().workspace_bytes == before
    # Of fp8 whose rows TMA does not take, while it would take those of the results.
    routing = found.routing._replace(num_sms=2)
    x, y = torch.empty(0, 512, dtype=FP8), torch.empty(0, 512, dtype=torch.bfloat16)
    with (
        mock.patch.object(tokens, "make_slots_of_sums_by_tma") as by_tma_slots,
        mock.patch.object(tokens, "make_slots_of_combine") as of_combine,
    ):
        tokens.make_slots_of_sums(communicator_of(), "reserve", x, y, routing)
        assert of_combine.called and not by_tma_slots.called
        tokens.make_slots_of_sums(communicator_of(), "reserve", y, y, routing)
        assert by_tma_slots.called


def check_hopper_tokens_opcheck(world: Any) -> None:
    chosen = case(world, [5, 3], top_k=3, hidden=512)
    x, ids, weights = chosen.x[world.pe], chosen.ids[world.pe], chosen.weights[world.pe]
    _, name = groups.resolve(None)
    sizes = chosen.num_experts, 8, 8 * world.n_pes, 2, True, world.n_pes, name
    torch.library.opcheck(
        torch.ops.triton_dist.moe_dispatch_tokens.default,
        (x, ids, weights, None, *sizes),
        test_utils=("test_schema", "test_faketensor"),
    )


if __name__ == "__main__":
    run(globals())
