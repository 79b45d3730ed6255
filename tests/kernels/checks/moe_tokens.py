"""Tokens once to each PE: by load and store in the CPU world, and as TMA does, by PE 0 as threads for all PEs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from harness import main as run
from harness import raises
from moe import FP8, Case, case
from moe_hopper import gathered

from triton_dist import kernels
from triton_dist.kernels import moe
from triton_dist.kernels.communicator import calling, communicator_of
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.gemm.hopper import flags
from triton_dist.kernels.moe import (
    combine_ring,
    rounds_hopper,
    rounds_plan,
    token_headers,
    token_ring,
    token_sums_hopper,
    tokens,
    tokens_by_tma,
    tokens_hopper,
)
from triton_dist.kernels.moe.rounds_plan import TokensPlan, sums_plan_for, tokens_plan_for, tokens_plan_of
from triton_dist.kernels.moe.token_batches import tables_of

sys.path.insert(0, str(Path(__file__).parents[1]))
import gluon_threads
from gluon_threads import Descriptor, Memory
from triton.experimental.gluon import language as gl

import triton_dist


def dispatched(world: Any, chosen: Case, **options: Any) -> moe.DispatchedTokens:
    me = world.pe
    arguments = chosen.x[me], chosen.ids[me].to(torch.int32 if chosen.max_tokens % 2 else torch.int64)
    options = {"num_experts": chosen.num_experts, "max_tokens": chosen.max_tokens, "num_sms": 2} | options
    if chosen.scales[0].shape[1]:
        options["scales"] = chosen.scales[me]
    return moe.dispatch_tokens(*arguments, chosen.weights[me], **options)


def verify(world: Any, chosen: Case, found: moe.DispatchedTokens) -> None:
    """Rows are those of sources and tokens, in their order."""
    me, local = world.pe, chosen.num_experts // world.n_pes
    here = [(ids >= 0) & (ids // local == me) for ids in chosen.ids]
    come = [there.any(dim=1) for there in here]

    def all_of(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([part[these] for part, these in zip(parts, come, strict=True)])

    n = int(found.n_rows)
    assert n == sum(int(these.sum()) for these in come)
    assert torch.equal(found.x[:n].view(torch.uint8), all_of(chosen.x).view(torch.uint8))
    ids = [torch.where(h, i - me * local, -1) for h, i in zip(here, chosen.ids, strict=True)]
    weights = [torch.where(h, w, 0.0) for h, w in zip(here, chosen.weights, strict=True)]
    assert found.topk_ids is not None and found.topk_weights is not None
    assert found.topk_ids.dtype == found.routing.ids.dtype
    assert torch.equal(found.topk_ids[:n].long(), all_of(ids)) and (found.topk_ids[n:] == -1).all()
    assert torch.equal(found.topk_weights[:n], all_of(weights)) and (found.topk_weights[n:] == 0).all()
    assert (found.scales is None) == (not chosen.scales[0].shape[1])
    if found.scales is not None:
        assert torch.equal(found.scales[:n], all_of(chosen.scales))


def verify_sums(world: Any, chosen: Case, found: moe.DispatchedTokens, **options: Any) -> None:
    """Rows that PEs multiply by their rank + 1 are added in the order of ranks."""
    me, local = world.pe, chosen.num_experts // world.n_pes
    y = (found.x.float() * (me + 1)).bfloat16()
    out = moe.combine_tokens(y, found, **options)
    with raises(ValueError, "a row for each of dispatched.x"):
        moe.combine_tokens(y[:-1], found)
    x, homes = chosen.x[me].float(), torch.where(chosen.ids[me] >= 0, chosen.ids[me] // local, -1)
    total = torch.zeros(x.shape)
    for pe in range(world.n_pes):
        total += torch.where((homes == pe).any(dim=1, keepdim=True), (x * (pe + 1)).bfloat16().float(), 0.0)
    assert torch.equal(out, total.bfloat16()), (out, total)


def check_moe_tokens(world: Any) -> None:
    """By load and store: few tokens and rounds, scales, PEs without tokens, room for fewer rows than may come."""
    for i, (counts, routing) in enumerate((([5, 3, 8], "any"), ([0, 8], "some"), ([0], "any"), ([7], "one"))):
        chosen = case(world, counts, top_k=3, routing=routing, seed=i, n_scales=2 * (i % 2), max_tokens=8 + i % 2)
        for options in ({}, {"num_sms": 0}, {"algorithm": "portable", "capacity": 9 * world.n_pes + 3}):
            found = dispatched(world, chosen, **options)
            verify(world, chosen, found)
            verify_sums(world, chosen, found)
    assert dispatched(world, chosen).x.shape[0] == world.n_pes * chosen.max_tokens


def check_moe_tokens_by_expert(world: Any) -> None:
    """Rows of an expert are its tokens', in their order; their sums are weighted; room for fewer rows than may come."""
    me = world.pe
    for i, (counts, routing, top_k) in enumerate((([5, 3, 8], "any", 3), ([0, 8], "some", 4), ([0], "any", 1))):
        chosen = case(world, counts, top_k=top_k, routing=routing, seed=i, n_scales=2 * (i % 2), max_tokens=8)
        if i == 0:  # a token chooses an expert twice
            for ids in chosen.ids:
                ids[:, 1:] = ids[:, :1]
        come, local = dispatched(world, chosen), chosen.num_experts // world.n_pes
        n, ids = int(come.n_rows), come.topk_ids
        assert ids is not None and come.topk_weights is not None
        rows = int((ids >= 0).sum())
        grouped = moe.group_by_expert(come, **({} if i else {"capacity": max(1, rows)}))
        assert grouped.counts.tolist() == [int((ids == expert).sum()) for expert in range(local)]
        assert grouped.offsets.tolist() == [0, *grouped.counts.cumsum(0).tolist()]
        tokens = torch.cat([(ids == expert).nonzero()[:, 0] for expert in range(local)])
        assert torch.equal(grouped.x[:rows].view(torch.uint8), come.x[tokens].view(torch.uint8))
        assert (grouped.scales is None) == (come.scales is None)
        if grouped.scales is not None and come.scales is not None:
            assert torch.equal(grouped.scales[:rows], come.scales[tokens])
        y = torch.randn(len(grouped.x), 40, generator=torch.Generator().manual_seed(me))
        summed = moe.sum_over_experts(y, grouped)
        places = grouped.routing.positions[0]
        for token in range(n):
            made = places[token] >= 0
            expected = (y[places[token][made]] * come.topk_weights[token][made, None]).sum(dim=0)
            torch.testing.assert_close(summed[token], expected)
    with raises(TypeError, "what dispatch_tokens has returned"):
        moe.group_by_expert(grouped)  # type: ignore[arg-type]
    with raises(TypeError, "what group_by_expert has returned"):
        moe.sum_over_experts(y, come)  # type: ignore[arg-type]
    with raises(ValueError, "capacity must be at least 1"):
        moe.group_by_expert(come, capacity=0)
    with raises(ValueError, "y must be"):
        moe.sum_over_experts(y[:-1], grouped)
    with raises(ValueError, "a tensor requires a gradient"):
        moe.sum_over_experts(y.clone().requires_grad_(), grouped)
    with raises(ValueError, "received has no ids"):
        moe.group_by_expert(come._replace(topk_ids=None))


