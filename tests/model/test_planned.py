"""Large fused GEMMs, whose steps follow from their plans: what they compute and send, how long it takes, what is said
of wrong ones."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("simpy", reason="the extra `model` is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import slices_of_hosts
from model_error import LOCAL_GEMMS, measured_large_gemms, measured_local_gemms, planned
from planned_gemms import ALGORITHMS, Gemm, graph_of, simulated

from triton_dist.kernels.gemm import schedule
from triton_dist.kernels.gemm.config import LARGE
from triton_dist.model.machine import CopyEngine, Machine, Memory, Network, NVLink, Sm
from triton_dist.model.nodes import Action, Launch, Node
from triton_dist.model.path import critical_path
from triton_dist.model.planned import PlannedGraph
from triton_dist.model.replay import Replay

H200 = Machine.load("h200")
FUSED = [name for name in ALGORITHMS if name != "local_gemm"]
ROUND = Machine(
    name="round numbers",
    gpus_per_host=8,
    sm=Sm(count=2, programs=1, load=1e6, store=1e6, fence=2.0, stages=2, launch=10.0, flops={2: 2 * 2 * 128**3 / 1e8}),
    memory=Memory(bandwidth=1e6, latency=4.0, l2_bandwidth=2e6, l2_latency=1.0),
    nvlink=NVLink(bandwidth=1e4, latency=3.0),
    copy_engine=CopyEngine(bandwidth=0.512, start=100.0, interval=50.0),
    network=Network(ports=4, bandwidth=0.128, latency=20.0, message=5.0),
)
"""A program takes 100 µs for 128 × 128 products of 128 elements each. NVLink and memory are fast."""


def _nodes(graph: PlannedGraph, pe: int) -> list[Node]:
    (launch,) = (item for item in graph.hosts[pe] if isinstance(item, Launch))
    lists = [nodes for _, nodes in launch.programs] + [nodes for of in launch.warps.values() for nodes in of]
    return [node for nodes in (*lists, graph.side_streams.get(pe, [])) for node in nodes]


@pytest.mark.parametrize("n_pes", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 8))])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 1, 1), (131, 257, 67), (256, 384, 2048)])
def test_all_tiles_are_computed_and_what_others_need_is_sent(name: str, n_pes: int, rows: int, n: int, k: int) -> None:
    """Of any size; no wait is for ever."""
    gemm = Gemm(name, n_pes, rows * n_pes, n, k)
    graph = graph_of(gemm, H200)
    sent = dict.fromkeys(range(n_pes), 0)
    for pe in range(n_pes):
        nodes = _nodes(graph, pe)
        assert sum(node.flops for node in nodes) >= 2 * gemm.m * n * k
        assert all(node.pe == pe for node in nodes)
        sent[pe] = sum(
            node.nbytes for node in nodes if node.target != pe and node.action in (Action.STORE, Action.COPY)
        )
    of_c = gemm.m * n * 2
    least, most = {
        "local_gemm": (0, 0),
        "all_gather_gemm": (rows * k * 2 * (n_pes - 1),) * 2,
        "gemm_all_scatter": (of_c * (n_pes - 1),) * 2,
        "gemm_reduce_scatter": (of_c // n_pes * (n_pes - 1), None),
        "gemm_all_reduce": (0, None),
    }[name]
    assert all(least <= of_pe and (most is None or of_pe <= most) for of_pe in sent.values())
    if name == "gemm_all_reduce":  # tiles are dealt out, not rows: all of C goes around, and to all
        assert sum(sent.values()) >= 2 * of_c * (n_pes - 1)
    replay = Replay(graph, H200)
    replay.run()
    took = replay.phases[-1].end
    assert took >= 2 * gemm.m * n * k / (H200.sm.flops[2] * 1e6) and took >= max(sent.values()) / 400e3
    parts = critical_path(replay.phases[-1])
    assert sum(part.end - part.begin for part in parts) == pytest.approx(took)


def test_a_local_gemm_takes_its_tiles_one_after_the_other() -> None:
    # launch, the first stage; six tiles on two programs; a fence, beside which the last tile is stored, and the count
    gemm = Gemm("local_gemm", 1, 3 * 128, 2 * 128, 128, config=replace(LARGE, rate=1.0))
    assert simulated(gemm, ROUND) == pytest.approx(10 + 4 + 3 * 100 + 2 + 1, abs=0.1)


def test_rows_are_awaited_that_a_copy_engine_sends() -> None:
    # PE 1's tile comes 3 (signal that the kernel has begun) + 100 + 64 µs + 3 after its launch, a fence before that
    gemm = Gemm("all_gather_gemm", 2, 256, 128, 128)
    copied = 10 + 2 + 3 + 100 + 128 * 128 * 2 / 512 + 3
    one = replace(ROUND, sm=replace(ROUND.sm, count=1, flops={2: 2 * 128**3 / 1e8}))
    assert simulated(gemm, one) == pytest.approx(copied + 1 + 4 + 100 / LARGE.rate + 2 + 1 + 1, abs=4)


def test_stores_to_peers_are_throttled() -> None:
    """A tile is sent while the next one is computed, over a share of its time; the last one is not."""
    gemm = Gemm("gemm_all_scatter", 2, 128, 3 * 128, 4096)
    one = replace(ROUND, sm=replace(ROUND.sm, count=1, flops={2: 2 * 128**3 / 1e8}))
    graph = graph_of(gemm, one)
    sends = [node for node in _nodes(graph, 0) if node.action is Action.STORE and node.target == 1]
    assert {node.in_flight for node in sends} == {2}
    per_tile = len(sends) // 3
    intervals = [sum(node.interval for node in sends[i * per_tile : (i + 1) * per_tile]) for i in range(3)]
    tile = 100 * 4096 / 128 / LARGE.rate
    assert intervals[0] == intervals[1] == pytest.approx(0.9 * tile, rel=0.05) and intervals[2] < intervals[0] / 10
    replay = Replay(graph, one)
    replay.run()
    assert 3 * tile < replay.phases[-1].end < 3 * tile + 200


@pytest.mark.parametrize(
    ("gemm", "said"),
    [
        (Gemm("gemm_all_gather", 2, 128, 128, 128), "gemm_all_gather: planned are local_gemm, all_gather_gemm"),
        (Gemm("gemm_reduce_scatter", 3, 128, 128, 128), "M is a multiple of the PEs where they share rows"),
        (Gemm("gemm_all_scatter", 2, 0, 128, 128), "M, N, K and PEs are positive"),
        (Gemm("local_gemm", 1, 128, 128, 128, torch.float64), "sm.flops of H200 GPUs on an NVLink switch has no rate"),
    ],
)
def test_wrong_calls_are_errors(gemm: Gemm, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        graph_of(gemm, H200)


def test_a_wait_for_what_nobody_does_is_an_error() -> None:
    other = Node(1, 0, Action.ATOMIC, None)
    waits = Node(0, 3, Action.WAIT, None, causes=(other,))
    with pytest.raises(ValueError, match="PE 0, program 3: a wait waits for what no program and no stream does"):
        PlannedGraph([Launch("kernel", [((0, 0, 0), [waits])])])


def test_the_rate_is_that_of_local_gemms(monkeypatch: pytest.MonkeyPatch) -> None:
    """``sm.flops`` was measured on such, with tiles in equal parts; nothing of it was fitted to fused ones."""
    monkeypatch.setattr(schedule, "_last_round", schedule._equal_parts)
    cases = measured_local_gemms()
    assert len(cases) == 2 * len(LOCAL_GEMMS)
    assert all(planned(case, H200) == pytest.approx(case.microseconds, rel=0.08) for case in cases)


@pytest.mark.parametrize("name", FUSED)
def test_fused_gemms_take_what_was_measured(name: str) -> None:
    """The smallest of each function on two GPUs; docs/model.md has all."""
    cases = measured_large_gemms(2, [name])
    case = min(cases, key=lambda case: case.microseconds)
    assert planned(case, H200) == pytest.approx(case.microseconds, rel=0.15)


@pytest.mark.parametrize("name", ["all_gather_gemm", "gemm_reduce_scatter"])
def test_slices_of_hosts_take_what_they_compute_and_send(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Both algorithms; one adds what crosses to the GEMM, and the other hides it where a slice takes longer."""
    machine = Machine.load("h200-hosts")
    monkeypatch.setattr(slices_of_hosts, "HIDDEN", 512)
    monkeypatch.setattr(slices_of_hosts, "INNER", 16 * 4096)  # much to compute of few bytes
    bulk, two_level, local = slices_of_hosts.times(name, 2048, 2, machine)
    crossing = 2048 // 16 * 512 * 2 / machine.network.bandwidth / 1e3
    assert bulk >= local + crossing
    assert two_level >= max(0.9 * local, crossing)
    narrow = replace(machine, network=replace(machine.network, bandwidth=machine.network.bandwidth / 100))
    assert slices_of_hosts.times(name, 2048, 2, narrow)[1] > 100 * crossing, "what crosses takes longer than a slice"
