"""The operators of PyTorch: results and gradients against one process's, opcheck, torch.compile, and mistakes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional

OPS: Any = torch.ops.triton_dist
NORMS = ("all_reduce_norm", "reduce_scatter_norm", "norm_all_gather")


def whole(*shape: int, seed: int = 0) -> torch.Tensor:
    """Small integers, so that every order of additions gives the same; the same on every PE."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_()


def part(tensor: torch.Tensor, dim: int, world: Any) -> torch.Tensor:
    return tensor.chunk(world.n_pes, dim)[world.pe]


def same(found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert found is not None and expected is not None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def weighted(tensor: torch.Tensor, seed: int = 9) -> torch.Tensor:
    """A loss whose gradient is different for every element; ``tensor`` is the whole of what the PEs have."""
    return (tensor * whole(*tensor.shape, seed=seed)).sum()


def each_pes(of: Callable[[int], torch.Tensor], world: Any) -> list[torch.Tensor]:
    return [of(pe) for pe in range(world.n_pes)]


def sample_arguments(world: Any) -> dict[str, tuple[Any, ...]]:
    n = world.n_pes
    a, b, where = whole(2 * n, 3, 4), whole(5, 4, seed=1).t(), (n, "")
    options = "auto", None, None, None, 0, None, leaf(whole(5, seed=2))  # the last is a bias
    return {
        "all_gather": (leaf(a), 1, *where),
        "reduce_scatter": (leaf(a), "sum", 0, *where),
        "all_reduce": (leaf(a), "sum", *where),
        "all_to_all": (leaf(a), *where),
        "all_gather_gemm": (leaf(a), leaf(b), 1, *where, *options),
        "all_gather_gemm_gathered": (leaf(a), leaf(b), 0, *where, *options),
        "gemm_reduce_scatter": (leaf(a), leaf(b), "sum", 0, *where, *options, leaf(whole(2, 3, 5))),
        "gemm_all_reduce": (leaf(a), leaf(b), "sum", *where, True, *options, leaf(whole(2 * n, 3, 5))),
        "replicated_gemm": (leaf(a), leaf(b), *where),
        "gemm_all_scatter": (leaf(a), leaf(b), *where, *options),
        **{name: (whole(n, 8), None, None, None, "rms", None, 1e-6, "token", *where) for name in NORMS},
        "flash_decode": (
            *(whole(2, n, 16), whole(2, 3, 1, 16, seed=1), whole(2, 3, 1, 16, seed=2)),
            *(torch.tensor([3 * n, 1], dtype=torch.int32), None, 16, None, 5, None, None, None, True, *where),
        ),
        "flash_decode_projection": (
            *(whole(2, n, 16), whole(2, 3, 1, 16, seed=1), whole(2, 3, 1, 16, seed=2)),
            *(torch.tensor([3, 0], dtype=torch.int32), whole(n * 16, 5, seed=3), whole(5), None, None, 16, None, 2),
            *(None, None, *where),
        ),
    }


def check_opcheck(world: Any) -> None:
    samples = sample_arguments(world)
    assert set(samples) >= set(functional.__all__)
    for name, arguments in samples.items():
        torch.library.opcheck(getattr(OPS, name).default, arguments)


def check_norms_and_decode_compiled(world: Any) -> None:
    """Traced whole, also by their public names, with the results of the plain calls; without gradients."""
    n = world.n_pes
    x, weight = whole(2 * n, 128), whole(128, seed=1)
    cache, lengths = whole(2, 4, 1, 16, seed=world.pe), torch.tensor([4 * n, 2], dtype=torch.int32)

    def norms() -> list[Any]:
        return [getattr(kernels, name)(x, weight, quantize=how) for name in NORMS for how in (None, "token", "block")]

    def decode() -> Any:
        return kernels.flash_decode(x[:2, :16].reshape(2, 1, 16), cache, cache, lengths)

    def projection() -> Any:
        return kernels.flash_decode_projection(x[:2, :16].reshape(2, 1, 16), cache, cache, lengths, x.view(-1, 16)[:16])

    for function in (norms, decode, projection):
        plain = function()
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)()
        for a, b in zip(torch.utils._pytree.tree_leaves(plain), torch.utils._pytree.tree_leaves(compiled), strict=True):
            assert a is b or (a.dtype == b.dtype and torch.equal(a.float(), b.float()))
    with raises(ValueError, "all_reduce_norm: a tensor requires a gradient, and all_reduce_norm has none"):
        kernels.all_reduce_norm(x, leaf(weight))


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


