"""Operators of PyTorch, with gradients and compiled, where PEs have different numbers of rows, or none."""

from __future__ import annotations

from typing import Any

import torch
from harness import main as run
from harness import raises, some
from operands import leaf, same, weighted, whole
from uneven import own

from triton_dist import kernels
from triton_dist.kernels import functional

SIZES = (7, 2, 1, 33)
_ops: Any = torch.ops.triton_dist


def cut(tensor: torch.Tensor, dim: int, world: Any) -> torch.Tensor:
    """This PE's shard."""
    rows = own(tensor.shape[dim], world)
    return tensor.narrow(dim, rows.start, rows.stop - rows.start)


def check_uneven_gemms_and_their_gradients(world: Any) -> None:
    """Also of more dimensions, where shards are not those of rows that are cut."""
    n = world.n_pes
    for size in some(SIZES):
        for dim, shape in ((0, (size,)), (1, (2, size)), (0, (size, 3))):
            A, B = leaf(whole(*shape, 4)), leaf(whole(4, 5, seed=1))
            for return_gathered in (False, True):
                a, b = leaf(cut(A, dim, world)), leaf(B)
                found = functional.all_gather_gemm(a, b, dim, rows=size, return_gathered=return_gathered)
                found, gathered = found if return_gathered else (found, None)
                same(found, A @ B)
                loss, expected = weighted(found), weighted(A @ B)
                if gathered is not None:
                    same(gathered, A)
                    loss, expected = loss + weighted(gathered, 5), expected + weighted(A, 5)
                A.grad = B.grad = None
                loss.backward()
                expected.backward()
                assert A.grad is not None
                same(a.grad, n * cut(A.grad, dim, world))  # all PEs' losses are equal
                same(b.grad, B.grad)
            a, b, residual = leaf(A), leaf(B), leaf(cut(whole(*shape, 5, seed=3), dim, world))
            found = functional.gemm_reduce_scatter(a, b, scatter_dim=dim, residual=residual)
            weights = cut(whole(*shape, 5, seed=9), dim, world)
            same(found, n * cut(A @ B, dim, world) + residual)
            A.grad = B.grad = None
            (found * weights).sum().backward()
            weighted(A @ B).backward()
            same(a.grad, A.grad)
            same(b.grad, B.grad)
            same(residual.grad, weights)


def check_empty_shards_that_begin_anywhere(world: Any) -> None:
    """Of one row of a flat buffer: a PE without rows has a view at an offset that makes no words."""
    for dtype, columns in ((torch.float16, 18), (torch.float16, 64), (torch.int8, 7)):
        row = torch.ones(columns + 1, dtype=dtype)[1:].view(1, columns)
        assert torch.equal(functional.all_gather(cut(row, 0, world), rows=1), row)
        if dtype.is_floating_point:
            b = leaf(torch.ones(columns, 3, dtype=dtype))
            a = leaf(row)
            found = functional.all_gather_gemm(cut(a, 0, world), b, rows=1)
            assert (found == columns).all()
            found.sum().backward()
            assert (a.grad == 3 * world.n_pes).all() == (world.pe == 0), a.grad
            assert (kernels.all_gather_gemm(cut(row, 0, world), b.detach(), rows=1) == columns).all()


def check_uneven_gradients_of_one_operand_only(world: Any) -> None:
    A, B = whole(7, 4), whole(4, 5, seed=1)
    for operand in range(2):
        gradients = []
        for wanted in ((operand,), (0, 1)):
            a, b = (leaf(x) if i in wanted else x for i, x in enumerate((cut(A, 0, world), B)))
            weighted(functional.all_gather_gemm(a, b, rows=7)).backward()
            x, y = (leaf(x) if i in wanted else x for i, x in enumerate((A, B)))
            functional.gemm_reduce_scatter(x, y).sum().backward()
            gradients.append(((a, b)[operand].grad, (x, y)[operand].grad))
        for first, second in zip(*gradients, strict=True):
            same(first, second)


def check_public_functions_keep_gradients_of_uneven_rows(world: Any) -> None:
    a, b = leaf(cut(whole(7, 4), 0, world)), leaf(whole(4, 5, seed=1))
    found = kernels.all_gather_gemm(a, b, rows=7)
    same(found, whole(7, 4) @ b)
    summed = kernels.gemm_reduce_scatter(found, whole(5, 4, seed=2))
    assert len(summed) == len(a)
    summed.sum().backward()
    assert a.grad is not None and a.grad.shape == a.shape and b.grad is not None


