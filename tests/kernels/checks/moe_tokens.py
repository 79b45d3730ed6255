"""Tokens once to each PE, by load and store."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises
from moe import Case, case

from triton_dist.kernels import moe
from triton_dist.kernels.functional import group as groups


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
    """By load and store: few tokens and rounds, scales, PEs without tokens, room for fewer rows than may come, and a
    symmetric result."""
    for i, (counts, routing) in enumerate((([5, 3, 8], "any"), ([0, 8], "some"), ([0], "any"), ([7], "one"))):
        chosen = case(world, counts, top_k=3, routing=routing, seed=i, n_scales=2 * (i % 2), max_tokens=8 + i % 2)
        out = world.empty((world.n_pes * chosen.max_tokens, 64), torch.bfloat16)
        of_fewer: dict[str, Any] = {"algorithm": "portable", "capacity": 9 * world.n_pes + 3}
        ways: tuple[dict[str, Any], ...] = {}, {"num_sms": 0}, of_fewer, {"out": out}
        for options in ways:
            found = dispatched(world, chosen, **options)
            assert (found.x is out) == ("out" in options)
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
    place, known = world.empty((8 * world.n_pes, 64), x.dtype), "dispatch_tokens: out must be"
    for out, message in (
        (torch.empty_like(place), f"{known} symmetric, and it was allocated otherwise: allocate it with"),
        (world.empty((8 * world.n_pes, 64), torch.float32), rf"{known} \[rows, hidden\] of torch.bfloat16"),
        (torch.zeros(place.shape).to_sparse(), "dispatch_tokens: out is of layout torch.sparse_coo, not dense"),
        (place[1:], rf"{known} \[capacity, hidden\] = "),
    ):
        with raises(ValueError, message):
            moe.dispatch_tokens(x, ids, weights, **sizes, out=out)
    with raises(ValueError, "dispatch_tokens: out and x overlap in memory"):
        moe.dispatch_tokens(place[: len(x)], ids, weights, **sizes, out=place)
    with raises(TypeError, "dispatch_tokens: out must be a torch.Tensor, got int"):
        moe.dispatch_tokens(x, ids, weights, **sizes, out=1)  # type: ignore[arg-type]
    with raises(ValueError, "dispatch_tokens: topk_ids must be"):
        moe.dispatch_tokens(x, ids[:1], weights, **sizes)
    with raises(TypeError, "what dispatch_tokens has returned"):
        moe.combine_tokens(x, None)  # type: ignore[arg-type]
    with raises(TypeError, "combine_tokens: y must be a torch.Tensor, got list"):
        moe.combine_tokens([1], moe.dispatch_tokens(x, ids, **sizes))  # type: ignore[arg-type]
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


if __name__ == "__main__":
    run(globals())
