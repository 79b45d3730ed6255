"""Layers whose experts are shared out and sliced, and layers of tokens that PEs have alike, against one process."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises, some
from moe_layers import OPS, dense, leaf, same, whole

from triton_dist.kernels import moe
from triton_dist.nn import MoE

HIDDEN, INNER, EXPERTS, TOP_K = 8, 12, 4, 2
MAX_TOKENS = 4
SIZES: dict[str, Any] = {"num_experts": EXPERTS, "max_tokens": MAX_TOKENS}
SKEWS = "uniform", "one expert", "none chosen"


def matrices() -> list[torch.Tensor]:
    return [whole(EXPERTS, 2 * INNER, HIDDEN, seed=8) / 4, whole(EXPERTS, HIDDEN, INNER, seed=9) / 4]


def part(pair: Any, expert: tuple[int, int], slice_: tuple[int, int]) -> list[torch.Tensor]:
    """A PE's part of the matrices (or of their gradients): rank and size among those of experts and of slices."""
    w13, w2 = pair
    experts = slice(expert[0] * (EXPERTS // expert[1]), (expert[0] + 1) * (EXPERTS // expert[1]))
    columns = slice(slice_[0] * (INNER // slice_[1]), (slice_[0] + 1) * (INNER // slice_[1]))
    return [w13.unflatten(1, (2, -1))[experts, :, columns].flatten(1, 2), w2[experts, :, columns]]


def tokens_of(number: int, count: int, skew: str) -> list[torch.Tensor]:
    """Tokens, ids and weights, by the number of the set."""
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(0, EXPERTS, (count, TOP_K), generator=generator)
    if skew == "one expert":
        ids.fill_(1)
    if skew == "none chosen":
        ids[::2] = -1
    return [whole(count, HIDDEN, seed=number) / 4, ids, torch.rand(count, TOP_K, generator=generator)]


def alone(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *pair: torch.Tensor) -> torch.Tensor:
    """The layer by one process; -1 is no choice."""
    return dense(x, ids.clamp(min=0), weights * (ids >= 0), *pair)


def grid(world: Any) -> tuple[Any, Any]:
    """The group of slices and that of experts: this PE's row and column."""
    row, column = world.team_world.split_2d(2)
    return row, column


def compare(
    sets: list[list[torch.Tensor]], mine: int, experts: tuple[int, int], slices: tuple[int, int], options: Any
) -> None:
    """The layer and its gradients, of the loss that has every set of tokens once.

    Args:
        sets: the tokens of which there are copies or none; ``mine`` is this PE's.
    """
    all_of = [leaf(matrix) for matrix in matrices()]
    references = [(leaf(x), ids, leaf(weights)) for x, ids, weights in sets]
    outs = [alone(*given, *all_of) for given in references]
    sum((out * whole(*out.shape, seed=i)).sum() for i, out in enumerate(outs)).backward()
    x, ids, weights = sets[mine]
    given = [leaf(x), leaf(weights), *map(leaf, part(matrices(), experts, slices))]
    with torch.no_grad():
        same(moe.moe_layer(given[0], ids, *given[1:], **SIZES, **options), outs[mine])
    out = moe.moe_layer(given[0], ids, *given[1:], **SIZES, **options)
    same(out, outs[mine])
    (out * whole(*out.shape, seed=mine)).sum().backward()
    same(given[0].grad, references[mine][0].grad)
    same(given[1].grad, references[mine][2].grad)
    for found, expected in zip(given[2:], part([m.grad for m in all_of], experts, slices), strict=True):
        same(found.grad, expected)


def check_moe_grid_layers_and_gradients(world: Any) -> None:
    """Every PE has tokens of its own: some none, some as many as there may be."""
    row, column = grid(world)
    where = (column.my_pe, 2), (row.my_pe, 2)
    counts_of = (0, 3, 4, 1), (4, 4, 4, 4), (3, 0, 0, 2)
    for step in some((1, 0, 2), 3):
        sets = [tokens_of(pe + 4 * step, count, SKEWS[step]) for pe, count in enumerate(counts_of[step])]
        options = {"group": column, "tp_group": row, "num_sms": (0, 0, 2)[step]}
        compare(sets, world.pe, *where, options)
    with torch.no_grad():
        pair = part(matrices(), *where)
        found = [
            moe.moe_layer(*sets[world.pe], *pair, **SIZES, **options, algorithm=algorithm)
            for algorithm in ("fused", "separate")
        ]
    same(*found)


def check_moe_grid_of_replicated_tokens(world: Any) -> None:
    """The PEs that share an expert have the same tokens."""
    row, column = grid(world)
    for step in some((1, 0, 2), 3):
        sets = [tokens_of(rank + 2 * step, (MAX_TOKENS, step)[rank], SKEWS[step]) for rank in range(2)]
        options = {"group": column, "tp_group": row, "replicated": True}
        compare(sets, column.my_pe, (column.my_pe, 2), (row.my_pe, 2), options)


def check_moe_replicated_tokens(world: Any) -> None:
    """All PEs have the same tokens: of the world, and of a row of it. Experts are shared out, or sliced."""
    row, _ = grid(world)
    for group, rank, size in ((None, world.pe, 4), (row, row.my_pe, 2)):
        for step in some((1, 0, 2), 3):
            sets = [tokens_of(step, (1, MAX_TOKENS, 0)[step], SKEWS[step])]
            compare(sets, 0, (rank, size), (0, 1), {"group": group, "replicated": True})
        tensor = {"group": group, "replicated": True, "parallel": "tensor"}
        compare([tokens_of(7, 3, "uniform")], 0, (0, 1), (rank, size), tensor)


def check_moe_grid_modules(world: Any) -> None:
    row, column = grid(world)
    for options in ({}, {"replicated": True, "shared_intermediate": 4}):
        torch.manual_seed(0)
        layer = MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, group=column, tp_group=row, **options)
        with torch.no_grad():
            for parameter, value in zip(
                (layer.w13, layer.w2), part(matrices(), (column.my_pe, 2), (row.my_pe, 2)), strict=True
            ):
                assert parameter.shape == value.shape
                parameter.copy_(value)
        x = whole(2, 2, HIDDEN, seed=column.my_pe if options else world.pe)
        tokens = x.view(-1, HIDDEN)
        expected = dense(tokens, *layer.route(tokens), *matrices())
        if layer.shared_up is not None:
            gate, up = layer.shared_up(tokens).chunk(2, dim=-1)
            expected = expected + layer.shared_down(torch.nn.functional.silu(gate) * up)
        same(layer(x), expected.view(2, 2, HIDDEN))
        with torch.no_grad():
            same(layer(x[:, :0]), x[:, :0])


def check_moe_replicated_gradients_of_the_router(world: Any) -> None:
    """Whole on every PE, as in the unsharded layer."""
    torch.manual_seed(0)
    layer = MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, replicated=True)
    with torch.no_grad():
        for parameter, value in zip((layer.w13, layer.w2), part(matrices(), (world.pe, 4), (0, 1)), strict=True):
            parameter.copy_(value)
    x, other = leaf(whole(3, HIDDEN)), leaf(whole(3, HIDDEN))
    layer(x).square().sum().backward()
    gate = leaf(layer.gate)
    of_all = dense(other, *moe.softmax_top_k(other @ gate.t(), TOP_K), *matrices())
    of_all.square().sum().backward()
    same(layer.gate.grad, gate.grad)
    same(x.grad, other.grad)


def check_moe_grid_compiled(world: Any) -> None:
    """With gradients by operators for each step, without by one for the layer."""
    row, column = grid(world)
    for options in ({"group": column, "tp_group": row}, {"replicated": True}):
        torch.manual_seed(0 if "replicated" in options else world.pe)
        layer = MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, **options)
        x = torch.randn(3, HIDDEN)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        with torch.no_grad():
            same(compiled(x), layer(x))
        same(compiled(x), layer(x))
        compiled(x).sum().backward()
        found = [parameter.grad.clone() for parameter in layer.parameters()]
        layer.zero_grad()
        layer(x).sum().backward()
        for ours, parameter in zip(found, layer.parameters(), strict=True):
            same(ours, parameter.grad)


def check_moe_grid_opcheck(world: Any) -> None:
    x, ids, weights = tokens_of(0, 3, "none chosen")
    torch.library.opcheck(OPS.moe_own_choices.default, (ids, 1, 2, EXPERTS))
    options = (EXPERTS, MAX_TOKENS, None, 0, "expert", "auto", True, 0, "", 4, "")
    arguments = x, ids, weights, *part(matrices(), (world.pe, 4), (0, 1))
    torch.library.opcheck(OPS.moe_layer.default, (*arguments, *options))


def check_moe_own_choices(world: Any) -> None:
    """Ids that no layer has stay wrong, so that dispatch refuses them."""
    ids = torch.tensor([[0, 3], [4, -1], [2, -2], [1 << 40, 1]])
    assert OPS.moe_own_choices(ids, 1, 2, EXPERTS).tolist() == [[-1, -1], [2, -1], [1, 2], [2, 0]]
    assert OPS.moe_own_choices(ids.int()[:2].t(), 1, 2, EXPERTS).tolist() == [[-1, 2], [-1, -1]]
    assert OPS.moe_own_choices(ids[:0], 1, 2, EXPERTS).shape == (0, 2)
    with raises(RuntimeError, "an expert id is not in"):
        x, _, weights = tokens_of(0, 2, "uniform")
        pair = part(matrices(), (world.pe, 4), (0, 1))
        moe.moe_layer(x, torch.full((2, TOP_K), EXPERTS), weights, *pair, **SIZES, replicated=True)


def check_moe_grid_mistakes(world: Any) -> None:
    row, column = grid(world)
    x, ids, weights = tokens_of(0, 3, "uniform")
    pair = part(matrices(), (column.my_pe, 2), (row.my_pe, 2))
    both: dict[str, Any] = {"group": column, "tp_group": row}

    def layer(**options: Any) -> torch.Tensor:
        given = {"x": x, "topk_ids": ids, "topk_weights": weights, "w13": pair[0], "w2": pair[1], **SIZES}
        return moe.moe_layer(**given | options)

    one = {"group": row, "tp_group": row}
    with raises(ValueError, "the PEs of group must have the same rank in their tp_groups", "have ranks 0 of 2, 1 of 2"):
        layer(**one)
    with raises(ValueError, "MoE: the PEs of group must have the same rank in their tp_groups"):
        MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, **one)
    with raises(ValueError, "MoE: intermediate must be a multiple of the 2 PEs of tp_group, got 7"):
        MoE(HIDDEN, 7, top_k=TOP_K, **SIZES, **both)
    with raises(ValueError, "MoE: num_experts must be a multiple of the 2 PEs"):
        MoE(HIDDEN, INNER, num_experts=3, top_k=TOP_K, max_tokens=4, **both)
    with raises(ValueError, "tp_group is for parallel='expert'"):
        layer(**both, parallel="tensor")
    with raises(ValueError, "tp_group is for parallel='expert'"):
        MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, **both, parallel="tensor")
    with raises(ValueError, "replicated tokens are not sent", "num_sms 2"):
        layer(group=row, replicated=True, num_sms=2)
    with raises(ValueError, "MoE: replicated tokens are not sent", "algorithm 'fused'"):
        MoE(HIDDEN, INNER, top_k=TOP_K, **SIZES, replicated=True, algorithm="fused")
    with raises(ValueError, "moe_layer: w13 must have the matrices of num_experts / 4 experts, got 2"):
        layer(replicated=True)
    with raises(ValueError, "moe_layer: x has 3 tokens, and max_tokens is 2"):
        layer(**both, max_tokens=2)
    with raises(ValueError, r"moe_layer: topk_ids and topk_weights must be \[3, top_k\]"):
        layer(**both, topk_ids=ids[:2])
    with raises(ValueError, r"moe_layer: x must be \[T, hidden\]"):
        layer(**both, x=x[None])
    with raises(TypeError, "group must be a triton_dist.Team"):
        layer(group=column, tp_group=1)


if __name__ == "__main__":
    run(globals())
