"""Times of an operation's algorithms, on the slowest PE. Only ``kernels.tune`` calls this."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch

import triton_dist
from triton_dist.decoding import decode, sequence
from triton_dist.kernels.choice.tables import microseconds
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.protocols.side_stream import side_stream
from triton_dist.kernels.tracing.recorder import paused

__all__ = ["measure"]

_RUNS = 10  # in a graph: the shortest take some microseconds
_ROUNDS = 3


@paused()
def measure(comm: Communicator, ways: Mapping[str, Callable[[], object]]) -> dict[str, float] | None:
    """Microseconds of each of ``ways``, in a graph, on the slowest member. *Collective.*

    Each has run once, and is captured as often on every member. In the CPU world, where times mean nothing, the result
    is None.
    """
    if triton_dist.kind() == "cpu":
        return None
    times = [_seconds(comm, run) * 1e6 / _RUNS for run in ways.values()]
    said = comm.exchange("the times of kernels.tune()", json.dumps([round(time, 3) for time in times]))
    of_all = [decode(text, sequence(microseconds, len(times))) for text in said]
    return {name: max(of_pes) for name, of_pes in zip(ways, zip(*of_all, strict=True), strict=True)}


def _seconds(comm: Communicator, run: Callable[[], object]) -> float:
    """The shortest time of a graph of ``_RUNS`` runs on this PE."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()  # the host's share does not count: where it matters, users capture, too
    # (Another thread may use the pooled stream that torch would capture on. Its work would be captured, too.)
    with side_stream(comm) as side, torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        for _ in range(_RUNS):
            run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(_ROUNDS + 1)]
    comm.barrier()
    graph.replay()
    for event in events[:-1]:
        event.record()
        graph.replay()
    events[-1].record()
    torch.cuda.synchronize()
    comm.barrier()
    return float(min(begin.elapsed_time(end) for begin, end in pairwise(events))) * 1e-3