def check_sizes_of_all_kinds(world: Any) -> None:
    """One element, none, primes, odd bytes, and more than goes through slots, one after the other in one workspace."""
    n = world.n_pes
    for size in (0, 1, 7, 33_001, 13):
        for dtype in (torch.bfloat16, torch.uint8, torch.int64) if size < 1000 else (torch.bfloat16,):
            mine = (torch.arange(size) % 100 + world.pe).to(dtype)
            same(functional.all_gather(mine), torch.cat([(torch.arange(size) % 100 + pe).to(dtype) for pe in range(n)]))
            exchanged = functional.all_to_all(mine.repeat(n))
            same(exchanged, torch.cat([(torch.arange(size) % 100 + pe).to(dtype) for pe in range(n)]))
        mine = torch.full((size,), float(world.pe + 1)).bfloat16()
        same(functional.all_reduce(mine), torch.full((size,), n * (n + 1) / 2).bfloat16())
        same(functional.reduce_scatter(mine.repeat(n)), torch.full((size,), n * (n + 1) / 2).bfloat16())


def check_results_do_not_alias(world: Any) -> None:
    """What a call returned stays as it is when the next one uses the workspace."""
    a, b = whole(2 * world.n_pes, 4), whole(4, 3, seed=world.pe)
    for call in (
        lambda x: functional.gemm_all_reduce(x, b),
        lambda x: functional.gemm_all_scatter(x, b),
        lambda x: functional.all_gather_gemm(x, b, return_gathered=True)[1],
        lambda x: functional.all_gather(x.repeat(5000, 1)),
    ):
        first = call(a)
        copy = first.clone()
        call(a + 1)
        assert torch.equal(first, copy)


def check_gemms_and_their_gradients(world: Any) -> None:
    n = world.n_pes
    for m, k, c in ((1, 1, 1), (3, 5, 7)):
        for dim, batch in ((0, ()), (1, (2,)), (-2, (3,))):
            for by_columns in (True, False):
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


