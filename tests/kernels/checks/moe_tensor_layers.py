"""Layers of which every PE has a slice of each expert, and their gradients, against one process that has all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from harness import main as run
from harness import raises
from moe_layers import OPS, dense, leaf, routed, same, whole

from triton_dist.kernels import moe
from triton_dist.kernels.moe import functional
from triton_dist.kernels.moe import functional_tensor_parallel_gradients as operators
from triton_dist.nn import MoE

INNER = 6
"""Of an expert on each PE."""


def sliced(world: Any, w13: torch.Tensor, w2: torch.Tensor, pe: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A PE's part of the matrices of all experts."""
    gate, up = w13.chunk(2, dim=1)
    mine = slice(pe * INNER, (pe + 1) * INNER)
    return torch.cat([gate[:, mine], up[:, mine]], dim=1), w2[:, :, mine]


def check_moe_tensor_layer_and_gradients(world: Any) -> None:
    n, me, experts = world.n_pes, world.pe, 3
    x, ids, weights = routed(world, 5, experts, 2, 0)
    w13, w2 = whole(experts, 2 * INNER * n, 8, seed=8) / 4, whole(experts, 8, INNER * n, seed=9) / 4
    given = [leaf(x[me]), leaf(weights[me]), *map(leaf, sliced(world, w13, w2, me))]
    sizes: dict[str, Any] = {"num_experts": experts, "max_tokens": 6, "parallel": "tensor"}
    out = moe.moe_layer(given[0], ids[me], *given[1:], **sizes)
    all_of = [leaf(tensor) for tensor in (x, weights, w13, w2)]
    outs = [dense(all_of[0][pe], ids[pe], all_of[1][pe], *all_of[2:]) for pe in range(n)]
    same(out, outs[me])
    with torch.no_grad():
        same(moe.moe_layer(given[0], ids[me], *given[1:], **sizes), outs[me])
    (out * whole(5, 8, seed=me)).sum().backward()
    sum((part * whole(5, 8, seed=pe)).sum() for pe, part in enumerate(outs)).backward()
    same(given[0].grad, all_of[0].grad[me])
    same(given[1].grad, all_of[1].grad[me])
    for mine, expected in zip(given[2:], sliced(world, all_of[2].grad, all_of[3].grad, me), strict=True):
        same(mine.grad, expected)
    with raises(ValueError, "parallel must be expert or tensor"):
        moe.moe_layer(given[0], ids[me], *given[1:], **(sizes | {"parallel": "pipeline"}))
    with raises(ValueError, "capacity is for parallel='expert'"):
        moe.moe_layer(given[0], ids[me], *given[1:], **sizes, capacity=8)


def check_moe_tensor_layers_of_pes_without_tokens(world: Any) -> None:
    """The gradient of a sum over no rows has strides of zeros."""
    n, me = world.n_pes, world.pe
    w13, w2 = whole(3, 2 * INNER * n, 8, seed=1) / 4, whole(3, 8, INNER * n, seed=2) / 4
    sizes: dict[str, Any] = {"num_experts": 3, "max_tokens": 6, "parallel": "tensor"}
    for tokens in ([0] * n, list(range(n))):
        x = [leaf(whole(count, 8, seed=pe)) for pe, count in enumerate(tokens)]
        ids = [torch.arange(2 * count).view(-1, 2) % 3 for count in tokens]
        given = [leaf(x[me].detach()), leaf(torch.ones(tokens[me], 2)), *map(leaf, sliced(world, w13, w2, me))]
        moe.moe_layer(given[0], ids[me], *given[1:], **sizes).sum().backward()
        all_of = leaf(w13), leaf(w2)
        for tokens_of, chosen in zip(x, ids, strict=True):
            dense(tokens_of, chosen, torch.ones(len(chosen), 2), *all_of).sum().backward()
        same(given[0].grad, x[me].grad)
        for mine, expected in zip(given[2:], sliced(world, all_of[0].grad, all_of[1].grad, me), strict=True):
            same(mine.grad, expected)
        without_rows = torch.empty(8, 4).t()[:0]
        with torch.no_grad():
            assert moe.moe_layer(without_rows, ids[0][:0], torch.ones(0, 2), *given[2:], **sizes).shape == (0, 8)


def check_moe_tensor_gradients_are_those_of_separate_calls(world: Any) -> None:
    """The same bits as of a grouped_gemm_reduce_scatter, an all_gather and a local GEMM, one after the other.

    Also where PEs have no tokens.
    """
    n, me = world.n_pes, world.pe
    for step, (tokens, max_tokens) in enumerate(((5, 6), (0, 3), (me, n), (33, 33))):
        for dtype in (torch.bfloat16, torch.float32):
            torch.manual_seed(10 * step + me)
            ids, weights = torch.randint(0, 3, (tokens, 2)), torch.rand(tokens, 2)
            routing = functional.gather_routing(ids, weights, num_experts=3, max_tokens=max_tokens)
            sizes = 3, max_tokens, n, ""
            a, b = torch.randn(tokens, 8).to(dtype), torch.randn(3, 8, 4).to(dtype)
            grad = torch.randn(routing.rows, 4).to(dtype)
            where = routing.memory, 2, 0, *sizes
            found = OPS.moe_all_gather_grouped_gemm_gradients(grad, a, b, *where)
            of_a = operators.scattered(grad, b, (tokens, 2), routing.memory, 0, sizes)
            rows = operators.rows_of_all(a, routing, sizes)
            of_b = OPS.moe_grouped_weight_grad(rows, grad, routing.offsets, routing.counts)
            for ours, theirs in zip(found, (of_a, of_b), strict=True):
                assert ours.stride() == theirs.stride() and torch.equal(ours, theirs), (tokens, dtype)


