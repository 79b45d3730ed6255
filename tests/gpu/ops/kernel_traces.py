"""Traces by the clocks of real GPUs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median

import triton
import triton.language as tl

import triton_dist
from ops.harness import check
from triton_dist import World, environment
from triton_dist.kernels.meet import meet
from triton_dist.kernels.trace import COMPUTE, WAIT, Trace, clock, note
from triton_dist.kernels.workspace import room


@triton.jit
def steps(x, trace, meeting_room, n, N_PES: tl.constexpr, TRACE: tl.constexpr):
    for step in range(n):
        began = clock(TRACE)
        for _ in range(1000):
            tl.store(x + tl.program_id(0), tl.load(x + tl.program_id(0), volatile=True) + 1)
        note(trace, COMPUTE, step, began, TRACE)
        began = clock(TRACE)
        meet(meeting_room, tl.program_id(0), N_PES)
        note(trace, WAIT, step, began, TRACE)


@check(gpu_only=True)
def kernels_trace(world: World) -> None:
    """Steps follow each other, nobody leaves a meeting before all have come, and then all clocks show about the same.

    PEs on one GPU have one clock, but take turns of milliseconds: a meeting does not bring them together in time. There
    the order is checked in that clock's own time, without the zeros that meetings gave.
    """
    n, programs = 20, 4
    x, trace = triton_dist.zeros(programs), Trace(programs)
    steps[(programs,)](x, trace.tensor, room("traced"), n, world.n_pes, True)  # also compiles
    triton_dist.barrier_all()
    trace.clear()
    steps[(programs,)](x, trace.tensor, room("traced"), n, world.n_pes, True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        trace.write(file)
        if world.pe != 0:
            return
        events = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    shared = environment.get("TRITON_DIST_ALLOW_SHARED_GPU")
    clocks_differ = 1 if shared else 20  # µs
    zeros = [int(triton_dist.peer(trace.tensor, pe)[0, 0, 3]) for pe in range(world.n_pes)]
    for event in events:
        event["ts"] += (zeros[event["pid"]] - zeros[0]) / 1000 if shared else 0
    assert len(events) == 2 * n * programs * world.n_pes
    for pe in range(world.n_pes):
        for program in range(programs):
            mine = [event for event in events if (event["pid"], event["tid"]) == (pe, program)]
            for one, next_ in zip(mine, mine[1:]):  # noqa: B905, RUF007
                assert one["ts"] + one["dur"] <= next_["ts"] + 0.1, f"{one} overlaps {next_}"
            assert all(event["dur"] > 10 for event in mine if event["cat"] == "compute")
    spreads = []
    for step in range(n):
        for program in range(programs):
            waits = [event for event in events if event["name"] == f"wait {step}" and event["tid"] == program]
            began = [event["ts"] for event in waits]
            ended = [event["ts"] + event["dur"] for event in waits]
            assert max(began) < min(ended) + clocks_differ, f"somebody left {step} before all came: {began}, {ended} µs"
            spreads.append(max(ended) - min(ended))
    # Of most meetings: another program on a GPU, a debugger's say, may have its turn in one.
    assert shared or median(spreads) < clocks_differ, f"clocks differ: behind meetings they showed {spreads} µs apart"
