"""Fused norms of rows that PEs cannot share equally: the last PEs have fewer rows, or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from harness import main as run
from harness import raises, some
from norms import close, expected, numbers
from norms import same as same_bits
from uneven import own

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import functional
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.norm.norm_all_gather import norm_all_gather
from triton_dist.kernels.norm.reduce_scatter_norm import reduce_scatter_norm

CASES = (
    # rows, columns, dtype, norm, quantize; every second one is quick
    (1, 7, torch.bfloat16, "layer", None),
    (2, 301, torch.float32, "rms", None),
    (7, 301, torch.bfloat16, "rms", "token"),
    (5, 3, torch.float16, "rms", None),
    (7, 256, torch.float32, "layer", "block"),
    (33, 384, torch.float16, "rms", "block"),
    (23, 40, torch.float32, "rms", None),
    (1, 129, torch.bfloat16, "layer", "token"),
)
_ops: Any = torch.ops.triton_dist


def terms(m: int, h: int, dtype: torch.dtype, world: Any, seed: int) -> tuple[list[torch.Tensor], Any, torch.Tensor]:
    """All PEs' rows, the vectors of a norm, and a residual of all rows."""
    xs = [numbers(m, h, seed=pe + seed, dtype=dtype) for pe in range(world.n_pes)]
    return xs, [numbers(h, seed=50 + i, dtype=dtype) for i in range(3)], numbers(m, h, seed=60, dtype=dtype)


def compare(m: int, h: int, dtype: torch.dtype, norm: str, quantize: str | None, world: Any, group: Any = None) -> None:
    """Both norms by every algorithm, each twice, the second time prepared where calls are."""
    xs, (weight, bias, shift), residual = terms(m, h, dtype, world, seed=m)
    mine = own(m, world)
    options: dict[str, Any] = {"bias": bias, "norm": norm, "norm_bias": shift, "quantize": quantize, "group": group}
    total = sum(x.double() for x in xs) + bias.double() + residual.double()
    whole = (xs[0].double() + bias.double() + residual.double()).to(dtype)
    gathered = expected(whole, weight, shift, norm, 1e-6)
    for algorithm in ("fused", "unfused", "auto"):
        first = None
        for _ in range(2):
            found = reduce_scatter_norm(xs[world.pe], weight, residual[mine], algorithm=algorithm, **options)
            assert len(found.output) == len(found.residual) == mine.stop - mine.start
            if len(found.output):
                y = expected(found.residual, weight, shift, norm, 1e-6)
                close(found, total[mine], y, 2 * (algorithm == "unfused"), quantize)
            same_bits(first or found, found)
            first = found
        if quantize and algorithm == "fused":
            continue
        first = None
        for _ in range(2):
            found = norm_all_gather(xs[0][mine], weight, residual[mine], algorithm=algorithm, rows=m, **options)
            assert found.output.shape == (m, h)
            torch.testing.assert_close(found.residual, whole[mine])
            close(SimpleNamespace(**found._asdict() | {"residual": whole}), whole.double(), gathered, 1, quantize)
            same_bits(first or found, found)
            first = found


def check_uneven_norms(world: Any) -> None:
    for case in some(CASES):
        compare(*case, world)
    compare(2 * world.n_pes, 16, torch.float32, "rms", None, world)  # equal shards, in the same workspace
    assert norm_all_gather(torch.empty(0, 64), rows=0).output.shape == (0, 64)


def check_uneven_norms_of_long_rows(world: Any) -> None:
    """Which only ``unfused`` takes, also where this PE has no row."""
    for m in some((1, 4)):
        x = numbers(m, 16385, seed=1)
        found = norm_all_gather(x[own(m, world)], rows=m)
        found = SimpleNamespace(**found._asdict() | {"residual": x})
        close(found, x.double(), expected(x, None, None, "rms", 1e-6), 1, None)
        summed = reduce_scatter_norm(x)
        torch.testing.assert_close(summed.residual, world.n_pes * x[own(m, world)])
    with raises(ValueError, "rows of 16385 columns are too long for algorithm fused", "use unfused"):
        norm_all_gather(x[own(m, world)], rows=m, algorithm="fused")


def check_uneven_norms_of_groups(world: Any) -> None:
    group = world.team_world.split_strided(1, 1, world.n_pes - 1)
    if group:
        comm = communicator_of(group)
        members: Any = SimpleNamespace(n_pes=comm.n_pes, pe=comm.my_rank)
        compare(5, 48, torch.float32, "rms", None, members, group)


def check_uneven_norms_of_operators(world: Any) -> None:
    """Public names without and with torch.compile, the number of rows changing."""
    n, weight = world.n_pes, numbers(128, seed=1)

    def norms(x: torch.Tensor, part: torch.Tensor, rows: int) -> list[Any]:
        return [
            *(kernels.reduce_scatter_norm(x, weight, quantize=how) for how in (None, "block")),
            *(kernels.norm_all_gather(part, weight, quantize=how, rows=rows) for how in (None, "token")),
        ]

    compiled = torch.compile(norms, backend="aot_eager", fullgraph=True)
    for m in some((7, 2 * n, 5, 11, 1, 1)):
        x = numbers(m, 128, seed=2)
        given = x, x[own(m, world)].clone(), m
        results = [torch.utils._pytree.tree_leaves(made(*given)) for made in (norms, compiled)]
        for plain, traced in zip(*results, strict=True):
            assert plain is traced or torch.equal(plain.view(torch.uint8), traced.view(torch.uint8))


def check_uneven_norms_opcheck(world: Any) -> None:
    x = numbers(7, 128, seed=2)
    part = x[own(7, world)]
    options = None, None, None, "rms", None, 1e-6, "token", world.n_pes, "", "auto"
    torch.library.opcheck(_ops.reduce_scatter_norm.default, (x, *options, len(part)))
    torch.library.opcheck(_ops.norm_all_gather.default, (part, *options, 7))


def check_mistakes_with_uneven_norms(world: Any) -> None:
    m = 3 * world.n_pes - 1
    x = torch.zeros(m, 64)
    part, rows = x[own(m, world)], len(x[own(m, world)])
    text = rf"residual must have shape \({rows}, 64\) .*, got \({rows + 1}, 64\)"
    with raises(ValueError, f"reduce_scatter_norm: {text}"):
        reduce_scatter_norm(x, residual=torch.zeros(rows + 1, 64))
    for wrong in (float(m), True, "7"):
        with raises(TypeError, "norm_all_gather: rows must be an int, got"):
            norm_all_gather(part, rows=wrong)  # type: ignore[arg-type]
    with raises(ValueError, "norm_all_gather: rows must be 0 or more, got -1"):
        norm_all_gather(part, rows=-1)
    with raises(ValueError, "the number of rows is .*, which . PEs cannot share equally"):
        _ops.reduce_scatter_norm(x, None, None, None, "rms", None, 1e-6, "", world.n_pes, "")
    with raises(ValueError, f"the number of rows is {m}, of which PE {world.pe} of .* has {rows}, got {rows + 1}"):
        _ops.reduce_scatter_norm(x, None, None, None, "rms", None, 1e-6, "", world.n_pes, "", rows=rows + 1)
    assert functional.reduce_scatter_norm(x).output.shape == part.shape
    triton_dist.barrier_all()


if __name__ == "__main__":
    run(globals())
