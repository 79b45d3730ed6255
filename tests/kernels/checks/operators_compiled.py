"""The operators of PyTorch under opcheck and torch.compile."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from harness import raises
from operands import leaf, same, weighted, whole

from triton_dist import kernels
from triton_dist.kernels import functional

NORMS = ("all_reduce_norm", "reduce_scatter_norm", "norm_all_gather")


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
        "all_gather_gemm_gradients": (leaf(whole(2 * n, 3 * n, 5)), leaf(a), leaf(b), 1, *where),
        "gemm_reduce_scatter_gradients": (leaf(whole(2, 3, 5)), leaf(a), leaf(b), 0, *where),
        "all_gather_gemm_gathered": (leaf(a), leaf(b), 0, *where, *options),
        "gemm_reduce_scatter": (leaf(a), leaf(b), "sum", 0, *where, *options, leaf(whole(2, 3, 5))),
        "gemm_all_reduce": (leaf(a), leaf(b), "sum", *where, True, *options, leaf(whole(2 * n, 3, 5))),
        "replicated_gemm": (leaf(a), leaf(b), *where),
        "gemm_all_scatter": (leaf(a), leaf(b), *where, *options),
        **{name: (whole(n, 8), None, None, None, "rms", None, 1e-6, "token", *where) for name in NORMS},
        "norm_gemm": (whole(2, 3, 4), whole(6, 4, seed=1).t(), whole(4, seed=2), 1e-6, "swiglu", whole(6, seed=3)),
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
        torch.library.opcheck(getattr(torch.ops.triton_dist, name).default, arguments)


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


def check_compile_with_groups_that_are_new(world: Any) -> None:
    """Their communicators are made while the function is traced."""
    everyone = world.team_world
    for group in (everyone, everyone.split_strided(0, 1, world.n_pes)):
        compiled = torch.compile(partial(functional.all_reduce, group=group), backend="aot_eager", fullgraph=True)
        same(compiled(whole(3)), whole(3) * world.n_pes)


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
    with kernels.Communicator() as comm:
        summed = torch.compile(lambda x: functional.all_reduce(x, group=comm), backend="aot_eager")
        same(summed(torch.ones(3)), torch.full((3,), float(world_size)))
    with raises(RuntimeError, "communicator of PEs .* was closed"):
        summed(torch.ones(3))
