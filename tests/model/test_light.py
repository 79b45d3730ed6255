"""PEs as coroutines of one process: what they do is what PEs that are processes do."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from forking import Forker

pytest.importorskip("simpy", reason="the extra `model` is not installed")

from triton_dist.check.run import Run
from triton_dist.model.graph import Graph
from triton_dist.model.machine import Machine
from triton_dist.model.record import ScriptError, record
from triton_dist.model.replay import Replay

MACHINE = replace(Machine.load("h200-hosts"), gpus_per_host=2)
HEAD = "import sys, torch, triton_dist\nfrom triton_dist import kernels\n"
Recorded = Callable[..., Run]


@pytest.fixture
def recorded(forker: Forker, tmp_path: Path) -> Recorded:
    def run(program: str, n_pes: int, *, light: bool = True) -> Run:
        script = tmp_path / "script.py"
        script.write_text(HEAD + textwrap.dedent(program))
        return record(forker, [str(script)], n_pes, MACHINE, timeout=120, captures=True, light=light)

    return run


def _times(run: Run) -> list[float]:
    replay = Replay(Graph(run), MACHINE)
    replay.run()
    return [phase.end - phase.begin for phase in replay.phases if phase.launches]


SUMS = """
    with triton_dist.init() as world:
        pe, n = triton_dist.my_pe(), triton_dist.n_pes()
        x = triton_dist.full((n * 64,), float(pe + 1))
        out, gathered = triton_dist.zeros(n * 64), triton_dist.zeros(n * n * 64)
        kernels.all_reduce(x, out=out, algorithm="two_level")
        kernels.all_gather(gathered, x, algorithm="two_level")
        assert (out == n * (n + 1) / 2).all(), out
        expected = torch.arange(1.0, n + 1).repeat_interleave(n * 64)
        assert (gathered == expected).all()
        team = triton_dist.team_shared()
        triton_dist.barrier(team)
        assert team.n_pes == 2 and team.my_pe == pe % 2
        large = triton_dist.full((1 << 17,), 1.0)
        world.clear(large)
        assert not large.any()
"""


def test_coroutines_compute_and_take_what_processes_do(recorded: Recorded) -> None:
    light, processes = recorded(SUMS, 4), recorded(SUMS, 4, light=False)
    assert _times(light) == pytest.approx(_times(processes), rel=1e-6)


def test_many(recorded: Recorded) -> None:
    run = recorded(
        """
        import triton, triton_dist.language as dl

        @triton.jit
        def send(data, flag):
            there = (dl.my_pe() + 1) % dl.n_pes()
            dl.putmem_signal(data + 1, data, 8, flag, 1, dl.SIGNAL_SET, there)
            dl.signal_wait_until(flag, dl.CMP_EQ, 1)

        with triton_dist.init() as world:
            data, flag = (triton_dist.zeros(2, dtype=torch.int64) for _ in range(2))
            data[0] = triton_dist.my_pe()
            triton_dist.barrier_all()
            send[(1,)](data, flag)
            triton_dist.barrier_all()
            assert data[1] == (triton_dist.my_pe() - 1) % 64
        """,
        64,
    )
    assert run.n_pes == 64 and len(_times(run)) == 1


STUCK = """
import triton, triton_dist.language as dl

@triton.jit
def wait(flag):
    dl.signal_wait_until(flag, dl.CMP_EQ, 1)

triton_dist.init()
wait[(1,)](triton_dist.zeros(1, dtype=torch.int64))
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("triton_dist.init()\nif triton_dist.my_pe() == 2: raise KeyError('lost')", r"PE 2 of .*KeyError\('lost'\)"),
        ("triton_dist.init()\nif triton_dist.my_pe() != 3: triton_dist.barrier_all()", "call different collectives"),
        ("triton_dist.init()\ntriton_dist.empty(1 + triton_dist.my_pe())", "the PEs call different collectives"),
        ("triton_dist.init(comm=1)", "PEs in one process have no process groups"),
        (STUCK, "no PE can go on: all wait for each other"),
        ("sys.exit(3)", "PE 0 of .* failed"),
        ("print('no world')", "made no world"),
    ],
)  # fmt: skip
def test_what_fails_says_so_and_ends(recorded: Recorded, program: str, said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        recorded(program, 4)
