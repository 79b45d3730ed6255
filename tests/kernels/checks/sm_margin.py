"""Calls with ``sm_margin=`` give the same results with no more programs than SMs are left, and refuse other margins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import launches, raises
from harness import main as run

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.device import sms
from triton_dist.kernels.gemm.gemm_all_scatter import ALGORITHMS as SCATTER
from triton_dist.kernels.gemm.partial_sums import ALGORITHMS as REDUCE


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def same_with_margins(run: Callable[..., torch.Tensor], expected: torch.Tensor) -> None:
    """``run`` with every margin, and then without one: programs keep their slots and epochs between launches."""
    for margin in (*range(sms()), 0):
        with launches() as launched:
            found = run(sm_margin=margin)
        programs = [launch.programs for launch in launched]
        assert torch.equal(found, expected), f"margin {margin}: {found} is not {expected}"
        assert programs and (margin == 0 or max(programs) <= sms() - margin), f"{programs} with margin {margin}"
        triton_dist.barrier_all()


def check_collectives(world: Any) -> None:
    n, size = world.n_pes, 300
    inputs = [numbers(size * n, seed=pe) for pe in range(n)]
    mine = inputs[world.pe]
    whole, out = triton_dist.zeros(size * n), triton_dist.zeros(size * n * n)
    for algorithm in ("low_latency", "push", "copy_engine", "auto"):
        few = 96 if algorithm == "low_latency" else size * n  # a program exchanges fewer words here than on a GPU

        def gather(sm_margin: int, few: int = few, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.all_gather(out[: few * n], mine[:few], algorithm=algorithm, sm_margin=sm_margin)

        def exchange(sm_margin: int, few: int = few, algorithm: str = algorithm) -> torch.Tensor:
            few = few // n * n
            return kernels.all_to_all(whole[:few], mine[:few], algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(gather, torch.cat([input[:few] for input in inputs]))
        parts = [input[: few // n * n].view(n, -1)[world.pe] for input in inputs]
        same_with_margins(exchange, torch.cat(parts))
    for algorithm in ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct", "auto"):
        few = 96 if algorithm in ("one_shot", "two_shot") else size * n

        def reduce(sm_margin: int, few: int = few, algorithm: str = algorithm) -> torch.Tensor:
            whole[:few] = mine[:few]
            return kernels.all_reduce(whole[:few], algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(reduce, sum(input[:few] for input in inputs))
    for algorithm in ("low_latency", "exchange", "push", "auto"):
        few = 96 // n if algorithm == "low_latency" else size

        def scatter(sm_margin: int, few: int = few, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.reduce_scatter(torch.empty(few), mine[: few * n], algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(scatter, sum(input[: few * n].view(n, few)[world.pe] for input in inputs))
    for algorithm in ("low_latency", "push", "scatter", "auto"):
        few = 96 if algorithm == "low_latency" else size * n

        def broadcast(sm_margin: int, few: int = few, algorithm: str = algorithm) -> torch.Tensor:
            whole[:few] = mine[:few]
            triton_dist.barrier_all()
            return kernels.broadcast(whole[:few], n - 1, algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(broadcast, inputs[-1][:few])


def check_gemms(world: Any) -> None:
    n, rows, k, columns = world.n_pes, 5, 9, 70
    operands = [(numbers(rows * n, k, seed=pe), numbers(k, columns, seed=9 + pe)) for pe in range(n)]
    a, b = operands[world.pe]
    first = operands[0][0]
    scattered, out = triton_dist.zeros(rows * n, columns * n), triton_dist.zeros(rows * n, columns)
    total = sum(x @ y for x, y in operands)
    mine = slice(world.pe * rows, (world.pe + 1) * rows)
    same_with_margins(
        lambda sm_margin: kernels.all_gather_gemm(a[:rows], b, sm_margin=sm_margin),
        torch.cat([x[:rows] for x, _ in operands]) @ b,
    )
    for algorithm in ("auto", *(name for name in REDUCE if name not in ("ring", "direct"))):

        def reduce(sm_margin: int, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.gemm_all_reduce(a, b, out, algorithm=algorithm, sm_margin=sm_margin)

        def reduce_scatter(sm_margin: int, algorithm: str = algorithm) -> torch.Tensor:
            return kernels.gemm_reduce_scatter(a, b, algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(reduce, total)
        same_with_margins(reduce_scatter, total[mine])
    for algorithm in ("auto", *(name for name in SCATTER if name not in ("copy_engine", "warp_specialized"))):

        def scatter(sm_margin: int, algorithm: str = algorithm) -> torch.Tensor:
            if "producer_consumer" in algorithm and sm_margin == sms() - 1:
                with raises(ValueError, f"algorithm {algorithm} needs two SMs"):
                    kernels.gemm_all_scatter(first, b, scattered, algorithm=algorithm, sm_margin=sm_margin)
                return kernels.gemm_all_scatter(first, b, scattered, sm_margin=sm_margin)
            return kernels.gemm_all_scatter(first, b, scattered, algorithm=algorithm, sm_margin=sm_margin)

        same_with_margins(scatter, torch.cat([first @ y for _, y in operands], 1))


def check_gradients(world: Any) -> None:
    """The margin passes through the functional form, too."""
    a, b = numbers(4, 6, seed=world.pe).requires_grad_(), numbers(6, 5, seed=7)
    with launches() as launched:
        kernels.all_gather_gemm(a, b, sm_margin=2).sum().backward()
    assert max(launch.programs for launch in launched[:2]) <= sms() - 2
    assert torch.equal(a.grad, world.n_pes * b.sum(1).expand(4, 6))


def check_mistakes(world: Any) -> None:
    part, whole = torch.zeros(8), triton_dist.zeros(8 * world.n_pes)
    for call in (
        lambda margin: kernels.all_reduce(part, sm_margin=margin),
        lambda margin: kernels.reduce_scatter(part, whole, sm_margin=margin),
        lambda margin: kernels.all_gather(whole, part, sm_margin=margin),
        lambda margin: kernels.all_to_all(whole, whole.clone(), sm_margin=margin),
        lambda margin: kernels.broadcast(whole, sm_margin=margin),
        lambda margin: kernels.all_gather_gemm(part.view(2, 4), part.view(4, 2), sm_margin=margin),
    ):
        for margin in (-1, sms(), 1 << 40):
            with raises(ValueError, rf"sm_margin must be in \[0, {sms()}\), got {margin}"):
                call(margin)
        for margin in (1.0, True, "2"):
            with raises(TypeError, "sm_margin must be an int, got"):
                call(margin)
    with raises(ValueError, "words are too many for algorithm one_shot"):
        kernels.all_reduce(torch.zeros(4096), algorithm="one_shot", sm_margin=sms() - 1)


if __name__ == "__main__":
    run(globals())
