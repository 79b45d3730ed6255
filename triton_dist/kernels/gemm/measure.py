"""Choosing by measurement: each algorithm is timed when a shape is first used, and the fastest is cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch

import triton_dist
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.plan_cache import cached, shape_of
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.tracing.recorder import paused
from triton_dist.world.current import current_world

__all__ = ["fastest"]

RUNS = 5


def fastest(
    comm: Communicator,
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    ways: Mapping[str, Callable[[], object]],
    *options: Hashable,
) -> str:
    """The name of the fastest of ``ways`` to compute c = a · b, as ``function`` does with ``options``, on the slowest
    member.
    *Collective* the first time for such matrices.

    In the CPU world, where times mean nothing, the first.
    """
    if triton_dist.kind() == "cpu" or len(ways) == 1:
        return next(iter(ways))
    key = (function, *shape_of(a, b), b.dtype, c.dtype, b.stride(1) == 1, tuple(ways), *options)
    return cached(comm, ("fastest", key), lambda: _measure(comm, ways))


@paused()
def _measure(comm: Communicator, ways: Mapping[str, Callable[[], object]]) -> str:
    times = torch.zeros(len(ways), device=current_world().device)
    for i, run in enumerate(ways.values()):
        run()  # compiles, and makes what is cached
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()  # the host's share does not count: where it matters, users capture, too
        # (Another thread may use the pooled stream that torch would capture on. Its work would be captured, too.)
        with side_stream(comm) as side, torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            for _ in range(RUNS):
                run()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        comm.barrier()
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        comm.barrier()
        times[i] = begin.elapsed_time(end)
    shared = comm.empty(len(ways), dtype=times.dtype).copy_(times)
    comm.barrier()
    slowest = torch.stack([comm.peer(shared, rank).cpu() for rank in range(comm.n_pes)]).amax(0)
    comm.barrier()
    return list(ways)[int(slowest.argmin())]
