"""Results and gradients of the operators of PyTorch against one process's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from harness import raises, some
from operands import leaf, part, same, weighted, whole

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.collectives import gather_during
from triton_dist.kernels.functional import gemm_gradients as operators

OPS: Any = torch.ops.triton_dist


def check_collectives_and_their_gradients(world: Any) -> None:
    n = world.n_pes
    for dim in (0, 1, -1):
        inputs = [leaf(whole(n, 2 * n, 3 * n, seed=pe)) for pe in range(n)]
        mine = leaf(inputs[world.pe])
        found, expected = functional.all_gather(mine, dim), torch.cat(inputs, dim)
        same(found, expected)
        # Every PE has a copy, and a loss of its own.
        weighted(found, world.pe).backward()
        sum(weighted(expected, pe) for pe in range(n)).backward()
        same(mine.grad, inputs[world.pe].grad)

        inputs = [leaf(tensor) for tensor in inputs]
        mine = leaf(inputs[world.pe])
        found, expected = functional.reduce_scatter(mine, scatter_dim=dim), part(sum(inputs), dim, world)
        same(found, expected)
        weighted(found, world.pe).backward()
        sum(weighted(p, pe) for pe, p in enumerate(sum(inputs).chunk(n, dim))).backward()
        same(mine.grad, inputs[world.pe].grad)
    inputs = [leaf(whole(2 * n, 3, seed=pe)) for pe in range(n)]
    mine = leaf(inputs[world.pe])
    found = functional.all_reduce(mine)
    same(found, sum(inputs))
    weighted(found, world.pe).backward()
    sum(weighted(sum(inputs), pe) for pe in range(n)).backward()
    same(mine.grad, inputs[world.pe].grad)
    mine = leaf(mine)
    weighted(functional.all_reduce(mine, reduce_grad=False)).backward()
    same(mine.grad, whole(2 * n, 3, seed=9))
    inputs = [leaf(tensor) for tensor in inputs]
    mine = leaf(mine)
    found = functional.all_to_all(mine)
    same(found, torch.cat([part(tensor, 0, world) for tensor in inputs]))
    weighted(found, world.pe).backward()
    same(mine.grad, torch.cat([whole(2 * n, 3, seed=pe).chunk(n)[world.pe] for pe in range(n)]))


def check_reduce_ops_and_their_gradients(world: Any) -> None:
    n = world.n_pes
    inputs = [leaf(whole(2 * n, 3, seed=pe)) for pe in range(n)]
    stacked = torch.stack(inputs)
    for op, expected in (("max", stacked.amax(0)), ("min", stacked.amin(0)), ("avg", stacked.mean(0))):
        mine = leaf(inputs[world.pe])
        found, mine_too = functional.all_reduce(mine, op), leaf(mine)
        same(found, expected)
        scattered = functional.reduce_scatter(mine_too, op)
        same(scattered, part(expected, 0, world))
        if op == "avg":
            weighted(found, world.pe).backward()
            same(mine.grad, sum(whole(2 * n, 3, seed=pe) for pe in range(n)) / n)
            weighted(scattered, world.pe).backward()
            same(mine_too.grad, torch.cat([whole(2, 3, seed=pe) for pe in range(n)]) / n)
            mine = leaf(mine)
            weighted(functional.all_reduce(mine, op, reduce_grad=False)).backward()
            same(mine.grad, whole(2 * n, 3, seed=9) / n)
        else:
            for result in (found, scattered):
                with raises(RuntimeError, f"{op} has no gradient"):
                    result.sum().backward()
    integers = [torch.tensor([-(2**63), -1, 2**62, pe]) for pe in range(n)]
    assert torch.equal(functional.all_reduce(integers[world.pe]), torch.stack(integers).sum(0))
    assert torch.equal(functional.all_reduce(integers[world.pe].char(), "max"), torch.stack(integers).char().amax(0))


def check_gemms_and_their_gradients(world: Any) -> None:
    gemms_and_their_gradients(world, ((3, 5, 7),), ((0, (), True), (1, (2,), False)))


def check_gemms_of_all_layouts_and_their_gradients(world: Any) -> None:
    layouts = [
        (dim, batch, by_columns) for dim, batch in ((0, ()), (1, (2,)), (-2, (3,))) for by_columns in (True, False)
    ]
    gemms_and_their_gradients(world, ((1, 1, 1), (3, 5, 7)), layouts)


def gemms_and_their_gradients(
    world: Any, sizes: Sequence[tuple[int, int, int]], layouts: Sequence[tuple[int, tuple[int, ...], bool]]
) -> None:
    """A layout is the dimension that is gathered, the batch, and whether B lies by columns."""
    n = world.n_pes
    for m, k, c in sizes:
        for dim, batch, by_columns in layouts:
            A, B = leaf(whole(*batch, n * m, n * k)), leaf(whole(n * k, n * c, seed=1))
            C = A @ B

            def of(t: torch.Tensor, d: int) -> torch.Tensor:
                return leaf(part(t, d, world))

            def weight(d: int, B: torch.Tensor = B, by_columns: bool = by_columns) -> torch.Tensor:
                w = part(B, d, world).detach()
                return leaf(w.t().contiguous()).t() if by_columns else leaf(w.contiguous())

            for b in (weight(1),):
                b.retain_grad()
                for gathered in (False, True):
                    a = of(A, dim)
                    b.grad = A.grad = B.grad = None
                    found = functional.all_gather_gemm(a, b, dim, return_gathered=gathered)
                    if gathered:
                        found, all_of_a = found
                        same(all_of_a, A)
                    same(found, part(C, -1, world))
                    part_loss = part(whole(*C.shape, seed=9), -1, world)
                    loss, extra = (found * part_loss).sum(), 0
                    if gathered:
                        loss, extra = loss + weighted(all_of_a, 5), n
                    loss.backward(retain_graph=True)
                    (weighted(A @ B) + extra * weighted(A, 5)).backward()
                    same(a.grad, part(A.grad, dim, world))
                    same(b.grad, part(B.grad, 1, world))
            a, b = of(A, -1), weight(0)
            b.retain_grad()
            A.grad = B.grad = None
            found = functional.gemm_reduce_scatter(a, b, scatter_dim=dim)
            same(found, part(C, dim, world))
            (found * part(whole(*C.shape, seed=9), dim, world)).sum().backward()
            weighted(A @ B).backward()
            same(a.grad, part(A.grad, -1, world))
            same(b.grad, part(B.grad, 0, world))
            for reduce_grad in (True, False):
                a, b = of(A, -1), weight(0)
                b.retain_grad()
                found = functional.gemm_all_reduce(a, b, reduce_grad=reduce_grad)
                same(found, C)
                (weighted(found) / (n if reduce_grad else 1)).backward()
                same(a.grad, part(A.grad, -1, world))
                same(b.grad, part(B.grad, 0, world))
            for call in (functional.replicated_gemm, functional.gemm_all_scatter):
                a, b = leaf(A), weight(1)
                b.retain_grad()
                found = call(a, b)
                if call is functional.replicated_gemm:
                    same(found, part(C, -1, world))
                    (found * part(whole(*C.shape, seed=9), -1, world)).sum().backward()
                    same(a.grad, A.grad)
                else:
                    same(found, C)
                    (weighted(found) / n).backward()
                    same(functional.all_reduce(a.grad), A.grad)
                same(b.grad, part(B.grad, 1, world))


def check_gradients_of_one_operand_only(world: Any) -> None:
    n = world.n_pes
    for call in (functional.all_gather_gemm, functional.gemm_reduce_scatter, functional.gemm_all_reduce):
        a, b = whole(2 * n, 3, seed=world.pe), whole(3, 5, seed=n + world.pe)
        both = leaf(a), leaf(b)
        call(*both).sum().backward()
        first, second = leaf(a), leaf(b)
        call(first, b).sum().backward()
        call(a, second).sum().backward()
        same(first.grad, both[0].grad)
        same(second.grad, both[1].grad)


def check_gradients_are_those_of_separate_calls(world: Any) -> None:
    """The same bits as of each other's operator, an all_gather and a local GEMM, one after the other; also where a size
    is 1 or nothing, and with gradients whose elements share memory."""
    n = world.n_pes
    cases = [
        (dim, batch, rows, by_columns)
        for dim, batch in ((0, ()), (1, (2,)), (-2, (3, 2)), (0, (2,)))
        for rows, by_columns in ((1, True), (7, False), (33, True), (33, False))
    ]
    for step, (dim, batch, rows, by_columns) in enumerate((*some(cases, 3), (0, (), 0, True))):
        torch.manual_seed(7 * step + world.pe)
        dim = dim % (len(batch) + 2)
        part = [*batch, rows]
        whole = [size * (n if i == dim else 1) for i, size in enumerate(part)]
        where = dim, n, ""
        for dtype in (torch.float32, torch.bfloat16):
            b = torch.randn(3, 5).to(dtype).t() if by_columns else torch.randn(5, 3).to(dtype)
            for spread in (False, True):

                def operand(shape: list[int], spread: bool = spread, dtype: torch.dtype = dtype) -> torch.Tensor:
                    return (torch.ones(1).expand(shape) if spread else torch.randn(shape)).to(dtype)

                grad, a = operand([*whole, 3]), torch.randn(*part, 5).to(dtype)
                found = OPS.all_gather_gemm_gradients(grad, a, b, *where)
                of_a = OPS.gemm_reduce_scatter(grad, b.t(), "sum", *where)
                bits(found, (of_a, operators.weight_grad(OPS.all_gather(a, *where), grad, b)))
                grad, a = operand([*part, 3]), torch.randn(*whole, 5).to(dtype)
                found = OPS.gemm_reduce_scatter_gradients(grad, a, b, *where)
                of_a = OPS.all_gather_gemm(grad, b.t(), *where)
                bits(found, (of_a, operators.weight_grad(a, OPS.all_gather(grad, *where), b)))


def bits(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.stride() == theirs.stride() and torch.equal(ours, theirs), (found, expected)


def check_models_have_the_gradients_of_separate_calls(world: Any) -> None:
    """Through autograd."""
    n = world.n_pes
    torch.manual_seed(world.pe)
    where = 1, n, ""
    x, up, down = torch.randn(2, 3, 5), torch.randn(4, 5), torch.randn(5, 4)
    leaves = [leaf(tensor.bfloat16()) for tensor in (x, up, down)]
    x, up, down = leaves
    hidden = functional.all_gather_gemm(x, up.t(), 1)
    hidden.retain_grad()
    out = functional.gemm_reduce_scatter(hidden, down.t(), scatter_dim=1)
    grad = torch.randn(out.shape).bfloat16()
    out.backward(grad)
    x, up, down, between = (tensor.detach() for tensor in (*leaves, hidden))
    of_between = OPS.all_gather_gemm(grad, down, *where)
    assert torch.equal(hidden.grad, of_between)
    assert torch.equal(leaves[0].grad, OPS.gemm_reduce_scatter(of_between, up, "sum", *where))
    assert torch.equal(leaves[1].grad, operators.weight_grad(OPS.all_gather(x, *where), of_between, up.t()).t())
    assert torch.equal(leaves[2].grad, operators.weight_grad(between, OPS.all_gather(grad, *where), down.t()).t())


def check_a_is_gathered_while_its_gradient_is_computed(world: Any) -> None:
    """Between two barriers, which are in front of and behind both; and not by an all_gather."""
    done: list[str] = []

    def noted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            return function(*arguments, **options)

        return call

    n = world.n_pes
    a, b = leaf(whole(2, 3, seed=world.pe)), leaf(whole(3, 5, seed=n + world.pe))
    out = functional.all_gather_gemm(a, b)
    with (
        mock.patch.object(gather_during, "stream_barrier", noted("barrier", gather_during.stream_barrier)),
        mock.patch.object(operators, "gemm_reduce_scatter", noted("product", operators.gemm_reduce_scatter)),
        mock.patch.object(operators, "weight_grad", noted("weight", operators.weight_grad)),
    ):
        out.sum().backward()
    assert done == (["barrier", "product", "barrier", "weight"] if n > 1 else ["weight"]), done


def check_second_derivatives(world: Any) -> None:
    """Derivatives of squares of the gradients, where each PE has a loss of its own, against one process."""
    n, me = world.n_pes, world.pe
    f, chunk = functional, torch.Tensor.chunk

    def second(outs: list[Any], given: list[Any]) -> None:
        first = torch.autograd.grad(sum((out**3).sum() for out in outs) / 64, given, create_graph=True)
        (sum((gradient**2).sum() for gradient in first) / 64).backward()

    def gathered_gemm(a: Any, b: Any) -> list[Any]:
        whole_a = torch.cat(a)
        return [whole_a @ y for y in b]

    def summed(a: Any, b: Any) -> Any:
        return sum(x @ y for x, y in zip(a, b, strict=True))

    cases: dict[str, tuple[Any, Any, list[tuple[int, ...]]]] = {
        "all_gather": (f.all_gather, lambda x: [torch.cat(x)] * n, [(2, 3)]),
        "reduce_scatter": (f.reduce_scatter, lambda x: chunk(sum(x), n), [(2 * n, 3)]),
        "reduce_scatter, avg": (lambda x: f.reduce_scatter(x, "avg"), lambda x: chunk(sum(x) / n, n), [(2 * n, 3)]),
        "all_reduce": (f.all_reduce, lambda x: [sum(x)] * n, [(2, 3)]),
        "all_reduce, avg": (lambda x: f.all_reduce(x, "avg"), lambda x: [sum(x) / n] * n, [(2, 3)]),
        "all_to_all": (f.all_to_all, lambda x: [torch.cat([chunk(y, n)[pe] for y in x]) for pe in range(n)], [(n, 3)]),
        "all_gather_gemm": (f.all_gather_gemm, gathered_gemm, [(2, 4), (4, 3)]),
        "all_gather_gemm, gathered": (
            lambda a, b: torch.cat([made.flatten() for made in f.all_gather_gemm(a, b, return_gathered=True)]),
            lambda a, b: [torch.cat([made.flatten(), *(x.flatten() for x in a)]) for made in gathered_gemm(a, b)],
            [(2, 4), (4, 3)],
        ),
        "gemm_reduce_scatter, residual": (
            lambda a, b, residual: f.gemm_reduce_scatter(a, b, residual=residual),
            lambda a, b, residual: [x + y for x, y in zip(chunk(summed(a, b), n), residual, strict=True)],
            [(2 * n, 4), (4, 3), (2, 3)],
        ),
        "gemm_all_reduce": (
            f.gemm_all_reduce,
            lambda a, b: [summed(a, b)] * n,
            [(2, 4), (4, 3)],
        ),
        "gemm_all_scatter": (
            f.gemm_all_scatter,
            lambda a, b: [torch.cat([x @ y for x, y in zip(a, b, strict=True)], 1)] * n,
            [(2, 4), (4, 3)],
        ),
    }
    for name, (ours, dense, shapes) in cases.items():
        drawn = [[whole(*shape, seed=10 * pe + i) for pe in range(n)] for i, shape in enumerate(shapes)]
        theirs = [[leaf(tensor) for tensor in of_pes] for of_pes in drawn]
        second(dense(*theirs), [tensor for of_pes in theirs for tensor in of_pes])
        mine = [leaf(of_pes[me]) for of_pes in drawn]
        second([ours(*mine)], mine)
        for i, given in enumerate(mine):
            expected = theirs[i][me].grad
            assert given.grad is not None and torch.allclose(given.grad, expected, rtol=1e-4, atol=1e-4), name


def check_second_derivatives_of_one_loss(world: Any) -> None:
    """As ``check_second_derivatives``, of one loss that all PEs have, as behind layers in Megatron-LM's way."""
    n, me = world.n_pes, world.pe
    f = functional

    def second(out: Any, given: list[Any]) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad((out**3).sum() / 64, given, create_graph=True)
        return torch.autograd.grad(sum((gradient**2).sum() for gradient in first[-1:]) / 64, given)

    def dense(a: torch.Tensor, b: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return a @ b + residual

    a, b, residual = whole(2, 4 * n, seed=1), whole(4 * n, 3, seed=2), whole(2, 3, seed=3)
    columns = slice(4 * me, 4 * me + 4)
    forms: dict[str, Any] = {
        "gemm_all_reduce": lambda a, b, r: f.gemm_all_reduce(a, b, residual=r, reduce_grad=False),
        "all_reduce": lambda a, b, r: f.all_reduce(a @ b, reduce_grad=False) + r,
        "all_reduce, avg": lambda a, b, r: n * f.all_reduce(a @ b, "avg", reduce_grad=False) + r,
    }
    for order in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):  # the last one's gradient is squared
        expected = second(dense(*(all_of := [leaf(x) for x in (a, b, residual)])), [all_of[i] for i in order])
        for name, form in forms.items():
            mine = [leaf(x) for x in (a[:, columns], b[columns], residual)]
            for i, found, wanted in zip(order, second(form(*mine), [mine[i] for i in order]), expected, strict=True):
                own = (wanted[:, columns], wanted[columns], wanted)[i]
                assert torch.allclose(found, own, rtol=1e-4, atol=1e-4), (name, order, i)
    a, b = whole(2, 4, seed=4), whole(4, 3 * n, seed=5)
    columns = slice(3 * me, 3 * me + 3)
    for order in ((0, 1), (1, 0)):
        all_of, mine = [leaf(x) for x in (a, b)], [leaf(x) for x in (a, b[:, columns])]
        expected = second(all_of[0] @ all_of[1], [all_of[i] for i in order])
        found = second(f.replicated_gemm(*mine), [mine[i] for i in order])
        for i, one, wanted in zip(order, found, expected, strict=True):
            assert torch.allclose(one, (wanted, wanted[:, columns])[i], rtol=1e-4, atol=1e-4), (order, i)


