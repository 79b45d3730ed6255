"""What a server does: workspaces reserved, any number of rows in graphs, algorithms tuned once. One PE's part.

torchrun --nproc-per-node 2 tests/gpu/worker_serving.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from triton.runtime.jit import JITFunction
from worker_checks import run_checks

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels.choice.measure import measure
from triton_dist.kernels.choice.tables import Table
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.gemm.hopper.launch import fits

MOST, HIDDEN, K = 1024, 1024, 512
GRAPHS = (1, 7, 16, 33, 64, 65, 100, 127, 128, 129, 250, 256, 257, 511, 640, 1000, 1024)
BF16 = torch.bfloat16

Check = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""By rows: makes a call, and gives its result and what that must be."""


def matrix(rows: int, columns: int, seed: int, device: torch.device) -> torch.Tensor:
    """Small integers: products and sums of them are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (rows, columns), generator=generator).to(device, BF16)


def calls_of(world: World) -> dict[str, Check]:
    n, pe, device = world.n_pes, world.pe, world.device
    a = [matrix(MOST, K, i, device) for i in range(n)]
    b = [matrix(K, HIDDEN, 10 + i, device) for i in range(n)]
    products = [x.float() @ y.float() for x, y in zip(a, b, strict=True)]
    total = sum(products[1:], products[0]).to(BF16)
    beside = torch.cat([a[0].float() @ y.float() for y in b], 1).to(BF16)
    out, wide = triton_dist.zeros(MOST, HIDDEN, dtype=BF16), triton_dist.zeros(MOST, n * HIDDEN, dtype=BF16)
    x = triton_dist.from_tensor(products[pe].to(BF16))
    summed = sum(product.to(BF16).float() for product in products)
    assert isinstance(summed, torch.Tensor)
    scattered = torch.zeros(MOST, HIDDEN, dtype=BF16, device=device)

    def all_reduce(m: int, algorithm: str) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.all_reduce(x[:m], out=out[:m], algorithm=algorithm), summed[:m].to(BF16)

    def norm(m: int, algorithm: str) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.all_reduce_norm(x[:m], algorithm=algorithm).residual, summed[:m].to(BF16)

    def gemm_all_reduce(m: int, algorithm: str) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.gemm_all_reduce(a[pe][:m], b[pe], out[:m], algorithm=algorithm), total[:m]

    def gemm_reduce_scatter(m: int, algorithm: str) -> tuple[torch.Tensor, torch.Tensor]:
        each = -(-m // n)
        rows = slice(pe * each, (pe + 1) * each)
        call = kernels.gemm_reduce_scatter(a[pe][: each * n], b[pe], scattered[:each], algorithm=algorithm)
        return call, total[: each * n][rows]

    def gemm_all_scatter(m: int, algorithm: str) -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.gemm_all_scatter(a[0][:m], b[pe], wide[:m], algorithm=algorithm), beside[:m]

    hopper = fits(communicator_of(), a[pe], b[pe], out)
    scatter = ("fused_sequential", *(("warp_specialized", "fused_producer_consumer", "copy_engine") if hopper else ()))
    found: dict[str, Check] = {}
    for function, algorithms in (
        (all_reduce, ("auto", "push", "direct")),
        (norm, ("auto", "one_shot", "two_shot", "unfused")),
        (gemm_all_reduce, ("auto", "bulk_synchronous")),
        (gemm_reduce_scatter, ("auto", "bulk_synchronous")),
        (gemm_all_scatter, ("auto", "bulk_synchronous", *scatter)),
    ):
        for algorithm in algorithms:
            found[f"{function.__name__}, {algorithm}"] = partial(function, algorithm=algorithm)
    return found


def captured(call: Check, m: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found, expected = call(m)
    return graph, found, expected


def check_new_rows_in_graphs(world: World) -> None:
    """Once some rows of each bucket have run, others compile nothing, make no memory, and can be captured."""
    made = kernels.reserve(max_tokens=MOST, hidden=world.n_pes * HIDDEN)
    comm = communicator_of()
    assert sum(made.values()) <= comm.workspace_bytes
    calls = calls_of(world)
    prepared = sorted({1, 16, 32, 64, 128, *range(2, 130, 32), *range(120, MOST, 128), *range(128, MOST + 1, 128)})
    for call in calls.values():
        for m in prepared:
            call(m)
    torch.cuda.synchronize()
    before = comm.workspace_bytes, world.heap_free
    compiled: list[str] = []
    plain = JITFunction._do_compile

    def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append(self.__name__)
        return plain(self, *arguments, **options)

    JITFunction._do_compile = counting
    try:
        for name, call in calls.items():
            for m in GRAPHS:
                graph, found, expected = captured(call, m)
                for _ in range(2):
                    found.fill_(77)
                    triton_dist.barrier_all()
                    graph.replay()
                    torch.cuda.synchronize()
                    assert torch.equal(found, expected), f"{name}, {m} rows"
                    triton_dist.barrier_all()
    finally:
        JITFunction._do_compile = plain
    assert not compiled, f"compiled in buckets that were prepared: {compiled}"
    assert (comm.workspace_bytes, world.heap_free) == before, "a new number of rows made memory"


def check_what_is_tuned_is_taken(world: World) -> None:
    times = kernels.tune("all_reduce", "gemm_all_reduce", max_tokens=32, hidden=HIDDEN, weights=[(K, HIDDEN)])
    assert set(times) == {"all_reduce", "local_gemm", "gemm_all_reduce"}
    assert all(time > 0 for cases in times.values() for of_case in cases.values() for time in of_case.values())
    with kernels.Communicator() as later:  # as a later process
        table: Table = later.tables[0]
        assert {case.operation for case in table.entries} >= set(times), "the times are in the file of this host"
        for name, call in calls_of(world).items():
            found, expected = call(16)
            torch.cuda.synchronize()
            assert torch.equal(found, expected), name
            triton_dist.barrier_all()


def check_times_are_those_of_the_slowest(world: World) -> None:
    comm = communicator_of()
    sleep = {"short": 10_000, "long": 2_000_000 if world.pe == world.n_pes - 1 else 10_000}
    ways = {name: partial(torch.cuda._sleep, cycles) for name, cycles in sleep.items()}
    times = measure(comm, ways)
    assert times is not None and times["long"] > 10 * times["short"], times
    assert len(set(comm.exchange("the same on all", str(times)))) == 1


def main() -> int:
    with triton_dist.init() as world:
        run_checks(world, [check for name, check in globals().items() if name.startswith("check_")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
