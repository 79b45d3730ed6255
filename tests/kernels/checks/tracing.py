"""What programs note, and the file that is made of it."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from harness import main

import triton_dist
from triton_dist.kernels.trace import COMPUTE, SEND, Trace, clock, note


@triton.jit
def work(x, trace, tiles, TRACE: tl.constexpr):
    for tile in range(tiles):
        began = clock(TRACE)
        tl.store(x + tile, tile)
        note(trace, COMPUTE, tile, began, TRACE)
        began = clock(TRACE)
        tl.store(x + tile, tile + 1)
        note(trace, SEND, tile, began, TRACE)


def written(trace: Trace) -> list[dict[str, Any]]:
    """The events, on PE 0; nothing on the others."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        trace.write(file)
        return json.loads(file.read_text())["traceEvents"] if triton_dist.my_pe() == 0 else []


def check_a_trace(world: Any) -> None:
    trace, x = Trace(programs=3), triton_dist.zeros(8)
    for _ in range(2):
        trace.clear()
        work[(3,)](x, trace.tensor, 4, True)
        events = written(trace)
        if world.pe != 0:
            continue
        tiles = [event for event in events if event["ph"] == "X"]
        seen = {(event["pid"], event["tid"], event["name"]) for event in tiles}
        expected = [f"{kind} {tile}" for kind in ("compute", "send") for tile in range(4)]
        assert seen == {(pe, program, name) for pe in range(world.n_pes) for program in range(3) for name in expected}
        assert all(0 <= event["ts"] < 60e6 and event["dur"] >= 0 for event in tiles)
        for pe in range(world.n_pes):
            mine = [event for event in tiles if (event["pid"], event["tid"]) == (pe, 0)]
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in itertools.pairwise(mine))


def check_events_beyond_the_capacity_are_counted(world: Any) -> None:
    trace, x = Trace(programs=1, capacity=3), triton_dist.zeros(8)
    work[(1,)](x, trace.tensor, 4, True)
    events = written(trace)
    if world.pe == 0:
        assert sum(event["ph"] == "X" for event in events) == 3 * world.n_pes
        assert any("5 events lost" in event["args"].get("name", "") for event in events)


def check_no_trace_is_needed_without_one(world: Any) -> None:
    x = triton_dist.zeros(8)
    work[(1,)](x, None, 4, False)
    assert x[:4].tolist() == [1, 2, 3, 4]


if __name__ == "__main__":
    main(globals())
