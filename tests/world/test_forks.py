"""The process that forks PEs: a fork ends as a Python process does, and nothing that was started outlives its run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forking import Forker
from limits import HANG_SECONDS, until

from triton_dist import testing
from triton_dist.testing import PEResult, forks
from triton_dist.testing.launch import child_environment

ENDS = {
    "falls off": "print('said')",
    "status": "import sys; sys.exit(300)",
    "message": "import sys; sys.exit('why')",
    "error": "def fails():\n    1 / 0\nfails()",
    "syntax": "print('said'",
    "hook": "import sys\nsys.excepthook = lambda kind, *_: print('hooked', kind.__name__)\n1 / 0",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "exit handlers": "import atexit, sys; atexit.register(print, 'at exit'); sys.exit(7)",
    "threads": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('last'))).start()\n"
    "threading.Thread(target=time.sleep, args=[100], daemon=True).start()",
    "main": "import sys, __main__; print(__name__, vars(__main__) is globals(), sys.argv, sys.stdin.read())",
}
LEAVES_A_PROCESS = """
import subprocess, sys, time
program = "import sys, time; print(flush=True); time.sleep(1000)"
left = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
left.stdout.readline()
open(sys.argv[1], "w").write(str(left.pid))
print("started", flush=True)
time.sleep(1000)
"""


def traits(pe: PEResult) -> tuple[int, str, str]:
    return pe.returncode, pe.stdout, pe.stderr


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("is_script", [False, True], ids=["code", "script"])
def test_a_fork_ends_as_a_process_does(forker: Forker, tmp_path: Path, how: str, is_script: bool) -> None:
    (tmp_path / "program.py").write_text(ENDS[how])
    args = [tmp_path / "program.py"] if is_script else ["-c", ENDS[how]]
    process, fork = testing.launch(args, 1), forker.launch(args, 1)
    assert traits(fork[0]) == traits(process[0])


def gone(pid: int) -> bool:
    """Also if nobody has reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def assert_goes(note: Path) -> None:
    pid = int(note.read_text())
    until(lambda: gone(pid))


def test_a_time_limit_ends_what_pes_have_started(forker: Forker, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    outcome = forker.launch_together(["-c", LEAVES_A_PROCESS, str(note)], 1, timeout=3)
    assert outcome == forks.Outcome([-signal.SIGKILL], "started\n", True)
    assert_goes(note)
    assert forker.launch(["-c", "print(1)"], 2).check()[1].stdout == "1\n", "it can be used again"


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_time_at_all(forker: Forker, timeout: float) -> None:
    outcome = forker.launch_together(["-c", "import time; time.sleep(100)"], 3, timeout=timeout)
    assert outcome.timed_out and outcome.statuses == [-signal.SIGKILL] * 3


@pytest.fixture
def checks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """triton-dist-check with a time limit, the parameter, of a program that does not end."""
    (tmp_path / "program.py").write_text(LEAVES_A_PROCESS)
    command = [sys.executable, "-m", "triton_dist.check", "--pes", "1", "--timeout", request.param, "program.py", "pid"]
    process = subprocess.Popen(
        command, env=child_environment(), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("checks", ["6"], indirect=True)
def test_the_time_limit_of_a_check(checks: subprocess.Popen[str], tmp_path: Path) -> None:
    error = checks.communicate(timeout=HANG_SECONDS)[1]
    assert (checks.returncode, error) == (
        1,
        "triton-dist-check: ended after 6 s (schedule round-robin; --timeout)\n",
    )
    assert_goes(tmp_path / "pid")


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["900"], indirect=True)
def test_an_interrupted_check(checks: subprocess.Popen[str], tmp_path: Path) -> None:
    """It ends before its time limit, which would leave a message and another status."""
    checks.send_signal(signal.SIGINT)
    assert (checks.communicate(timeout=HANG_SECONDS)[1], checks.returncode) == ("", 130)
    assert_goes(tmp_path / "pid")


@pytest.fixture(scope="module")
def own_forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[forks.Forker]:
    """One that has imported a module which wants to be told of the end; the last test kills it."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "imported.py").write_text("import weakref\nweakref.finalize(weakref, print, 'of the import')")
    with forks.Forker({"PYTHONPATH": str(folder)}, ["imported"]) as forker:
        yield forker


def test_only_what_the_program_made_is_finalized(own_forker: forks.Forker) -> None:
    """PyTorch would take all of its operators back, which takes longer than most programs of a PE."""
    program = "import imported, weakref; weakref.finalize(imported, print, 'of the program')"
    assert own_forker.launch(["-c", program], 1).check()[0].stdout == "of the program\n"


def test_the_process_that_forks_is_killed(own_forker: forks.Forker) -> None:
    program = f"import os, time; os.kill({own_forker._process.pid}, {int(signal.SIGKILL)}); time.sleep(100)"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has ended with status -9"):
            own_forker.launch(["-c", program], 1)
