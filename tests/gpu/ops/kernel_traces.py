"""Traces by the clocks of real GPUs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
from ops.harness import check
from ops.kernel_gemms import matrix
from triton_dist import World, environment, kernels
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.workspace import barrier_state
from triton_dist.kernels.tracing.events import COMPUTE, WAIT, clock, record_event
from triton_dist.kernels.tracing.recorder import record

BF16 = torch.bfloat16


@triton.jit
def steps(x, trace, barriers, n, MEMBERS: tl.constexpr):
    for step in range(n):
        began = clock(trace)
        for _ in range(1000):
            tl.store(x + tl.program_id(0), tl.load(x + tl.program_id(0), volatile=True) + 1)
        record_event(trace, COMPUTE, step, began)
        began = clock(trace)
        barrier(barriers, tl.program_id(0), MEMBERS)
        record_event(trace, WAIT, step, began)


def traced(run: Callable[[], object]) -> tuple[list[dict[str, Any]], list[int]]:
    """On PE 0, the events of ``run`` on all PEs, and what their timers showed when it began."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        with kernels.tracing(file):
            run()
        if triton_dist.my_pe() != 0:
            return [], []
        found = json.loads(file.read_text())
    (zeros,) = found["otherData"].values()
    return [event for event in found["traceEvents"] if event["ph"] == "X"], zeros


def in_turn(events: list[dict[str, Any]]) -> None:
    """No event of a thread begins before another has ended."""
    last: dict[tuple[int, int], dict[str, Any]] = {}
    for event in sorted(events, key=lambda event: float(event["ts"])):
        before = last.get((event["pid"], event["tid"]))
        assert before is None or before["ts"] + before["dur"] <= event["ts"] + 0.1, f"{before} overlaps {event}"
        last[event["pid"], event["tid"]] = event


@check(gpu_only=True, maps_all=True)
def kernels_trace(world: World) -> None:
    """Steps follow each other, no program leaves a barrier before all have arrived, and then all clocks agree.

    PEs on one GPU have one clock, but take turns of milliseconds: a barrier does not bring them together in time. There
    the order is checked in that clock's own time, without the zeros that barriers gave.
    """
    n, programs = 20, 4
    x = triton_dist.zeros(programs)

    def run() -> None:
        steps[(programs,)](
            x, record("steps", programs), barrier_state(communicator_of(), "traced"), n, communicator_of().members
        )

    traced(run)  # compiles
    events, zeros = traced(run)
    if world.pe != 0:
        return
    shared = environment.get("TRITON_DIST_ALLOW_SHARED_GPU")
    clocks_differ = 1 if shared else 20  # µs
    for event in events:
        event["ts"] += (zeros[event["pid"]] - zeros[0]) / 1000 if shared else 0
    assert len(events) == 2 * n * programs * world.n_pes
    in_turn(events)
    assert all(event["dur"] > 10 for event in events if event["cat"] == "compute")
    spreads = []
    for step in range(n):
        for program in range(programs):
            waits = [event for event in events if event["name"] == f"wait {step}" and event["tid"] == 1 + program]
            began = [event["ts"] for event in waits]
            ended = [event["ts"] + event["dur"] for event in waits]
            assert max(began) < min(ended) + clocks_differ, f"somebody left {step} before all came: {began}, {ended} µs"
            spreads.append(max(ended) - min(ended))
    # Of most barriers: another program on a GPU, a debugger's say, may have its turn in one.
    assert shared or median(spreads) < clocks_differ, f"clocks differ: behind barriers they showed {spreads} µs apart"