def check_public_functions_keep_gradients(world: Any) -> None:
    n = world.n_pes
    a, b = leaf(whole(2 * n, 3)), leaf(whole(3, 5))
    for name in ("all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_scatter"):
        a.grad = b.grad = None
        getattr(kernels, name)(a, b, algorithm="bulk_synchronous").sum().backward()
        assert a.grad is not None and b.grad is not None, name
        out = triton_dist.empty(2 * n, 5)
        with raises(ValueError, rf"{name}: the call with out=", rf"functional\.{name}, which returns a new tensor"):
            getattr(kernels, name)(a, b, out)
        with torch.no_grad():
            assert not getattr(kernels, name)(a, b).requires_grad
    for name in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        arguments = (leaf(a),) if name == "all_reduce" else (torch.empty(0), leaf(a))
        with raises(ValueError, rf"functional\.{name}, which returns a new tensor"):
            getattr(kernels, name)(*arguments)
    with raises(
        ValueError, "broadcast: the call that stores to its argument has no gradient", "no differentiable form"
    ):
        kernels.broadcast(leaf(a))
    with torch.no_grad():
        same(kernels.broadcast(leaf(a)), a)


def check_what_kernels_overwrite_has_no_gradient(world: Any) -> None:
    """A backward that was to read what a tensor held before a call that has stored to it is refused, as PyTorch's own
    operators have it; also where the call stores to a view."""
    n = world.n_pes
    shared, own = whole(n, 3), whole(1, 3)
    offsets, counts = torch.tensor([0, 2], dtype=torch.int32), torch.tensor([2], dtype=torch.int32)
    calls: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], Any]]] = {
        "all_gather": ((n, 3), lambda out: kernels.all_gather(out, own)),
        "all_reduce": ((4,), kernels.all_reduce),
        "all_reduce, out": ((n, 3), lambda out: kernels.all_reduce(shared, out=out)),
        "reduce_scatter": ((1, 3), lambda out: kernels.reduce_scatter(out, shared)),
        "all_to_all": ((n, 3), lambda out: kernels.all_to_all(out, shared)),
        "broadcast": ((4,), kernels.broadcast),
        "all_gather_gemm": ((2 * n, 5), lambda out: kernels.all_gather_gemm(whole(2, 3), whole(3, 5), out)),
        "gemm_reduce_scatter": ((2, 5), lambda out: kernels.gemm_reduce_scatter(whole(2 * n, 3), whole(3, 5), out)),
        "gemm_all_reduce": ((2, 5), lambda out: kernels.gemm_all_reduce(whole(2, 3), whole(3, 5), out=out)),
        "gemm_all_scatter": ((2, 5 * n), lambda out: kernels.gemm_all_scatter(whole(2, 3), whole(3, 5), out)),
        "grouped_gemm": (
            (2, 5), lambda out: kernels.moe.grouped_gemm(whole(2, 3), whole(1, 3, 5), offsets, counts, out=out),
        ),
    }  # fmt: skip
    for name, (shape, call) in calls.items():
        out = triton_dist.zeros(*shape)
        weight = torch.ones(shape, requires_grad=True)
        product = weight * out
        call(out.view(shape))
        with raises(RuntimeError, "modified by an inplace operation"):
            product.sum().backward()
            raise AssertionError(name)
        (weight * out).sum().backward()
        assert weight.grad is not None and torch.equal(weight.grad, out), name
    with torch.inference_mode():  # whose tensors have no gradients, and count nothing
        assert torch.equal(kernels.all_reduce(torch.ones(4)), torch.full((4,), float(n)))
