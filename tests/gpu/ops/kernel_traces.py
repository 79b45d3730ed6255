"""Traces by the clocks of real GPUs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import triton
import triton.language as tl

import triton_dist
from ops.harness import check
from triton_dist import World
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
    """Steps follow each other, and after a meeting the clocks of all PEs show nearly the same."""
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
    assert len(events) == 2 * n * programs * world.n_pes
    for pe in range(world.n_pes):
        for program in range(programs):
            mine = [event for event in events if (event["pid"], event["tid"]) == (pe, program)]
            for one, next_ in zip(mine, mine[1:]):  # noqa: B905, RUF007
                assert one["ts"] + one["dur"] <= next_["ts"] + 0.1, f"{one} overlaps {next_}"
            assert all(event["dur"] > 10 for event in mine if event["cat"] == "compute")
    for step in range(n):
        ends = [event["ts"] + event["dur"] for event in events if event["name"] == f"wait {step}" and event["tid"] == 0]
        assert max(ends) - min(ends) < 20, f"clocks differ by {max(ends) - min(ends):.1f} µs in step {step}: {ends}"