def check_moe_tensor_second_derivatives(world: Any) -> None:
    n, me, experts = world.n_pes, world.pe, 3
    x, ids, _ = routed(world, 5, experts, 2, 0)
    routing = functional.gather_routing(ids[me], num_experts=experts, max_tokens=5)
    begins = routing.offsets.tolist()

    def products(all_of_x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = all_of_x[routing.tokens[: begins[-1]]]
        parts = [rows[begin:end] @ b[e] for e, (begin, end) in enumerate(pairwise(begins))]
        return torch.cat(parts)

    def second(a: list[Any], b: list[Any], outs: list[Any]) -> None:
        """Derivatives of squares of the first ones; ``a``, ``b`` and ``outs`` are those of some PEs."""
        loss = sum((out**3).sum() for out in outs) / 64
        first = torch.autograd.grad(loss, [*a, *b], create_graph=True)
        sum((gradient**2).sum() for gradient in first).backward()

    tokens, matrices = [leaf(part) for part in x], [leaf(whole(experts, 8, 4, seed=pe)) for pe in range(n)]
    second(tokens, matrices, [products(torch.cat(tokens), b) for b in matrices])
    mine, b = leaf(tokens[me]), leaf(matrices[me])
    second([mine], [b], [functional.all_gather_grouped_gemm(mine, b, routing)])
    same(mine.grad, tokens[me].grad)
    same(b.grad, matrices[me].grad)


def check_moe_tensor_modules(world: Any) -> None:
    n, me = world.n_pes, world.pe
    for options in ({}, {"shared_intermediate": 4, "num_sms": 1}):
        torch.manual_seed(0)
        layer = MoE(8, INNER * n, num_experts=3, top_k=2, max_tokens=8, parallel="tensor", **options)
        w13, w2 = whole(3, 2 * INNER * n, 8, seed=1) / 4, whole(3, 8, INNER * n, seed=2) / 4
        with torch.no_grad():
            for parameter, value in zip((layer.w13, layer.w2), sliced(world, w13, w2, me), strict=True):
                parameter.copy_(value)
        x = whole(2, 3, 8, seed=10 + me)
        tokens = x.view(-1, 8)
        expected = dense(tokens, *layer.route(tokens), w13, w2)
        if layer.shared_up is not None:
            gate, up = layer.shared_up(tokens).chunk(2, dim=-1)
            expected = expected + layer.shared_down(torch.nn.functional.silu(gate) * up)
        same(layer(x), expected.view(2, 3, 8))
    same(layer(x[:, :0]), x[:, :0])
    with raises(ValueError, "parallel must be expert or tensor"):
        MoE(8, 8, num_experts=n, top_k=1, max_tokens=1, parallel="both")
    with raises(ValueError, "intermediate must be a multiple of the", "there is no capacity; got intermediate 6"):
        MoE(8, 6, num_experts=3, top_k=1, max_tokens=1, parallel="tensor", capacity=8)


def check_moe_tensor_opcheck(world: Any) -> None:
    n, me = world.n_pes, world.pe
    x, ids, weights = routed(world, 3, 3, 2, 0)
    sizes = (3, 4, n, "")
    torch.library.opcheck(OPS.moe_gather_routing.default, (ids[me], weights[me], *sizes))
    routing = functional.gather_routing(ids[me], weights[me], num_experts=3, max_tokens=4)
    with raises(ValueError, "all_gather_grouped_gemm: this routing was gathered by moe.functional"):
        moe.all_gather_grouped_gemm(x[me], whole(3, 8, 4), routing)
    b = leaf(whole(3, 8, 4))
    gathered = (leaf(x[me]), b, routing.memory, None, None, 2, None, 0, *sizes)
    torch.library.opcheck(OPS.moe_all_gather_grouped_gemm.default, gathered)
    grad = leaf(whole(routing.rows, 4))
    both = (grad, leaf(x[me]), b, routing.memory, 2, 0, *sizes)
    torch.library.opcheck(OPS.moe_all_gather_grouped_gemm_gradients.default, both)
    y = leaf(functional.all_gather_grouped_gemm(x[me], b.detach(), routing))
    scattered = (y, leaf(whole(3, 4, 8)), leaf(weights[me]), routing.memory, None, None, True, None, 0, *sizes)
    torch.library.opcheck(OPS.moe_grouped_gemm_reduce_scatter.default, scattered)


def check_moe_tensor_compiled(world: Any) -> None:
    layer = MoE(8, INNER * world.n_pes, num_experts=3, top_k=2, max_tokens=8, parallel="tensor")
    x = whole(7, 8, seed=world.pe)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    same(compiled(x), layer(x))
    compiled(x).sum().backward()
    assert layer.w13.grad is not None and layer.gate.grad is not None


if __name__ == "__main__":
    run(globals())