def check_moe_tokens_by_expert_that_do_not_fit(world: Any) -> None:
    chosen = case(world, [8], top_k=3, routing="any", max_tokens=8)
    come = dispatched(world, chosen)
    assert come.topk_ids is not None
    rows = int((come.topk_ids >= 0).sum())
    with raises(RuntimeError, "there are more rows than the capacity"):
        moe.group_by_expert(come, capacity=rows - 1)


def check_moe_tokens_are_refused(world: Any) -> None:
    chosen = case(world, [5, 3], top_k=3)
    x, ids, weights = chosen.x[world.pe], chosen.ids[world.pe], chosen.weights[world.pe]
    sizes: dict[str, Any] = {"num_experts": chosen.num_experts, "max_tokens": 8}
    for options, message in (
        ({"num_experts": chosen.num_experts + 1}, "dispatch_tokens: num_experts must be a multiple of"),
        ({"max_tokens": 2}, "dispatch_tokens: x has . tokens, and max_tokens is 2"),
        ({"algorithm": "tma"}, "dispatch_tokens: algorithm must be auto or portable"),
        ({"buffer": -1}, "dispatch_tokens: buffer must be at least 0"),
        ({"scales": torch.ones(1, 1)}, "dispatch_tokens: scales must be"),
    ):
        with raises(ValueError, message):
            moe.dispatch_tokens(x, ids, weights, **sizes | options)
    with raises(ValueError, "dispatch_tokens: topk_ids must be"):
        moe.dispatch_tokens(x, ids[:1], weights, **sizes)
    with raises(TypeError, "what dispatch_tokens has returned"):
        moe.combine_tokens(x, None)  # type: ignore[arg-type]
    found = moe.dispatch_tokens(x, ids, **sizes)
    with raises(ValueError, "a tensor requires a gradient"):
        moe.combine_tokens(found.x.clone().requires_grad_(), found)
    assert found.topk_weights is not None and found.topk_weights.max() == 1.0