def check_uneven_collectives_of_operators(world: Any) -> None:
    """What the gradients use: of all dtypes' words, and of sizes for both algorithms."""
    for dtype in (torch.bfloat16, torch.float32):
        for rows, columns in some(((1, 1), (7, 5000), (7, 3), (33, 40))):
            x = whole(rows, columns).to(dtype)
            mine = cut(x, 0, world)
            for algorithm in ("auto", "low_latency", "push", "two_level"):
                assert torch.equal(functional.all_gather(mine, rows=rows, algorithm=algorithm), x)
                for op, expected in (("sum", world.n_pes * x), ("max", x)):
                    found = functional.reduce_scatter(x, op, algorithm=algorithm)
                    assert torch.equal(found, cut(expected, 0, world))
            assert torch.equal(functional.reduce_scatter(x, algorithm="exchange"), cut(world.n_pes * x, 0, world))
    with raises(ValueError, "all_gather: algorithm must be auto, low_latency, exchange, push, two_level, got"):
        functional.all_gather(cut(whole(7, 3), 0, world), rows=7, algorithm="copy_engine")


def check_uneven_rows_compiled(world: Any) -> None:
    """One graph, of forward and backward, with the shapes of this PE; also where sizes change."""

    def model(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, rows: int) -> torch.Tensor:
        hidden = torch.tanh(functional.all_gather_gemm(x, up, rows=rows))
        return torch.tanh(functional.gemm_reduce_scatter(hidden, down)) + x

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for rows in some((7, 7, 11, 12, 7, 1)):
        x, up, down = cut(whole(rows, 4), 0, world), whole(4, 6, seed=1), whole(6, 4, seed=2)
        results = []
        for function in (model, compiled):
            leaves = leaf(x), leaf(up), leaf(down)
            found = function(*leaves, rows)
            weighted(found, world.pe).backward()
            results.append((found, *(one.grad for one in leaves)))
        for plain, traced in zip(*results, strict=True):
            same(traced, plain)
    assert not torch._dynamo.utils.counters["graph_break"]


def check_uneven_opcheck(world: Any) -> None:
    n = world.n_pes
    a, x, b, where = whole(7, 3, 4), cut(whole(7, 3, 4), 0, world), whole(4, 5, seed=1), (n, "")
    options = "auto", None, None, None, 0, None, leaf(whole(5, seed=2))
    residual = leaf(cut(whole(7, 3, 5), 0, world))
    for name, arguments in {
        "all_gather": (leaf(x), 0, *where, "auto", 7),
        "reduce_scatter": (leaf(a), "sum", 0, *where, "auto", len(x)),
        "all_gather_gemm": (leaf(x), leaf(b), 0, *where, *options, 7),
        "all_gather_gemm_gathered": (leaf(x), leaf(b), 0, *where, *options, 7),
        "gemm_reduce_scatter": (leaf(a), leaf(b), "sum", 0, *where, *options, residual, len(x)),
    }.items():
        torch.library.opcheck(getattr(_ops, name).default, arguments)


def check_mistakes_with_rows_of_operators(world: Any) -> None:
    n, mine = world.n_pes, len(cut(whole(7, 1), 0, world))
    a, b = whole(7, 4), whole(4, 5, seed=1)
    text = f"is 7, of which PE {world.pe} of {n} has {mine}, got {mine + 1}"
    with raises(ValueError, f"gemm_reduce_scatter: dimension 0 of a {text}"):
        _ops.gemm_reduce_scatter(a, b, "sum", 0, n, "", rows=mine + 1)
    with raises(ValueError, f"reduce_scatter: dimension 0 of input {text}"):
        _ops.reduce_scatter(a, "sum", 0, n, "", rows=mine + 1)
    with raises(ValueError, "gemm_reduce_scatter: dimension 0 of a is 7, which . PEs cannot share equally"):
        _ops.gemm_reduce_scatter(a, b, "sum", 0, n, "")
    # A multiple of the number of PEs says as much of the shards as another number.
    with raises(ValueError, rf"all_gather: dimension 0 of the result is {5 * n}, of which PE . of {n} has 5, got 2"):
        functional.all_gather(a[:2], rows=5 * n)
    with raises(ValueError, rf"reduce_scatter: dimension 0 of input is {2 * n}, of which PE . of {n} has 2, got 3"):
        _ops.reduce_scatter(torch.cat([a, a])[: 2 * n], "sum", 0, n, "", rows=3)
    with raises(ValueError, "all_gather: rows must be 0 or more, got -1"):
        functional.all_gather(a, rows=-1)
    with raises(ValueError, "all_gather_gemm: rows must be 0 or more, got -1"):
        functional.all_gather_gemm(a, b, rows=-1)


if __name__ == "__main__":
    run(globals())