def same_when_traced(name: str, call: Callable[[], torch.Tensor]) -> None:
    """A product gives the same traced or not; traced, every tile is computed and sent, in this order, on every PE."""
    expected = call().clone()
    traced(call)  # compiles
    found: list[torch.Tensor] = []
    events, _ = traced(lambda: found.append(call().clone()))
    assert torch.equal(found[0], expected), f"{name}: another result when it is traced"
    assert torch.equal(call(), expected), f"{name}: another result after it was traced"
    in_turn(events)
    for pe in range(triton_dist.n_pes() if triton_dist.my_pe() == 0 else 0):
        ended: dict[str, dict[str, float]] = {"compute": {}, "send": {}}
        for event in events:
            if event["pid"] == pe and event["cat"] in ended and "tile" in event["args"]:
                end, tile = event["ts"] + event["dur"], str(event["args"]["tile"])
                ended[event["cat"]][tile] = max(end, ended[event["cat"]].get(tile, end))
        computed, sent = ended["compute"], ended["send"]
        assert computed and computed.keys() == sent.keys(), f"{name}, PE {pe}: {computed.keys() ^ sent.keys()}"
        assert all(computed[tile] <= sent[tile] + 0.1 for tile in computed), f"{name}, PE {pe}"


@check(gpu_only=True, maps_all=True)
def kernels_trace_gemm_all_scatter(world: World) -> None:
    a, b = matrix(2048, 512, 1, BF16), matrix(512, 640, 2 + world.pe, BF16)
    out = triton_dist.zeros(2048, 640 * world.n_pes, dtype=BF16)
    for algorithm in ("copy_engine", "fused_producer_consumer", "warp_specialized"):
        same_when_traced(algorithm, partial(kernels.gemm_all_scatter, a, b, out, algorithm=algorithm))


@check(gpu_only=True, maps_all=True, own_gpu=True)
def kernels_trace_gathering_and_rings(world: World) -> None:
    m = 512 * world.n_pes
    a, b = matrix(m, 512, 1 + world.pe, BF16), matrix(512, 640, 50 + world.pe, BF16)
    out = triton_dist.zeros(m, 640, dtype=BF16)
    for algorithm in ("copy_engine", "push"):
        same_when_traced(f"gathering, {algorithm}", partial(kernels.all_gather_gemm, a[:512], b, algorithm=algorithm))
    same_when_traced("ring", partial(kernels.gemm_reduce_scatter, a, b, algorithm="ring"))
    same_when_traced("to owners of rows", partial(kernels.gemm_reduce_scatter, a, b, algorithm="direct"))
    same_when_traced("to owners", partial(kernels.gemm_all_reduce, a, b, out, algorithm="direct"))
    same_when_traced("ring to all", partial(kernels.gemm_all_reduce, a, b, out, algorithm="ring"))


@check(gpu_only=True, maps_all=True)
def kernels_trace_small_m(world: World) -> None:
    a, b = matrix(32, 512, 1 + world.pe, BF16), matrix(512, 640, 50 + world.pe, BF16)
    out = triton_dist.zeros(32, 640, dtype=BF16)
    same_when_traced("small M", partial(kernels.gemm_reduce_scatter, a, b, algorithm="fused"))
    same_when_traced("small M to all", partial(kernels.gemm_all_reduce, a, b, out, algorithm="fused"))


@check(gpu_only=True, maps_all=True)
def kernels_trace_in_a_graph(world: World) -> None:
    """Of the replays of a graph that was captured while tracing was on, the last is seen."""
    a, b = matrix(2048, 512, 1, BF16), matrix(512, 640, 2 + world.pe, BF16)
    out = triton_dist.zeros(2048, 640 * world.n_pes, dtype=BF16)
    call = partial(kernels.gemm_all_scatter, a, b, out, algorithm="warp_specialized")
    traced(call)  # compiles
    ends: list[int] = []

    def replays() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        for _ in range(3):
            ends.append(time.time_ns())
            graph.replay()
            torch.cuda.synchronize()
            time.sleep(0.01)
        kept.append(graph)  # its memory, too, which is read when tracing ends

    kept: list[torch.cuda.CUDAGraph] = []
    events, _ = traced(replays)
    single, _ = traced(call)
    if world.pe == 0:
        assert len(events) == len(single)
        assert min(event["ts"] for event in events) > (ends[2] - ends[0]) / 1000  # µs since tracing began
