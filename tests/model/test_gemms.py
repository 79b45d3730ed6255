"""GEMMs in the model: kernels have a GPU's sizes, and an operand that several programs load comes from memory once."""

from __future__ import annotations

from pathlib import Path

import pytest
from forking import Forker

pytest.importorskip("simpy", reason="the extra `model` is not installed")

from triton_dist.model.expanded import ExpandedGraph
from triton_dist.model.graph import Graph
from triton_dist.model.machine import Machine
from triton_dist.model.nodes import Action, Launch
from triton_dist.model.record import record
from triton_dist.model.replay import Replay

MACHINE = Machine.load("h200")
CASES = Path(__file__).parents[2] / "benchmarks" / "model_cases.py"
M, N, K = 16, 2048, 256


def _times(graph: Graph) -> list[float]:
    replay = Replay(graph, MACHINE)
    replay.run()
    return [phase.end - phase.begin for phase in replay.phases if phase.launches]


def test_agemm_small_m_has_a_gpu_s_programs_and_loads(forker: Forker) -> None:
    call = [str(CASES), f"gemm_reduce_scatter:fused:{M}x{N}x{K}"]
    graphs = {
        "two programs of each PE": ExpandedGraph(record(forker, call, 2, MACHINE, timeout=120, programs=())),
        "all": Graph(record(forker, call, 2, MACHINE, timeout=120, light=True)),
    }
    for what, graph in graphs.items():
        launches = [item for item in graph.hosts[1] if isinstance(item, Launch)]
        assert [launch.kernel for launch in launches] == ["gemm_small_m"], what
        programs = [nodes for _, nodes in launches[-1].programs]
        assert len(programs) == N // 64, what
        for number, nodes in enumerate(programs):
            assert sum(node.flops for node in nodes if node.action is Action.DOT) == 2 * M * 64 * K, what
            loads = [node for node in nodes if node.action is Action.LOAD and node.nbytes > 8]
            operands = [sum(node.nbytes for node in loads if node.cached is cached) for cached in (False, True)]
            a, b = 2 * M * K, 2 * 64 * K
            assert operands == ([a + b, 0] if number == 0 else [b, a]), (what, number)
    some, all_of_them = map(_times, graphs.values())
    assert some == pytest.approx(all_of_them, rel=1e-6)