# ---- gradients


def check_moe_tokens_gradients(world: Any) -> None:
    """Of tokens and of weights, against one process that has all tokens; PEs without tokens; rounds and not."""
    me, n = world.pe, world.n_pes
    for i, (counts, num_sms) in enumerate((([5, 3, 8], 0), ([0, 8], 2))):
        chosen = case(world, counts, top_k=3, routing="some", seed=i, dtype=torch.float32)
        local = chosen.num_experts // n
        ids, factor = chosen.ids[me], torch.arange(1.0, 65.0)
        expected, given = ([part[me].clone().requires_grad_() for part in (chosen.x, chosen.weights)] for _ in "ab")
        total = torch.zeros_like(expected[0])
        for pe in range(n):
            there = (ids >= 0) & (ids // local == pe)
            weight = (expected[1] * there).sum(dim=1, keepdim=True)
            total = total + torch.where(there.any(dim=1, keepdim=True), expected[0] * (weight + pe), 0.0)
        (total * factor).sum().backward()
        found = moe.functional.dispatch_tokens(
            given[0], ids, given[1], num_experts=chosen.num_experts, max_tokens=chosen.max_tokens, num_sms=num_sms
        )
        assert found.topk_weights is not None and found.topk_ids is not None
        assert not found.x[int(found.n_rows) :].any(), "rows that no token fills are zeros"
        y = found.x * (found.topk_weights.sum(dim=1, keepdim=True) + me)
        out = moe.functional.combine_tokens(y, found)
        (out * factor).sum().backward()
        for tensor, wanted in ((out, total), (given[0].grad, expected[0].grad), (given[1].grad, expected[1].grad)):
            assert tensor is not None and wanted is not None
            torch.testing.assert_close(tensor, wanted)
    with raises(ValueError, "a row for each of the"):
        moe.functional.combine_tokens(y[:-1], found)
    with raises(ValueError, "call functional.combine_tokens"):
        moe.combine_tokens(y, found)
    with raises(TypeError, "what dispatch_tokens returns"):
        moe.functional.combine_tokens(y, None)  # type: ignore[arg-type]


def check_moe_tokens_opcheck(world: Any) -> None:
    """Schemas and fake implementations, also of what TMA moves, of which only shapes are known here."""
    chosen = case(world, [5, 3], top_k=3, dtype=torch.float32, n_scales=2)
    x, ids, weights = chosen.x[world.pe], chosen.ids[world.pe], chosen.weights[world.pe]
    _, name = groups.resolve(None)
    sizes = chosen.num_experts, 8, 8 * world.n_pes, 2, False, world.n_pes, name
    tests = "test_schema", "test_faketensor"
    ops: Any = torch.ops.triton_dist
    for given in ((x, ids, weights, chosen.scales[world.pe]), (x, ids, None, None)):
        torch.library.opcheck(ops.moe_dispatch_tokens.default, (*given, *sizes), test_utils=tests)
    memory = ops.moe_dispatch_tokens(x, ids, weights, None, *sizes)[-1]
    y = torch.ones(8 * world.n_pes, 64)
    torch.library.opcheck(ops.moe_combine_tokens.default, (y, ids, memory, *sizes), test_utils=tests)
    with as_on_a_hopper_gpu(TokensPlan(2, 2)):
        torch.library.opcheck(
            ops.moe_dispatch_tokens.default,
            (x, ids, weights, None, *sizes[:4], True, *sizes[5:]),
            test_utils=("test_faketensor",),
        )


def check_moe_tokens_compiled(world: Any) -> None:
    """In one graph, with gradients."""
    chosen = case(world, [5, 3], top_k=3, dtype=torch.float32)
    ids, weights = chosen.ids[world.pe], chosen.weights[world.pe]
    sizes: dict[str, Any] = {"num_experts": chosen.num_experts, "max_tokens": 8, "num_sms": 2}

    def step(x: torch.Tensor) -> torch.Tensor:
        found = moe.functional.dispatch_tokens(x, ids, weights, **sizes)
        assert found.topk_weights is not None
        return moe.functional.combine_tokens(found.x * found.topk_weights.sum(dim=1, keepdim=True), found)

    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        x = chosen.x[world.pe].clone().requires_grad_()
        out = function(x)
        out.square().sum().backward()
        results.append((out, x.grad))
    for one, other in zip(*results, strict=True):
        assert one is not None and torch.equal(one, other)


# ---- by TMA

LINES_OF_SUMS = 3


class Machine:
    """Memory of all PEs that stays from launch to launch: slots hold garbage, and rounds go on behind ``number``."""

    def __init__(
        self, n_pes: int, lanes: int, lines: int, header: int, max_tokens: int, number: int
    ) -> None:  # fmt: skip
        self.memory, self.lanes = Memory(1 << 26), lanes

        def of_pes(size: tuple[int, ...], value: int) -> list[Any]:
            return [self.memory.array(torch.full(size, value, dtype=torch.int32)) for _ in range(n_pes)]

        self.slots = of_pes((8 * n_pes * lanes * 8, lines, 32), -1)
        self.flags, self.rounds = of_pes((n_pes, lanes), number), of_pes((2 * lanes,), number)
        self.headers = of_pes((2 * n_pes * max_tokens * max(header, 1),), -7)
        self.header_flags, self.calls = of_pes((n_pes, lanes), number), of_pes((lanes,), number)
        self.slots_of_sums = of_pes((8 * n_pes * lanes * 8, LINES_OF_SUMS, 32), -1)
        self.flags_of_sums, self.rounds_of_sums = of_pes((n_pes, lanes), number), of_pes((2 * lanes,), number)

    def distances(self, arrays: list[Any], me: int) -> Any:
        places = [self.memory.address(array) for array in arrays]
        away = torch.tensor([place - places[me] for place in places])
        return self.memory.pointer(self.memory.array(away), gl.int64)

    def words(self, array: Any) -> Any:
        return self.memory.pointer(array, gl.int64 if array.dtype == numpy.int64 else gl.int32)


def move(
    there: Machine, plan: TokensPlan, routing: Any, given: list[dict[str, Any]], n_scales: int, with_ids: bool = True
) -> None:  # fmt: skip
    """Run the kernel on all PEs, and compare what arrives with what has come by load and store."""
    memory, n, lines = there.memory, len(given), there.slots[0].shape[1]
    used, config = memory.used, tokens_by_tma.configuration(plan, routing, lines, n_scales, with_ids)

    def map_of(rows: Any) -> Any:
        return Descriptor(rows, (1, config.lines, 32))

    outs, arguments = [], []
    for me, one in enumerate(given):
        names = "rows", "topk_ids", "topk_weights", "scales"
        outs.append({name: memory.array(torch.full_like(one[f"expected_{name}"], -9)) for name in names})
        arguments.append((
            map_of(memory.array(one["x"])), map_of(outs[-1]["rows"]),
            *(there.words(memory.array(one[name])) for name in ("ids", "weights", "given_scales")),
            *(there.words(outs[-1][name]) for name in names[1:]), there.words(memory.array(one["memory"])),
            map_of(there.slots[me]), *(map_of(there.slots[(me + i) % n]) for i in range(1, n)), *(8 - n) * [None],
            len(one["ids"]), there.words(there.flags[me]), there.distances(there.flags, me),
            there.words(there.rounds[me]), there.words(there.calls[me]), there.words(there.headers[me]),
            there.words(there.header_flags[me]), there.distances(there.headers, me),
            there.distances(there.header_flags, me), len(outs[-1]["rows"]), me, config,
        ))  # fmt: skip
    gluon_threads.run(tokens_hopper.moe_dispatch_tokens_by_tma, there.lanes, arguments)
    for me, (one, out) in enumerate(zip(given, outs, strict=True)):
        end = int(one["n_rows"][0])
        for name, array in out.items():
            if name.startswith("topk") and not with_ids:
                assert (array == -9).all(), f"{name} of PE {me}, which no PE has sent"
                continue
            expected = one[f"expected_{name}"].numpy()
            if name in ("rows", "scales"):  # anything stands behind the last row
                assert (array[end:] == -9).all(), f"{name} of PE {me} behind the last row"
                array, expected = array[:end], expected[:end]
            different = (array != expected).reshape(len(array), -1).any(axis=1).nonzero()[0] if len(array) else []
            assert not len(different), f"{name} {different} of {end} of PE {me}"
    memory.used = used


def add_up(there: Machine, plan: TokensPlan, routing: Any, given: list[dict[str, Any]]) -> None:
    """Run the kernel of sums on all PEs, and compare these with those by load and store."""
    memory, n = there.memory, len(given)
    used = memory.used
    config = tokens_by_tma.configuration_of_sums(plan, routing, LINES_OF_SUMS, torch.float16)

    def map_of(rows: Any) -> Any:
        return Descriptor(rows, (1, config.lines, 32))

    outs, arguments = [], []
    for me, one in enumerate(given):
        outs.append(memory.array(torch.full_like(one["sums"], -9)))
        slots = there.slots_of_sums
        arguments.append((
            map_of(memory.array(one["y"])), there.words(outs[-1]), there.words(memory.array(one["memory"])),
            map_of(slots[me]), *(map_of(slots[(me + i) % n]) for i in range(1, n)), *(8 - n) * [None],
            len(one["ids"]), there.words(there.flags_of_sums[me]), there.distances(there.flags_of_sums, me),
            there.words(there.rounds_of_sums[me]), me, config,
        ))  # fmt: skip
    gluon_threads.run(token_sums_hopper.moe_combine_tokens_by_tma, there.lanes, arguments)
    for me, (one, out) in enumerate(zip(given, outs, strict=True)):
        different = (out != one["sums"].numpy()).any(axis=(1, 2)).nonzero()[0]
        assert not len(different), f"tokens {different} of PE {me}"
    memory.used = used


@contextmanager
def as_on_a_hopper_gpu(plan: TokensPlan) -> Iterator[list[Any]]:
    """Dispatches take ``plan``, whose tables are made; what would move tokens is noted."""
    seen: list[Any] = []
    with (
        mock.patch.object(tokens, "tokens_plan_of", return_value=plan),
        mock.patch.object(tokens_by_tma, "move_tokens", lambda *given: seen.append(given)),
    ):
        yield seen


def verify_again(world: Any, chosen: Case, found: moe.DispatchedTokens, expected: moe.DispatchedTokens) -> None:
    """Other rows go where those went, also if the ids have changed, and by load and store what TMA does not take."""
    n, x = int(expected.n_rows), chosen.x[world.pe].float()
    ids = found.routing.ids.clone()
    found.routing.ids.fill_(-1)
    for handle in (found, expected):
        with calling("again", None) as comm:
            again = tokens.run_again(comm, "again", x, handle, None, 2)
        assert torch.equal(again.x[:n], expected.x[:n].float()) and int(again.n_rows) == n
    found.routing.ids.copy_(ids)


def verify_all(
    world: Any, plan: TokensPlan, cases: list[Case], lanes: int = 2, number: int = 0, *, seed: int = 0
) -> None:  # fmt: skip
    """One dispatch after the other in the same slots."""
    x, n_scales = cases[0].x[0], cases[0].scales[0].shape[1]
    lines = x.shape[1] * x.element_size() // 128
    there = None

    def words(rows: torch.Tensor, lines: int = lines) -> torch.Tensor:
        return rows.view(torch.int32).view(len(rows), lines, 32)

    for chosen in cases:
        expected = dispatched(world, chosen, algorithm="portable")
        verify(world, chosen, expected)
        with as_on_a_hopper_gpu(plan) as seen:
            found = dispatched(world, chosen, num_sms=lanes)
        assert len(seen) == 1 and int(found.n_rows) == int(expected.n_rows)
        verify_again(world, chosen, found, expected)
        verify_sums(world, chosen, found._replace(x=expected.x))
        y = torch.randint(-8, 8, (len(expected.x), LINES_OF_SUMS * 64)).half() / 4
        none = torch.zeros(0, dtype=torch.int32)
        assert expected.topk_ids is not None and expected.topk_weights is not None
        given = gathered(world, {
            "x": words(chosen.x[world.pe]), "ids": found.routing.ids, "memory": found.memory,
            "weights": found.routing.weights.view(torch.int32), "expected_topk_ids": expected.topk_ids,
            "given_scales": chosen.scales[world.pe].view(torch.int32) if n_scales else none,
            "expected_rows": words(expected.x), "expected_topk_weights": expected.topk_weights.view(torch.int32),
            "expected_scales": none if expected.scales is None else expected.scales.view(torch.int32),
            "n_rows": expected.n_rows, "y": words(y, LINES_OF_SUMS),
            "sums": words(moe.combine_tokens(y, expected, algorithm="portable"), LINES_OF_SUMS),
        })  # fmt: skip
        if world.pe == 0:
            config = tokens_by_tma.configuration(plan, found.routing, lines, n_scales, True)
            sizes = world.n_pes, lanes, lines, config.header, chosen.max_tokens, number
            there = there or Machine(*sizes)
            modules = tokens_hopper, token_headers, token_sums_hopper, token_ring, combine_ring, rounds_hopper, flags
            with gluon_threads.interpreted(*modules):
                move(there, plan, found.routing, given, n_scales)
                move(there, plan, found.routing, given, n_scales, with_ids=False)
                add_up(there, plan, found.routing, given)
        triton_dist.barrier_all()


OPTIONS: dict[str, Any] = {"top_k": 3, "local": 2, "max_tokens": 150, "hidden": 192}


def check_moe_tokens_tma(world: Any) -> None:
    """More rounds than slots; ids that repeat and that are -1; and a PE without tokens."""
    kinds = ([150, 3, 41], "any"), ([0, 17, 1], "some")
    verify_all(world, TokensPlan(2, 3), [case(world, n, routing=kind, **OPTIONS) for n, kind in kinds])


def check_moe_tokens_tma_routings(world: Any) -> None:
    """PEs without tokens, and none at all; rings of few rows; numbers that wrap around; scales, and ids of 32 bits."""
    kinds = (
        ([151, 3, 41], "any"), ([0, 70, 1], "some"), ([0, 0, 0], "any"), ([1, 0, 0], "one"), ([151, 151, 151], "one"),
        ([69, 0, 70], "even"), ([23, 9, 17], "none"),
    )  # fmt: skip
    options = OPTIONS | {"max_tokens": 151, "n_scales": 5, "dtype": FP8, "hidden": 256}
    cases = [case(world, counts, routing=kind, seed=seed, **options) for seed, (counts, kind) in enumerate(kinds)]
    verify_all(world, TokensPlan(6, 5), cases, 3)
    verify_all(world, TokensPlan(2, 2), cases[:2], 1, number=(1 << 31) - 5)


def check_moe_tokens_tma_takes(world: Any) -> None:
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
    assert tokens_plan_of(2, 8, 14336) is None, "the CPU world has no TMA"
    chosen = case(world, [5, 3], top_k=3)
    with as_on_a_hopper_gpu(TokensPlan(2, 2)) as seen:
        for options in ({"num_sms": 0}, {"algorithm": "portable"}):
            verify(world, chosen, dispatched(world, chosen, **options))
        assert not seen
        with mock.patch.object(tokens, "MOST_ROWS", world.n_pes * chosen.max_tokens - 1):
            verify(world, chosen, dispatched(world, chosen))
        assert not seen
    tables = tables_of(dispatched(world, chosen).routing)
    assert tables.goes % 2 == 0 and communicator_of().n_pes == world.n_pes


def check_moe_tokens_are_reserved(world: Any) -> None:
    """A call after ``kernels.reserve`` makes no memory, whatever moves the tokens."""
    options: dict[str, Any] = {"top_k": 3, "hidden": 512, "n_scales": 2}
    for by_tma, max_tokens in ((True, 8), (False, 9)):
        chosen = case(world, [5, 8], max_tokens=max_tokens, **options)
        sizes = {"hidden": 512, "num_experts": chosen.num_experts, "top_k": 3, "max_tokens": max_tokens, "num_sms": 2}
        hopper = mock.patch.object(rounds_plan, "is_hopper", return_value=by_tma)
        lanes = mock.patch.object(tokens_by_tma, "RoundsMemory")
        moves = mock.patch.object(tokens_by_tma, "launch", return_value=None)
        with hopper, lanes, moves, mock.patch.object(tokens_by_tma, "map_of"):
            kernels.reserve("dispatch_tokens", "combine_tokens", dtype=torch.bfloat16, scales=2, **sizes)
            before = communicator_of().workspace_bytes
            found = dispatched(world, chosen)
            assert (found.of_ranks is None) == by_tma
            moe.combine_tokens(found.x, found)
            assert communicator_of().workspace_bytes == before
    # Of fp8 whose rows TMA does not take, while it would take those of the results.
    routing = found.routing._replace(num_sms=2)
    x, y = torch.empty(0, 512, dtype=FP8), torch.empty(0, 512, dtype=torch.bfloat16)
    with (
        mock.patch.object(rounds_plan, "is_hopper", return_value=True),
        mock.patch.object(tokens, "make_slots_of_sums_by_tma") as by_tma_slots,
        mock.patch.object(tokens, "make_slots_of_combine") as of_combine,
    ):
        tokens.make_slots_of_sums(communicator_of(), "reserve", x, y, routing)
        assert of_combine.called and not by_tma_slots.called
        tokens.make_slots_of_sums(communicator_of(), "reserve", y, y, routing)
        assert by_tma_slots.called


if __name__ == "__main__":
    run(globals())
