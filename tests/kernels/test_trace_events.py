"""What the host reads from the trace events of a Hopper GEMM's warps."""

from __future__ import annotations

import torch

from triton_dist.kernels.gemm.hopper import trace_events
from triton_dist.kernels.gemm.schedule import Tile, make_schedule


def test_every_event_has_its_tile_and_its_warps() -> None:
    # Three tiles for two programs: the last is split along K, and its parts have both programs.
    schedule = make_schedule([Tile(0, 0, 0), Tile(1, 0, 0), Tile(4, 5, 0)], 16, 2)
    words = torch.zeros(trace_events.words(schedule), dtype=torch.int64)
    times = words.view(len(schedule.units) + 1, -1, 2)
    second_part = schedule.starts[1] + 1
    times[0, trace_events.COMPUTE.value + 1] = torch.tensor([100, 250])
    times[second_part, trace_events.OPERANDS.value] = torch.tensor([300, 300])
    times[second_part, trace_events.SEND.value] = torch.tensor([400, 480])
    times[-1, trace_events.PEERS.value] = torch.tensor([500, 510])
    found = [
        (e.thread, e.kind, e.name, e.began, e.ended, e.details.get("tile")) for e in trace_events.read(schedule, words)
    ]
    assert found == [
        ("program 0, multiply 1", "compute", "compute 0, 0", 100, 250, [0, 0]),
        ("program 1, multiply 0", "wait", "wait for operands", 300, 300, [4, 5]),
        ("program 1, send", "send", "send 4, 5", 400, 480, [4, 5]),
        ("the last program", "wait", "wait for all PEs", 500, 510, None),
    ]


def test_places_of_events_do_not_overlap() -> None:
    ones = [trace_events.ARRIVAL, trace_events.PEERS, trace_events.TILE, trace_events.SEND, trace_events.RECEIVE]
    of_groups = [trace_events.OPERANDS, trace_events.COMPUTE, trace_events.HAND_OVER]
    places = [one.value for one in ones] + [one.value + group for one in of_groups for group in range(2)]
    assert sorted(places) == list(range(trace_events.words(make_schedule([], 1, 1)) // 2))
