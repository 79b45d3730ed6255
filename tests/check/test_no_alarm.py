"""Right programs give no alarm, whichever way they are scheduled; and what the command says and returns."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from pathlib import Path

import forking
import pytest
from forking import COMPILER, ROOT, Forker

from triton_dist.check.__main__ import main

PLANTED = Path(__file__).parent / "planted"
EXAMPLES = sorted((ROOT / "examples").glob("0*.py"))
SCHEDULES = ["adversarial", "random:5", "round-robin"]
EXAMPLE_RUNS = list(zip(EXAMPLES, itertools.cycle(SCHEDULES)))
CHECKS = {
    "collectives": ["all_gather", "all_reduce", "reduce_scatter", "many_rounds"],
    "exchanges": ["rounds"],
    "decode": ["mla", "lengths_change"],
    "gemms": ["gemm_all_scatter", "all_gather_gemm", "gemm_reduce_scatter_and_all_reduce"],
    "moe": ["moe_routings"],
    "moe_many": ["moe_many_dtypes_and_scales"],
    "norms": ["all_reduce_norm"],
    "projection": ["projection_of_mla_and_fp8"],
}
"""Files of checks of ``triton_dist.kernels``, with those that have each protocol once."""
OF_HOPPER = {
    "hopper_gemms": ["hopper_groups"],
    "hopper_tokens": ["hopper_tokens_of_fp8"],
    "hopper_rounds": ["hopper_rounds_of_groups"],
    "hopper_layers": ["hopper_layers"],
}
"""The same, of kernels in Gluon."""
WHOLE = "moe_tensor", "moe_whole"
"""Further files, of which all checks are slow."""


@pytest.mark.parametrize(
    ("example", "schedule"),
    [
        *EXAMPLE_RUNS[:3],
        *(pytest.param(*run, marks=pytest.mark.slow) for run in EXAMPLE_RUNS[3:]),
        (EXAMPLES[1], "adversarial"),
    ],
)
def test_examples(example: Path, schedule: str) -> None:
    outcome = forking.forker(COMPILER).run(example, n_pes=4, TRITON_DIST_CHECK="1", TRITON_DIST_SCHEDULE=schedule)
    assert outcome.statuses == [0] * 4, outcome.output
    assert re.search(rf"nothing found \(4 PEs, schedule {schedule}, \d+ events\)", outcome.output), outcome.output


@pytest.mark.parametrize(
    ("file", "checks"),
    [
        *(pytest.param(file, checks, id=f"{file}-some") for file, checks in (CHECKS | OF_HOPPER).items()),
        *(pytest.param(file, [], id=file, marks=pytest.mark.slow) for file in (*CHECKS, *OF_HOPPER, *WHOLE)),
    ],
)
def test_kernels(file: str, checks: list[str]) -> None:
    """triton_dist.kernels, by the programs that test them; these run all of their checks, or those that are named."""
    program = ROOT / "tests" / "kernels" / "checks" / f"{file}.py"
    where = str(ROOT / "tests" / "world" / "checks")
    environment = {"TRITON_DIST_CHECK": "1", "TRITON_DIST_SYMMETRIC_SIZE": "64M", "PYTHONPATH": where}
    environment |= {"TRITON_DIST_CPU_CAPABILITY": "9.0"} if file in OF_HOPPER else {}
    outcome = forking.forker(COMPILER).run(program, *checks, **environment)
    assert outcome.output.count("passed: ") >= 2 * len(checks), outcome.output
    assert outcome.statuses == [0, 0] and "nothing found" in outcome.output, outcome.output


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["round-robin"])
def test_groups_of_kernels(schedule: str) -> None:
    """Groups that overlap, with workspaces of their own beside each other in memory."""
    file = ROOT / "tests" / "kernels" / "checks" / "groups.py"
    where = str(ROOT / "tests" / "world" / "checks")
    environment = {"TRITON_DIST_CHECK": "1", "TRITON_DIST_SCHEDULE": schedule, "PYTHONPATH": where}
    outcome = forking.forker(COMPILER).run(file, n_pes=4, TRITON_DIST_SYMMETRIC_SIZE="64M", **environment)
    assert outcome.statuses == [0] * 4 and "nothing found" in outcome.output, outcome.output


def test_a_failing_seed_replays_exactly(forker: Forker) -> None:
    def run() -> str:
        file = PLANTED / "put_and_signal.py"
        return forker.run(file, "bug", TRITON_DIST_CHECK="1", TRITON_DIST_SCHEDULE="random:11").output

    assert run() == run()


def test_a_report_comes_before_the_error_that_ends_a_run(forker: Forker) -> None:
    """A race often shows as a wrong result first; the assertion's traceback alone would not help."""
    outcome = forker.run(PLANTED / "race.py", "bug", "and fail", TRITON_DIST_CHECK="1")
    assert outcome.statuses == [1, 1] and "[race]" in outcome.output, outcome.output
    assert "AssertionError: and fail" in outcome.output, outcome.output


