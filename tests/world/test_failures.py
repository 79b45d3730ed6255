"""A PE that fails ends the others, soon and with its name; and whatever happens, nothing stays behind."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import psutil
import pytest
from checking import ENVIRONMENT, HERE

from triton_dist.testing import Result, launch

FAILING = HERE / "failing"


def place(file: str) -> str:
    """A pattern for the line of a program on which its kernel waits."""
    lines = (FAILING / file).read_text().splitlines()
    return rf"{file}:{next(i for i, line in enumerate(lines, 1) if 'dl.signal_wait_until' in line)}\b"


def seconds_until_noticed(result: Result, pe: int) -> float:
    begin = re.search(r"^ended (\S+)$", result[1].stdout, re.MULTILINE)
    end = re.search(r"^noticed (\S+)$", result[pe].stdout, re.MULTILINE)
    assert begin and end, result.report
    return float(end[1]) - float(begin[1])


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("kill", -9, r"PE 1 is lost: its process \d+ was killed, crashed or just ended"),
        ("_exit", 0, r"PE 1 is lost: its process \d+ was killed, crashed or just ended"),
        ("raise", 1, r"PE 1 raised ValueError: no good: ünïcode"),
    ],
)
def test_a_pe_that_dies_ends_the_others(how: str, status: int, reason: str) -> None:
    result = launch([FAILING / "die.py", how], 4, env=ENVIRONMENT, timeout=30)
    assert not result.timed_out, result.report
    assert result[1].returncode == status, result.report
    for pe, waits in (
        (0, r"PE 0 cannot complete barrier_all\(\): "),
        (2, r"PE 2 cannot complete finalize\(\): "),
        (3, r"PE 3, kernel wait: "),
    ):
        assert result[pe].returncode == 1, result.report
        assert re.search(waits + reason, result[pe].stderr), result.report
        assert seconds_until_noticed(result, pe) < 2, result.report
    where = rf"program \(0, 0, 0\) at \S*{place('die.py')} waits in signal_wait_until: .* == 1, seen 0"
    assert re.search(where, result[3].stderr), result.report


def test_a_pe_that_just_ends_fails_those_who_need_all() -> None:
    """Two PEs, one of which reaches the end of its program without finalize()."""
    result = launch([FAILING / "die.py", "return"], 2, env=ENVIRONMENT, timeout=30)
    assert (result[0].returncode, result[1].returncode) == (1, 0), result.report
    assert "PE 0 cannot complete barrier_all(): PE 1 has left the world" in result[0].stderr
    assert seconds_until_noticed(result, 0) < 2


def test_a_kernel_that_cannot_go_on_fails_all_pes() -> None:
    result = launch([FAILING / "deadlock.py"], 2, env={**ENVIRONMENT, "TRITON_DIST_WAIT_TIMEOUT": "1"}, timeout=30)
    assert not result.timed_out and [pe.returncode for pe in result] == [1, 1], result.report
    report = (
        r"PE 1, kernel wait: no program could go on for 1 s .*\n"
        rf"  program \(0, 0, 0\) at \S*{place('deadlock.py')} waits in signal_wait_until: "
        r"0x\w+ \(element 0 of the symmetric tensor \(\(4,\), torch.int64\) on PE 1\) >= 9, seen 3\n"
        r"  program \(1, 0, 0\) .*element 1 .*"
    )
    assert re.search("KernelError: " + report, result[1].stderr), result.report
    assert re.search(r"PE 0 cannot complete barrier_all\(\): PE 1 gave up. " + report, result[0].stderr), result.report


def test_nothing_is_left_after_a_kill() -> None:
    """The launcher's time limit kills all PEs in the middle of their work."""
    before = set(Path("/dev/shm").iterdir())
    mark = uuid.uuid4().hex
    result = launch([FAILING / "linger.py"], 2, env={**ENVIRONMENT, "MARK": mark}, timeout=12)
    assert result.timed_out and all("ready" in pe.stdout for pe in result), result.report
    assert set(Path("/dev/shm").iterdir()) <= before
    assert not [process for process in psutil.process_iter() if mark in environment_of(process).values()]


def environment_of(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it ended meanwhile, or is not ours
        return {}
