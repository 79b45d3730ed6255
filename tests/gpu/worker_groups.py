"""Groups and communicators of the kernel library: one PE's part.

    torchrun --nproc-per-node 2 tests/gpu/worker_groups.py            # 4 PEs have more groups, also on 2 GPUs
    torchrun --nproc-per-node 2 tests/gpu/worker_groups.py shapes     # must end with an error that names both shapes

Without GPUs (TRITON_DIST_WORLD=cpu) the checks that need streams are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from worker_checks import run_checks

import triton_dist
from triton_dist import World, kernels
from triton_dist.kernels import Communicator
from triton_dist.kernels.communicator import communicator_of

ROUNDS = 200
HANG_SECONDS = 200  # of one check
COLLECTIVES = {
    "all_gather": ("low_latency", "push", "copy_engine", "auto"),
    "reduce_scatter": ("low_latency", "exchange", "push", "auto"),
    "all_reduce": ("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct", "auto"),
    "all_to_all": ("low_latency", "push", "copy_engine", "auto"),
    "broadcast": ("low_latency", "push", "scatter", "auto"),
}


def numbers(numel: int, seed: int, device: torch.device) -> torch.Tensor:
    """Small integers, whose sums and products are exact."""
    return torch.randint(-2, 3, (numel,), generator=torch.Generator().manual_seed(seed)).to(device, torch.bfloat16)


def groups_of(world: World) -> dict[str, Any]:
    """By name, teams that this PE is in: all, each alone, and with four PEs rows, columns and overlapping ones."""
    found: dict[str, Any] = {"all": None}
    for pe in range(world.n_pes):
        team = world.team_world.split_strided(pe, 1, 1)
        if team:
            found["alone"] = team
    if world.n_pes >= 4:
        found["row"], found["column"] = world.team_world.split_2d(2)
        for start in range(world.n_pes - 2):
            team = world.team_world.split_strided(start, 1, 3)
            if team:
                found[f"three from {start}"] = team
    return found


def collectives(world: World) -> None:
    """Every algorithm of every collective in every group."""
    n = 4096 if world.kind == "gpu" else 64
    whole = triton_dist.zeros(n * world.n_pes, dtype=torch.bfloat16)
    part = triton_dist.zeros(n, dtype=torch.bfloat16)
    for name, group in groups_of(world).items():
        comm = communicator_of(group)
        size, rank = comm.n_pes, comm.my_rank
        everybody = [numbers(n * size, pe, world.device) for pe in comm.pes]
        out = whole[: n * size]
        expected = {
            "all_gather": torch.cat([other[:n] for other in everybody]),
            "reduce_scatter": sum(everybody).view(size, n)[rank],
            "all_reduce": sum(everybody),
            "all_to_all": torch.cat([other.view(size, n)[rank] for other in everybody]),
            "broadcast": everybody[size - 1],
        }
        for function, algorithms in COLLECTIVES.items():
            for algorithm in algorithms:
                out.copy_(everybody[rank])
                if function == "all_gather":
                    found = kernels.all_gather(out, everybody[rank][:n], algorithm=algorithm, group=group)
                elif function == "reduce_scatter":
                    found = kernels.reduce_scatter(part, everybody[rank], algorithm=algorithm, group=group)
                elif function == "all_reduce":
                    found = kernels.all_reduce(out, algorithm=algorithm, group=group)
                elif function == "all_to_all":
                    found = kernels.all_to_all(out, everybody[rank], algorithm=algorithm, group=group)
                else:
                    found = kernels.broadcast(out, size - 1, algorithm=algorithm, group=group)
                assert torch.equal(found, expected[function]), f"{function}, {algorithm}, {name}"


def gemms(world: World) -> None:
    """The fused GEMMs in every group, by every algorithm that is available."""
    for name, group in groups_of(world).items():
        gemms_of(world, name, group)


def gemms_of(world: World, name: str, group: Any) -> None:
    m, k, n = (512, 512, 256) if world.kind == "gpu" else (8, 12, 16)
    comm = communicator_of(group)
    size, rank = comm.n_pes, comm.my_rank
    a = [numbers(m * size * k, pe, world.device).view(m * size, k) for pe in comm.pes]
    b = [numbers(k * n, 50 + pe, world.device).view(k, n) for pe in comm.pes]
    exact = [(x.float() @ y.float()).bfloat16().float() for x, y in zip(a, b, strict=True)]
    summed = sum(exact)
    whole = comm.empty(m * size, n, dtype=torch.bfloat16)
    scattered = comm.empty(m, n * size, dtype=torch.bfloat16)
    gathered = torch.cat([x[:m] for x in a]).float() @ b[0].float()
    columns = torch.cat([a[0][:m].float() @ y.float() for y in b], 1)
    cases: dict[str, tuple[tuple[str, ...], Callable[[str], torch.Tensor], torch.Tensor]] = {
        "gemm_reduce_scatter": (
            ("bulk_synchronous", "ring", "direct", "auto"),
            lambda algorithm: kernels.gemm_reduce_scatter(a[rank], b[rank], algorithm=algorithm, group=group),
            summed[rank * m : (rank + 1) * m],
        ),
        "gemm_all_reduce": (
            ("bulk_synchronous", "ring", "direct", "auto"),
            lambda algorithm: kernels.gemm_all_reduce(a[rank], b[rank], whole, algorithm=algorithm, group=group),
            summed,
        ),
        "all_gather_gemm": (
            ("bulk_synchronous", "copy_engine", "push", "auto"),
            lambda algorithm: kernels.all_gather_gemm(a[rank][:m], b[0], algorithm=algorithm, group=group),
            gathered,
        ),
        "gemm_all_scatter": (
            ("copy_engine", "warp_specialized", "fused_sequential", "fused_producer_consumer", "auto"),
            lambda algorithm: kernels.gemm_all_scatter(a[0][:m], b[rank], scattered, algorithm=algorithm, group=group),
            columns,
        ),
    }
    for function, (algorithms, run, expected) in cases.items():
        for algorithm in algorithms:
            if world.kind == "cpu" and algorithm in ("ring", "direct", "copy_engine", "push", "warp_specialized"):
                continue
            if world.shares_gpu and (function, algorithm) == ("all_gather_gemm", "copy_engine"):
                continue  # refused there
            for _ in range(2):
                found = run(algorithm).float()
                close = (found - expected).abs() <= expected.abs() / 64 + 1  # partial sums are rounded to bfloat16
                assert close.all(), f"{function}, {algorithm}, {name}"


def two_communicators_on_two_streams(world: World) -> None:
    """At the same time, with no order between the streams; and one communicator that goes from stream to stream."""
    with Communicator() as first, Communicator() as second:
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        tensors = [triton_dist.zeros(1 << 16, dtype=torch.float32) for _ in streams]
        for tensor, algorithm, comm in zip(tensors, ("push", "direct"), (first, second), strict=True):
            kernels.all_reduce(tensor, algorithm=algorithm, group=comm)  # PEs meet in first calls, in one order
        torch.cuda.synchronize()
        triton_dist.barrier_all()
        for i in range(ROUNDS):
            order = (0, 1) if (i + world.pe) % 2 else (1, 0)  # PEs start them in different orders
            for j in order:
                with torch.cuda.stream(streams[j]):
                    tensors[j].fill_(i + world.pe)
                    kernels.all_reduce(tensors[j], algorithm=("push", "direct")[j], group=(first, second)[j])
        torch.cuda.synchronize()
        expected = sum(ROUNDS - 1 + pe for pe in range(world.n_pes))
        assert all((tensor == expected).all() for tensor in tensors)
        for i in range(ROUNDS):  # the communicator orders its calls
            with torch.cuda.stream(streams[i % 2]):
                tensors[i % 2].fill_(i + world.pe)
                kernels.all_reduce(tensors[i % 2], algorithm="two_shot" if i % 3 else "push", group=first)
        torch.cuda.synchronize()
        assert (tensors[(ROUNDS - 1) % 2] == expected).all()


def graphs_of_two_communicators(world: World) -> None:
    """Captured and replayed on two streams at once, in different orders on the PEs."""
    with Communicator() as first, Communicator() as second:
        tensors = [triton_dist.zeros(1 << 14, dtype=torch.float32) for _ in range(2)]
        graphs, streams = [], [torch.cuda.Stream(), torch.cuda.Stream()]
        for tensor, comm in zip(tensors, (first, second), strict=True):
            kernels.all_reduce(tensor, algorithm="push", group=comm)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(3):
                    tensor.fill_(1.0)
                    kernels.all_reduce(tensor, algorithm="push", group=comm)
            graphs.append(graph)
        torch.cuda.synchronize()
        triton_dist.barrier_all()
        for i in range(ROUNDS):
            for j in (0, 1) if (i + world.pe) % 2 else (1, 0):
                with torch.cuda.stream(streams[j]):
                    graphs[j].replay()
        torch.cuda.synchronize()
        assert all((tensor == world.n_pes).all() for tensor in tensors)


@contextmanager
def raises(text: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        found = str(error)
    else:
        found = "no error"
    assert text in found, found


def mistakes(world: World) -> None:
    """Captures without preparation, and captures that are two at a time or behind unfinished work."""
    tensor = torch.zeros(64, device=world.device)
    with Communicator() as comm:
        with raises("while a CUDA graph is captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            kernels.all_reduce(tensor, group=comm)
        torch.cuda.synchronize()
        kernels.all_reduce(tensor, group=comm)
        torch.cuda.synchronize()
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=one, capture_error_mode="thread_local"):
            kernels.all_reduce(tensor, group=comm)
            with torch.cuda.stream(other), raises("that is being captured on another stream"):
                kernels.all_reduce(tensor, group=comm)
        torch.cuda.synchronize()
        kernels.all_reduce(tensor, group=comm)
        torch.cuda.synchronize()
    triton_dist.barrier_all()


def shapes(world: World) -> None:
    """After equal calls PE 0 makes one that is new to it and the others a known one: both are named within seconds."""
    for n in (64, 128):
        kernels.all_reduce(torch.zeros(n, device=world.device))
    n = 96 if world.pe == 0 else 64
    kernels.all_reduce(torch.zeros(n, device=world.device))
    if world.kind == "gpu":
        torch.cuda.synchronize()


def main() -> int:
    checks: list[Callable[[World], None]] = [collectives, gemms]
    with triton_dist.init() as world:
        if sys.argv[1:] == ["shapes"]:
            checks = [shapes]
        elif world.kind == "gpu":
            checks += [two_communicators_on_two_streams, graphs_of_two_communicators, mistakes]
        run_checks(world, checks, seconds=HANG_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