def test_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    script = str(PLANTED / "race.py")
    assert main([script, "--pes", "2", "bug", "--schedule", "random:1"]) == 1
    text = capfd.readouterr().err
    assert "error: data race [race]" in text and "1 problem (2 PEs, schedule random:1, " in text, text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such.py"], "no_such.py: no such file"),
        ([str(PLANTED)], "is a folder, not a program"),
        ([__file__, "--pes", "0"], "--pes 0: at least one is needed"),
        ([__file__, "--timeout", "nan"], "argument --timeout: nan is no number of seconds"),
        ([__file__, "--seconds", "-1"], "argument --seconds: -1 is no number of seconds"),
        ([__file__, "--target", "sm_90"], "--target is the GPU of --compile, which is not given"),
        # As of a variable that a script forgot to set: it must not pass for "compiles".
        ([__file__, "--compile", "--target="], "--target: '' is no GPU: say sm_90, gfx942"),
        ([__file__, "--compile", "--target", "sm_12345"], "compiles for no compute capability 12345"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2 and message in capsys.readouterr().err


_POLLS = """
import torch, triton, triton.language as tl, triton_dist, triton_dist.language as dl

@triton.jit
def poll(flags, found, HOW: tl.constexpr):
    seen = tl.zeros([], tl.int32)
    while seen == 0:
        if HOW == "iget":
            dl.iget(found, flags, 1, 1, 1, 0)
        else:
            dl.getmem_nbi(found, flags, 4, 0)
            dl.quiet()
        seen = tl.load(found, volatile=True)

with triton_dist.init() as world:
    flags, found = triton_dist.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    poll[(1,)](flags, found, HOW={how!r})
"""


@pytest.mark.parametrize("how", ["iget", "getmem_nbi"])
def test_gets_that_poll_are_waits(forker: Forker, how: str, tmp_path: Path) -> None:
    """No PE sets the flag, so the loops never end: the checker reports a deadlock."""
    file = tmp_path / "polls.py"
    file.write_text(_POLLS.replace("{how!r}", repr(how)))
    outcome = forker.run(file, TRITON_DIST_CHECK="1", TRITON_DIST_SCHEDULE="round-robin")
    assert "[deadlock]" in outcome.output and f"in a loop around {how} at" in outcome.output, outcome.output


def test_a_killed_command_leaves_no_pe(tmp_path: Path) -> None:
    """As by ``timeout``. Its PEs may never end by themselves."""
    file, mark = tmp_path / "endless.py", tmp_path / "running"
    file.write_text(
        "import os, pathlib, triton_dist\n"
        f"with triton_dist.init():\n    pathlib.Path({str(mark)!r} + str(os.getpid())).touch()\n    while True: pass\n"
    )
    command = [sys.executable, "-m", "triton_dist.check", str(file), "--pes", "2", "--schedules", "round-robin"]
    with subprocess.Popen(command) as run:
        deadline = time.monotonic() + 60
        while len(found := sorted(tmp_path.glob("running*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        run.terminate()
    assert len(found) == 2
    processes = [Path("/proc", name.name.removeprefix("running"), "cmdline") for name in found]
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_runs(process) for process in processes)


def _runs(command_line: Path) -> bool:
    """Whether the process has a command line: one that has ended and was not waited for has none."""
    try:
        return bool(command_line.read_bytes())
    except OSError:
        return False