def check_compile(world: Any) -> None:
    """One graph, of a model's forward and backward, also when the number of rows changes."""
    n = world.n_pes

    def by_operators(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(functional.all_gather_gemm(x, up.t(), 1))
        y = functional.gemm_reduce_scatter(hidden, down.t(), scatter_dim=1, residual=x)
        return y + functional.reduce_scatter(functional.all_gather(y, 1), scatter_dim=1) / n

    def by_functions(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(kernels.all_gather_gemm(x.flatten(0, 1), up.t(), bias=up[:, 0].contiguous()))
        y = kernels.gemm_all_reduce(hidden, down.t(), bias=down[:, 1].contiguous())
        y = y + functional.all_reduce(functional.all_to_all(hidden)).sum()
        return y

    for function in (by_operators, by_functions):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        for rows in (2, 3, 5):
            arguments = [whole(1, rows * n, 4, seed=world.pe), whole(6, 4, seed=7), whole(4, 6, seed=8)]
            eager, traced = [leaf(x) for x in arguments], [leaf(x) for x in arguments]
            expected, found = function(*eager), compiled(*traced)
            same(found, expected)
            weighted(expected).backward()
            weighted(found).backward()
            for x, y in zip(eager, traced, strict=True):
                same(y.grad, x.grad)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs == 2, f"{graphs} graphs: one for the first shape, one for all others"
        assert not torch._dynamo.utils.counters["graph_break"]


def check_compile_refusals(world: Any) -> None:
    def stores(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(world_size * x.numel())
        return kernels.all_gather(out, x)

    world_size = world.n_pes
    with raises(Exception, r"functional\.all_gather, which returns a new tensor"):
        torch.compile(stores, backend="aot_eager", fullgraph=True)(torch.ones(3))
    same(torch.compile(stores, backend="aot_eager")(torch.ones(3)), torch.ones(3 * world_size))  # the graph breaks
    with raises(Exception, "a is of torch.float32, and b of torch.float16"):
        torch.compile(lambda a, b: functional.all_gather_gemm(a, b), backend="aot_eager", fullgraph=True)(
            torch.ones(2, 2), torch.ones(2, 2).half()
        )


def check_symmetric_tensors_as_operands(world: Any) -> None:
    """They may be parameters, wrapped by nothing, and be dropped: operators keep no symmetric memory of the caller."""
    weight = torch.nn.Parameter(triton_dist.from_tensor(whole(5, 4)))
    x = triton_dist.from_tensor(whole(2 * world.n_pes, 4, seed=world.pe))
    y = functional.gemm_reduce_scatter(x, weight.t())
    y.sum().backward()
    assert weight.grad is not None
    compiled = torch.compile(lambda t: functional.all_reduce(t) * 2, backend="aot_eager", fullgraph=True)
    same(compiled(x), 2 * functional.all_reduce(x))
    free = world.heap_free
    del weight, x, y, compiled
    torch._dynamo.reset()
    gc.collect()
    triton_dist.collect()
    assert world.heap_free > free


def check_fp8(world: Any) -> None:
    a, b = whole(2 * world.n_pes, 16).to(torch.float8_e4m3fn), whole(16, 8, seed=1).to(torch.float8_e5m2)
    scale = torch.tensor(0.5)
    plain = kernels.all_gather_gemm(a, b, scale_a=scale, scale_b=2.0)
    assert torch.equal(functional.all_gather_gemm(a, b, scale_a=scale, scale_b=torch.tensor(2.0)), plain)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a, b: kernels.all_gather_gemm(a, b, scale_a=scale, scale_b=2.0), backend="aot_eager", fullgraph=True
    )
    assert torch.equal(compiled(a, b), plain) and plain.dtype == torch.bfloat16
    out = functional.gemm_reduce_scatter(a, b, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    with raises(ValueError, "operands of torch.float8_e4m3fn have no gradient here"):
        functional.all_gather_gemm(a.detach().requires_grad_(), b)


def check_mistakes(world: Any) -> None:
    n = world.n_pes
    a, b = torch.ones(2 * n, 3), torch.ones(3, 5)
    with raises(ValueError, rf"the group has {n + 1} members, and the world has {n} PEs"):
        OPS.all_reduce(a, "sum", n + 1, "")
    with raises(ValueError, "all_gather_gemm: there is no process group named 'tp'"):
        functional.all_gather_gemm(a, b, group="tp")
    with raises(ValueError, "all_gather_gemm: a must have two dimensions or more", r"\(6,\)|\(\d+, 3\)"):
        functional.all_gather_gemm(a, torch.ones(4, 5))
    with raises(ValueError, r"gather_dim must be in \[0, 1\), got 1"):
        functional.all_gather_gemm(a, b, 1)
    with raises(ValueError, "gemm_reduce_scatter: reduce_op must be 'sum', got 'avg'"):
        functional.gemm_reduce_scatter(a, b, "avg")
    with raises(ValueError, "reduce_scatter: op must be 'sum', 'max', 'min', 'avg', got 'prod'"):
        functional.reduce_scatter(a, "prod")
    with raises(ValueError, "all_reduce: sum is of .*, got torch.int16"):
        functional.all_reduce(a.short())
    with raises(ValueError, "a is of torch.float32, and b of torch.bfloat16"):
        functional.gemm_all_reduce(a, b.bfloat16())
    with raises(ValueError, "no elements"):
        functional.all_gather_gemm(a[:, :0], b[:0])
    with raises(ValueError, "algorithm must be auto"):
        functional.all_gather(a, algorithm="fast")
    with raises(ValueError, "algorithm must be auto"):
        functional.all_gather_gemm(a, b, algorithm="fast")
    if n > 1:
        with raises(ValueError, rf"dimension 0 of a is {2 * n - 1}, which {n} PEs cannot share equally"):
            functional.gemm_reduce_scatter(a[1:], b)
        with raises(ValueError, rf"all_to_all: dimension 0 of input is {2 * n - 1}, which {n} PEs cannot"):
            functional.all_to_all(a[1:])


def main() -> None:
    run(globals())
    # The world of run() has ended.
    for call in (functional.all_reduce, torch.compile(functional.all_reduce, backend="aot_eager", fullgraph=True)):
        torch._dynamo.reset()
        with raises(RuntimeError, "there is no world: call triton_dist.init()"):
            call(torch.ones(2))
    print("passed: no_world", flush=True)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(functional.all_gather, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        with triton_dist.init() as world:
            for _ in range(2):
                same(compiled(torch.ones(2)), torch.ones(2 * world.n_pes))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    print("passed: one_graph_for_worlds_of_a_size", flush=True)
    with triton_dist.init():
        x = torch.ones(2, requires_grad=True)
        y = functional.all_reduce(x)
    with raises(RuntimeError, "there is no world: call triton_dist.init()"):
        y.sum().backward()
    print("passed: backward_after_finalize", flush=True)


if __name__ == "__main__":
    main()
