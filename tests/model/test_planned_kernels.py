"""Plans against the kernels: what store warps send and signal, as planned, is what they do in a CPU world."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forking import launch

pytest.importorskip("simpy", reason="the extra `model` is not installed")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from planned_gemms import Gemm, graph_of

from triton_dist.model.machine import Machine
from triton_dist.model.nodes import Action, Launch

ENVIRONMENT = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_CPU_CAPABILITY": "9.0", "TRITON_DIST_CPU_SMS": "3"}
H200 = Machine.load("h200")
MACHINE = replace(H200, sm=replace(H200.sm, count=3))
BLOCK_K = 64

Sent = list[tuple[Any, ...]]


def planned(gemm: Gemm) -> dict[tuple[int, int], Sent]:
    """By PE and program: bytes for each PE, and between them the PEs that get a tile's flag.

    Not what begins and ends a launch, which the last program does, and program 0 in a plan.
    """
    found: dict[tuple[int, int], Sent] = {}
    graph = graph_of(gemm, MACHINE)
    for pe, host in enumerate(graph.hosts):
        (launch,) = host
        assert isinstance(launch, Launch)
        for number, of_program in launch.warps.items():
            sent: Sent = []
            for node in of_program[0]:
                if node.action is Action.STORE:
                    _add(sent, node.target, node.nbytes)
                elif node.action is Action.ATOMIC and node.target != pe:
                    sent.append(("signal", node.target))
            if number == 0:
                assert sent.pop(0) == ("signal", 1 - pe)
                if gemm.to_all:
                    assert sent.pop() == ("signal", 1 - pe)
            found[pe, number] = sent
    return found


def _add(sent: Sent, target: int, nbytes: int) -> None:
    if not sent or sent[-1][0] != "bytes":
        sent.append(("bytes", {}))
    sent[-1][1][target] = sent[-1][1].get(target, 0) + nbytes


def launched(gemm: Gemm, algorithm: str) -> dict[tuple[int, int], Sent]:
    """The same of a launch."""
    rows = [gemm.name, algorithm, *map(str, (gemm.m, gemm.n, gemm.k))]
    result = launch([Path(__file__).with_name("planned_launches.py"), *rows], gemm.n_pes, env=ENVIRONMENT)
    result.check()
    found: dict[tuple[int, int], Sent] = {}
    for pe in result:
        for program, events in json.loads(pe.stdout.splitlines()[-1]).items():
            sent = found.setdefault((pe.pe, int(program)), [])
            for what, target, *nbytes in events:
                if what == "bytes":
                    _add(sent, target, *nbytes)
                else:
                    sent.append((what, target))
    return found


@pytest.mark.parametrize(
    ("name", "algorithm", "rows", "n"),
    [
        ("gemm_reduce_scatter", "ring", 512, 256),
        ("gemm_all_reduce", "ring", 384, 384),
        ("gemm_all_scatter", "warp_specialized", 384, 256),
    ],
)
def test_store_warps_do_what_is_planned(name: str, algorithm: str, rows: int, n: int) -> None:
    gemm = Gemm(name, 2, rows, n, 2 * BLOCK_K, torch.float16, torch.float16)
    assert launched(gemm, algorithm) == planned(gemm)
