"""The backward of experts: what is done once, beside what, and that the bits are those of calls one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises, some
from moe_layers import OPS, dense, leaf, routed, same, whole

from triton_dist.kernels import moe
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.moe import combine_during as beside
from triton_dist.kernels.moe import functional, functional_layer
from triton_dist.kernels.moe import functional_tensor_parallel_gradients as slices
from triton_dist.kernels.moe.grouped_gemm import grouped_weight_grad

EXPERTS, TOP_K, HIDDEN, INNER = 2, 2, 16, 8
"""Experts of each PE."""


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The names of the collective calls that members compare, in order."""
    names: list[str] = []
    compare = Communicator.compare

    def noted(comm: Communicator, *call: Any) -> None:
        names.append(call[0])
        compare(comm, *call)

    with mock.patch.object(Communicator, "compare", noted):
        yield names


class Given:
    """Tokens of this PE, with their routing, and matrices of its experts."""

    def __init__(self, world: Any, tokens: int, seed: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(100 * seed + world.pe)

        def draw(*size: int) -> torch.Tensor:
            return torch.randn(size, generator=generator).to(dtype)

        self.ids = torch.randint(-1, EXPERTS * world.n_pes, (tokens, TOP_K), generator=generator)
        self.weights = torch.rand(tokens, TOP_K, generator=generator)
        self.x, self.grad = draw(tokens, HIDDEN), draw(tokens, HIDDEN)
        self.w13, self.w2 = draw(EXPERTS, 2 * INNER, HIDDEN), draw(EXPERTS, HIDDEN, INNER)
        self.sizes: dict[str, Any] = {"num_experts": EXPERTS * world.n_pes, "max_tokens": 7}

    def leaves(self) -> list[torch.Tensor]:
        return [leaf(tensor) for tensor in (self.x, self.weights, self.w13, self.w2)]

    def layer(self, given: list[torch.Tensor], **options: Any) -> torch.Tensor:
        return moe.moe_layer(given[0], self.ids, *given[1:], **self.sizes, **options)

    def separate(self, given: list[torch.Tensor], **options: Any) -> torch.Tensor:
        """The same by an operator for each step, whose backward is the other operators' one after the other."""
        x, weights, w13, w2 = given
        received = functional.dispatch(x, self.ids, weights, **self.sizes, **options)
        groups = received.offsets, received.counts
        gate, up = functional.grouped_gemm(received.x, w13.transpose(1, 2), *groups).chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * up
        return functional.combine(functional.grouped_gemm(hidden, w2.transpose(1, 2), *groups), received, weights)


def check_backward_has_the_bits_of_separate_steps(world: Any) -> None:
    """Whatever wants a gradient, with any number of tokens, of many also, and in rounds."""
    wanted = ((0, 1, 2, 3), (0,), (1,), (2,), (3,), (0, 2), (1, 3))
    for i, which in enumerate(some(wanted, 3)):
        dtype = (torch.bfloat16, torch.float32)[i % 2]
        given = Given(world, (7, 0, 3, 5)[(i + world.pe) % 4], i, dtype)
        if i % 3 == 0:  # by senders and receivers, with the sums of the layer's backward in halves
            given.sizes["max_tokens"] = 16
        for options in ({}, {"num_sms": 2}):
            made = []
            for layer in (given.layer, given.separate):
                leaves = given.leaves()
                for at in {*range(4)} - {*which}:
                    leaves[at].requires_grad_(False)
                out = layer(leaves, **options)
                made.append((out, *torch.autograd.grad(out, [leaves[at] for at in which], given.grad)))
            for ours, theirs in zip(*made, strict=True):
                assert ours.stride() == theirs.stride() and torch.equal(ours, theirs), (which, options, dtype)


@contextmanager
def noted_steps() -> Iterator[list[str]]:
    """The halves of combines, rounds, and gradients of matrices, in order."""
    steps: list[str] = []

    def noting(function: Any) -> Any:
        def noted(*arguments: Any, **options: Any) -> Any:
            steps.append(function.__name__)
            return function(*arguments, **options)

        return noted

    with (
        mock.patch.object(functional_layer, "grouped_weight_grad", noting(grouped_weight_grad)),
        mock.patch.object(beside, "combine", noting(beside.combine)),
        mock.patch.object(beside, "combine_send", noting(beside.combine_send)),
        mock.patch.object(beside, "combine_receive", noting(beside.combine_receive)),
    ):
        yield steps


def check_backward_computes_between_halves(world: Any) -> None:
    given = Given(world, 5, 0, torch.float32)
    for options, expected in (
        ({}, ["combine_send", "grouped_weight_grad", "combine_receive"]),
        ({"num_sms": 2}, ["combine", "grouped_weight_grad"]),
    ):
        out = given.layer(given.leaves(), **options)
        with noted_steps() as steps:
            out.backward(given.grad)
        assert steps == expected * 2, steps


def check_backward_that_fails_between_halves(world: Any) -> None:
    """What was sent is received, so the next exchange in these slots is as any other."""
    given, expected = Given(world, 5, 0, torch.float32), []
    for fails in (False, True, False):
        leaves = given.leaves()
        out = given.layer(leaves)
        if fails:
            with (
                mock.patch.object(functional_layer, "grouped_weight_grad", side_effect=ArithmeticError("no memory")),
                raises(ArithmeticError, "no memory"),
            ):
                out.backward(given.grad)
        else:
            expected.append(torch.autograd.grad(out, leaves, given.grad))
    for first, second in zip(*expected, strict=True):
        assert torch.equal(first, second)


def check_backward_of_backward(world: Any) -> None:
    """Second derivatives of a layer: of squares of gradients, with respect to tokens, their weights and matrices."""
    n, me = world.n_pes, world.pe
    x, ids, weights = routed(world, 5, EXPERTS * n, TOP_K, 0)
    w13, w2 = whole(EXPERTS * n, 12, 8, seed=8) / 4, whole(EXPERTS * n, 8, 6, seed=9) / 4
    here = slice(EXPERTS * me, EXPERTS * me + EXPERTS)

    def second(loss: Any, leaves: list[Any]) -> None:
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        sum((gradient**2).sum() for gradient in first).backward()

    def separate(x: Any, ids: Any, weights: Any, w13: Any, w2: Any, **sizes: Any) -> torch.Tensor:
        received = functional.dispatch(x, ids, weights, **sizes)
        groups = received.offsets, received.counts
        gate, up = functional.grouped_gemm(received.x, w13.transpose(1, 2), *groups).chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * up
        return functional.combine(functional.grouped_gemm(hidden, w2.transpose(1, 2), *groups), received, weights)

    for of_weights in some((True, False)):
        all_of = [leaf(x), leaf(weights), leaf(w13), leaf(w2)]
        if not of_weights:
            all_of[1] = weights
        outs = [dense(all_of[0][pe], ids[pe], all_of[1][pe], *all_of[2:]) for pe in range(n)]
        second(sum((out**3).sum() for out in outs), [given for given in all_of if given.requires_grad])
        for layer, options in ((moe.moe_layer, {}), (moe.moe_layer, {"num_sms": 1}), (separate, {})):
            mine = [leaf(x[me]), leaf(weights[me]) if of_weights else weights[me], leaf(w13[here]), leaf(w2[here])]
            sizes = {"num_experts": EXPERTS * n, "max_tokens": 6} | options
            out = layer(mine[0], ids[me], *mine[1:], **sizes)
            second((out**3).sum(), [given for given in mine if given.requires_grad])
            for ours, theirs, part in zip(mine, all_of, (me, me, here, here), strict=True):
                if ours.requires_grad:
                    same(ours.grad, theirs.grad[part], 1e-3)


def check_backward_opcheck(world: Any) -> None:
    n = world.n_pes
    given = Given(world, 3, 0, torch.float32)
    sizes = (EXPERTS * n, 7, 1, 7 * n * TOP_K, 0, n, "")
    x, weights, w13, w2 = given.leaves()
    b = leaf(w13.detach().transpose(1, 2))
    torch.library.opcheck(OPS.moe_dispatch_and_multiply.default, (x, b, given.ids, given.weights, *sizes))
    product, rows, memory = OPS.moe_dispatch_and_multiply(x.detach(), b.detach(), given.ids, given.weights, *sizes)
    hidden, b = leaf(product[:, :INNER]), leaf(w2.detach().transpose(1, 2))
    torch.library.opcheck(OPS.moe_multiply_and_combine.default, (hidden, b, given.ids, leaf(weights), memory, *sizes))
    both = leaf(rows), leaf(rows), leaf(product), given.ids, given.weights, memory, *sizes
    torch.library.opcheck(OPS.moe_combine_and_weight_grad.default, both)


def check_backward_compiled(world: Any) -> None:
    """The bits of what is not compiled, of both kinds of layers."""
    n = world.n_pes
    for parallel in ("expert", "tensor"):
        given = Given(world, 5, 0, torch.float32)
        if parallel == "tensor":
            of_all = EXPERTS * n
            given.w13, given.w2 = (tensor.repeat(n, 1, 1)[:of_all] for tensor in (given.w13, given.w2))

        def layer(*leaves: torch.Tensor, given: Given = given, parallel: str = parallel) -> torch.Tensor:
            return given.layer([*leaves], parallel=parallel)

        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        made = []
        for function in (layer, compiled, compiled):
            leaves = given.leaves()
            out = function(*leaves)
            made.append((out, *torch.autograd.grad(out, leaves, given.grad)))
        for expected, first, second in zip(*made, strict=True):
            assert torch.equal(first, expected) and torch.equal(second, expected), parallel


# ---- slices of experts


def sliced(world: Any, tokens: int, seed: int, dtype: torch.dtype) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(100 * seed + world.pe)
    ids = torch.randint(-1, 3, (tokens, TOP_K), generator=generator)
    weights = torch.rand(tokens, TOP_K, generator=generator)
    routing = functional.gather_routing(ids, weights, num_experts=3, max_tokens=7)
    a, b = torch.randn(routing.rows, INNER, generator=generator), torch.randn(3, INNER, HIDDEN, generator=generator)
    grad = torch.randn(tokens, HIDDEN, generator=generator)
    return routing, weights, a.to(dtype), b.to(dtype), grad.to(dtype)


def check_backward_of_slices_gathers_once(world: Any) -> None:
    """The gradients of the result, for those of both operands; and it is the other GEMM that gathers."""
    routing, weights, a, b, grad = sliced(world, 5, 0, torch.float32)
    for which, expected in (
        ("ab", ["all_gather_grouped_gemm"]),
        ("abw", ["all_gather_grouped_gemm", "reduce_scatter"]),
        ("a", ["all_gather_grouped_gemm"]),
        ("b", ["all_gather"]),
        ("bw", ["all_gather_grouped_gemm", "reduce_scatter"]),
    ):
        given = [leaf(tensor) if name in which else tensor for name, tensor in zip("abw", (a, b, weights), strict=True)]
        out = functional.grouped_gemm_reduce_scatter(given[0], given[1], routing, given[2])
        with recorded() as names:
            out.backward(grad)
        assert names == expected, (which, names)


def check_backward_of_slices_has_the_bits_of_separate_calls(world: Any) -> None:
    """Of an all_gather for each gradient, also where PEs have no tokens, and numbers left in memory are none."""
    n = world.n_pes
    for step, tokens in enumerate(some((7, 3, 0, world.pe))):
        for dtype in (torch.bfloat16, torch.float32):
            for weighted in (True, False):
                routing, weights, a, b, grad = sliced(world, tokens, step, dtype)
                sizes = 3, 7, n, ""
                options = {"weighted": weighted}
                poison = grad.new_full((tokens, HIDDEN), torch.nan)
                functional.grouped_gemm_reduce_scatter(leaf(a), leaf(b), routing, **options).backward(poison)
                given = [leaf(tensor) for tensor in (a, b, weights)]
                functional.grouped_gemm_reduce_scatter(given[0], given[1], routing, given[2], **options).backward(grad)
                rows = slices.multiplied(grad, b, TOP_K, routing.memory, 0, sizes)
                of_a = slices.weighted_rows(rows, routing) if weighted else rows
                gathered = slices.rows_of_all(grad, routing, sizes)
                gathered = slices.weighted_rows(gathered, routing) if weighted else gathered
                of_b = OPS.moe_grouped_weight_grad(a, gathered, routing.offsets, routing.counts)
                for ours, theirs in zip(given, (of_a, of_b), strict=False):
                    assert ours.grad is not None and torch.equal(ours.grad, theirs), (tokens, dtype, weighted)


def check_backward_of_slices_of_backward(world: Any) -> None:
    n, me = world.n_pes, world.pe
    routing = sliced(world, 5, 0, torch.float32)[0]
    begins, used = routing.offsets.tolist(), routing.offsets[-1]
    generator = torch.Generator().manual_seed(1)
    all_a = torch.randn(n, routing.rows, INNER, generator=generator) / 4
    all_b = torch.randn(n, 3, INNER, HIDDEN, generator=generator) / 4

    made = routing.positions >= 0

    def sums(a: Any, b: Any, weights: Any, weighted: bool) -> torch.Tensor:
        """Of all PEs' tokens, by one process."""
        parts = [a[p][begin:end] @ b[p][e] for p in range(n) for e, (begin, end) in enumerate(pairwise(begins))]
        rows = sum(torch.cat(parts[3 * p : 3 * p + 3]) for p in range(n))
        by_row = torch.zeros(int(used)).index_put((routing.positions[made].long(),), weights[made])
        rows = rows * by_row[:, None] if weighted else rows
        return torch.zeros(7 * n, HIDDEN).index_add(0, routing.tokens[:used], rows)

    def second(out: torch.Tensor, leaves: list[Any]) -> None:
        first = torch.autograd.grad((out**3).sum() / 64, leaves, create_graph=True)
        sum((gradient**2).sum() for gradient in first).backward()

    by_choice = torch.zeros(routing.positions.shape)
    by_choice[made] = routing.weights[routing.positions[made].long()]
    for weighted, of_weights in ((True, True), (True, False), (False, False)):
        a, b, weights = leaf(all_a), leaf(all_b), leaf(by_choice)
        second(sums(a, b, weights, weighted), [a, b, weights][: 2 + of_weights])
        own = leaf(by_choice[me, : routing.n_tokens])
        mine = [leaf(all_a[me]), leaf(all_b[me]), own]
        given = own if of_weights else own.detach()
        out = functional.grouped_gemm_reduce_scatter(*mine[:2], routing, given, weighted=weighted)
        second(out, mine[: 2 + of_weights])
        assert a.grad is not None and b.grad is not None
        same(mine[0].grad[:used], a.grad[me][:used], 1e-3)
        same(mine[1].grad, b.grad[me], 1e-3)
        if of_weights:
            same(own.grad, weights.grad[me, : routing.n_tokens], 1e-3)


def check_backward_of_slices_opcheck(world: Any) -> None:
    routing, _, a, b, grad = sliced(world, 3, 0, torch.float32)
    given = (leaf(grad), leaf(a), leaf(b), routing.memory, TOP_K, True, 0, 3, 7, world.n_pes, "")
    torch.library.opcheck(OPS.moe_grouped_gemm_reduce_scatter_gradients.default, given)


if __name__ == "__main__":
    run(globals())
