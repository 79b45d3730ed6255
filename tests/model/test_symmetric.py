"""Runs of one PE for all, and of two programs for all: their times are those of whole runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forking import Forker

pytest.importorskip("simpy", reason="the extra `model` is not installed")

from triton_dist.check.symmetry import Symmetry
from triton_dist.model.expanded import ExpandedGraph
from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.machine import Machine
from triton_dist.model.record import ScriptError, record
from triton_dist.model.replay import Replay
from triton_dist.model.representative import RepresentativeGraph

MACHINE = replace(Machine.load("h200-hosts"), gpus_per_host=2)
PES = 6
SYMMETRY = Symmetry(PES, MACHINE.gpus_per_host)
Times = Callable[..., list[float]]

COLLECTIVES = """
    import sys, torch, triton_dist
    from triton_dist import kernels

    KB, whole = 512, sys.argv[1:] == ["whole"]  # elements
    with triton_dist.init():
        n = triton_dist.n_pes()
        three = {"algorithm": "two_level", "sm_margin": 129}  # programs, and two rounds of the largest blocks
        part, parts = (triton_dist.full((count * 96 * KB,), 1, dtype=torch.bfloat16) for count in (1, n))
        sums, out = (triton_dist.zeros(tensor.shape, dtype=tensor.dtype) for tensor in (part, parts))
        half = parts[: parts.numel() // 2]  # a round: of several, an all-reduce is not symmetric
        for call, result, value in (
            (lambda: kernels.all_gather(out, part, **three), out, 1),
            (lambda: kernels.reduce_scatter(sums, parts, **three), sums, n),
            (lambda: kernels.all_to_all(out, parts, **three), out, 1),
            (lambda: kernels.all_reduce(half, out=half, **three), half, n),
        ):
            result.fill_(result is half)
            triton_dist.barrier_all()
            call()
            triton_dist.barrier_all()
            assert not whole or (result == value).all()
"""


@pytest.fixture
def times(forker: Forker, tmp_path: Path) -> Times:
    def run(program: str, how: str, n_pes: int = PES, per_host: int = MACHINE.gpus_per_host) -> list[float]:
        script, machine = tmp_path / "script.py", replace(MACHINE, gpus_per_host=per_host)
        script.write_text(textwrap.dedent(program))
        modes: dict[str, Any] = {"light": True, "alone": how == "alone", "programs": () if how == "ends" else None}
        logs = record(forker, [str(script), how], n_pes, machine, timeout=120, captures=True, **modes)
        graph = {"alone": lambda: RepresentativeGraph(logs, SYMMETRY), "ends": lambda: ExpandedGraph(logs)}
        replay = Replay(graph.get(how, lambda: Graph(logs))(), machine)
        replay.run()
        return [phase.end - phase.begin for phase in replay.phases if phase.launches]

    return run


def test_expanded_runs_take_what_whole_runs_do(times: Times) -> None:
    whole = times(COLLECTIVES, "whole")
    assert len(whole) == 4 and min(whole) > 0
    assert times(COLLECTIVES, "ends") == pytest.approx(whole, rel=1e-6)
    assert times(COLLECTIVES, "alone") == pytest.approx(whole, rel=1e-6)


BROADCASTS = """
    import sys, torch, triton_dist
    from triton_dist import kernels

    with triton_dist.init() as world:
        for programs, kb, root in ((2, 16, 0), (8, 32, 0), (3, 288, 0), (3, 288, world.n_pes - 1)):
            tensor = triton_dist.full((kb * 512,), world.pe == root, dtype=torch.bfloat16)
            triton_dist.barrier_all()
            kernels.broadcast(tensor, root, algorithm="two_level", sm_margin=132 - programs)
            triton_dist.barrier_all()
            assert sys.argv[1:] != ["whole"] or (tensor == 1).all()
"""
"""The last two take three rounds. On hosts of four, PEs come to the last program's barriers in another order."""


@pytest.mark.parametrize(
    ("n_pes", "per_host"),
    [(6, 2), *(pytest.param(n, per_host, marks=pytest.mark.slow) for n, per_host in ((12, 4), (16, 2)))],
)
def test_expanded_broadcasts_take_what_whole_ones_do(times: Times, n_pes: int, per_host: int) -> None:
    """A root has no equal, so two programs of every PE run."""
    whole = times(BROADCASTS, "whole", n_pes, per_host)
    assert len(whole) == 4 and min(whole) > 0
    assert times(BROADCASTS, "ends", n_pes, per_host) == pytest.approx(whole, rel=1e-9)


def of(call: str) -> str:
    return f"""
    import torch, triton_dist
    from triton_dist import kernels

    with triton_dist.init():
        part, parts = (triton_dist.zeros(count * 3001, dtype=torch.float32) for count in (1, triton_dist.n_pes()))
        triton_dist.barrier_all()
        {call}
        triton_dist.barrier_all()
    """


@pytest.mark.parametrize("how", ["ends", "alone"])
def test_programs_that_differ_are_an_error(times: Times, how: str) -> None:
    with pytest.raises(UnknownCostError, match=r"programs 0 and \d+ of all_gather_two_level differ"):
        times(of("kernels.all_gather(parts, part, algorithm='two_level')"), how)


SENDS = """
    import torch, triton, triton_dist, triton_dist.language as dl

    @triton.jit
    def send(data, flag):
        there = (dl.my_pe() + dl.n_pes() - 2) % dl.n_pes()
        {sends}
        dl.signal_wait_until(flag, dl.CMP_EQ, 1)

    with triton_dist.init():
        send[(1,)](*(triton_dist.zeros(8, dtype=torch.int64) for _ in range(2)))
"""


@pytest.mark.parametrize(
    ("sends", "said"),
    [
        ("dl.putmem(flag, data, 8, there)", "no PE can go on"),  # data, and no flag
        ("dl.signal_op(flag, 1, dl.SIGNAL_ADD, there)", "signal_op on a peer, by one PE for all: words are set"),
        (
            "dl.signal_op(flag, 1, dl.SIGNAL_SET, there + 1)",
            "PE 4 changes a word of PE 3, which is on",
        ),
    ],
)
def test_flags_that_have_no_image_are_an_error(times: Times, sends: str, said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        times(SENDS.format(sends=sends), "alone")


def test_images() -> None:
    """PE 4 is the first of the last of three hosts. PE 0, a host further, is to it what PE 2, a host before, is."""
    assert SYMMETRY.representative == 4
    assert [SYMMETRY.source(pe) for pe in (0, 2, 4, 5)] == [2, 0, 4, 5]
    assert SYMMETRY.image(0, 80, 8) == 72 and SYMMETRY.image(2, 80, 8) == 64 and SYMMETRY.image(5, 80, 4) == 84
    with pytest.raises(ValueError, match="PE 4 changes a word of PE 1, which is on another host and has"):
        SYMMETRY.image(1, 80, 8)
