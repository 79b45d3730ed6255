"""A PE that fails ends the others, with its name; and whatever happens, nothing stays behind.

What ends a PE is told by its error: only the failure detector knows that a PE is lost, and a PE that it has to end by
force, after some seconds, says so.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import uuid
from dataclasses import replace

import pytest
from checking import ENVIRONMENT as COMMON
from checking import HERE
from forking import launch
from leftovers import assert_nothing_shared_is_left, assert_processes_end, shared_files

from triton_dist import testing
from triton_dist.bootstrap import framing as wire
from triton_dist.bootstrap.authentication import Key
from triton_dist.bootstrap.failure_detector import FailureDetector, Trouble, _lost
from triton_dist.bootstrap.rendezvous import Member

FAILING = HERE / "failing"
ENVIRONMENT = COMMON | {"TRITON_DIST_WAIT_TIMEOUT": "10000"}  # longer than any test


def place(file: str) -> str:
    """A pattern for the line of a program on which its kernel waits."""
    lines = (FAILING / file).read_text().splitlines()
    return rf"{file}:{next(i for i, line in enumerate(lines, 1) if 'dl.signal_wait_until' in line)}\b"


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("kill", -9, r"PE 1 is lost: its process \d+ was killed, crashed or just ended"),
        ("_exit", 0, r"PE 1 is lost: its process \d+ was killed, crashed or just ended"),
        ("raise", 1, r"PE 1 raised ValueError: no good: ünïcode"),
    ],
)
def test_a_pe_that_dies_ends_the_others(how: str, status: int, reason: str) -> None:
    result = launch([FAILING / "die.py", how], 4, env=ENVIRONMENT)
    assert not result.timed_out, result.report
    assert result[1].returncode == status, result.report
    for pe, waits in (
        (0, r"PE 0 cannot complete barrier_all\(\): "),
        (2, r"PE 2 cannot complete finalize\(\): "),
        (3, r"PE 3, kernel wait: "),
    ):
        assert result[pe].returncode == 1, result.report
        assert re.search(waits + reason, result[pe].stderr), result.report
    where = rf"program \(0, 0, 0\) at \S*{place('die.py')} waits in signal_wait_until: .* == 1, seen 0"
    assert re.search(where, result[3].stderr), result.report


def test_a_pe_that_just_ends_fails_those_who_need_all() -> None:
    """Two PEs, one of which reaches the end of its program without finalize()."""
    result = launch([FAILING / "die.py", "return"], 2, env=ENVIRONMENT)
    assert (result[0].returncode, result[1].returncode) == (1, 0), result.report
    assert "PE 0 cannot complete barrier_all(): PE 1 has left the world" in result[0].stderr


@pytest.mark.parametrize(
    ("n_pes", "why"),
    [
        (2, "PE 1 has left the world"),
        (3, "PE 1 has left the world, and all others wait for this one, PE 2 in barrier()"),
    ],
)
def test_a_kernel_does_not_wait_for_pes_that_have_ended(n_pes: int, why: str) -> None:
    result = launch([FAILING / "left.py"], n_pes, env=ENVIRONMENT, timeout=60)
    assert (result[0].returncode, result[1].returncode) == (1, 0), result.report
    report = rf"PE 0, kernel wait: no program can go on: {re.escape(why)}\n.* at \S*{place('left.py')} waits in "
    assert re.search(report, result[0].stderr), result.report


def test_a_kernel_that_cannot_go_on_fails_all_pes() -> None:
    result = launch([FAILING / "deadlock.py"], 2, env={**ENVIRONMENT, "TRITON_DIST_WAIT_TIMEOUT": "1"})
    assert not result.timed_out and [pe.returncode for pe in result] == [1, 1], result.report
    report = (
        r"PE 1, kernel wait: no program could go on for 1 s .*\n"
        rf"  program \(0, 0, 0\) at \S*{place('deadlock.py')} waits in signal_wait_until: "
        r"0x\w+ \(element 0 of the symmetric tensor \(\(4,\), torch.int64\) on PE 1\) >= 9, seen 3\n"
        r"  program \(1, 0, 0\) .*element 1 .*"
    )
    assert re.search("KernelError: " + report, result[1].stderr), result.report
    assert re.search(r"PE 0 cannot complete barrier_all\(\): PE 1 gave up. " + report, result[0].stderr), result.report


@pytest.mark.parametrize(
    ("warm", "said", "said_by_the_other"),
    [
        ("", *[r"the PEs call different collectives: PE 0: opening the group of PEs 0, 1, .*; PE 1: finalize\(\)"] * 2),
        (
            "kernels.all_reduce(torch.ones(4))",
            r"no program can go on: all other PEs wait for this one, PE 1 in fin",
            r"PE 1 cannot complete finalize\(\): PE 0",
        ),
    ],
)
def test_calls_with_different_groups_are_found_when_the_others_are_done(
    warm: str, said: str, said_by_the_other: str
) -> None:
    """No comparison sees them: calls are compared within a group. Waits would be reported after hours."""
    program = f"""
import torch, triton_dist
from triton_dist import kernels
with triton_dist.init() as world:
    alone, _ = world.team_world.split_2d(1)
    {warm}
    kernels.all_reduce(torch.ones(4), group=alone if world.pe else None)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=60)
    assert [pe.returncode for pe in result] == [1, 1], result.report
    assert re.search(said, result[0].stderr) and re.search(said_by_the_other, result[1].stderr), result.report


def test_hosts_that_wait_in_calls_of_different_teams_are_found() -> None:
    program = """
import triton_dist
with triton_dist.init() as world:
    teams = [world.team_world.split_strided(0, 1, 2) for _ in range(2)]
    triton_dist.barrier(teams[world.pe])
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=60)
    assert [pe.returncode for pe in result] == [1, 1], result.report
    text = "\n".join(pe.stderr for pe in result)
    assert re.search(r"PE \d waits in barrier\(\), and PE \d in barrier\(\): they wait for each other", text), (
        result.report
    )


def test_a_call_of_hosts_that_is_interrupted_is_not_taken_for_the_next_one() -> None:
    """By Ctrl-C, or by what a handler of signals raises: PE 1 comes to the first barrier when PE 0 is behind it."""
    program = """
import signal, time, triton_dist
world = triton_dist.init()
triton_dist.barrier_all()
if world.pe == 0:
    def expired(*_):
        raise TimeoutError("too long")
    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        triton_dist.barrier_all()
    except TimeoutError:
        print("caught", flush=True)
else:
    time.sleep(2)
triton_dist.barrier_all()
print("behind", flush=True)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=60)
    assert [pe.stdout for pe in result] == ["caught\n", ""], result.report
    for pe in result:
        assert "PE 0 was interrupted in barrier_all() by TimeoutError" in pe.stderr, result.report


def test_a_wild_address_in_a_kernel_leaves_its_line() -> None:
    program = """
import triton, triton.language as tl, triton_dist
@triton.jit
def far(x):
    tl.store(x + tl.arange(0, 16) * 100000000, 1.0)  # <string>:5
world = triton_dist.init()
far[(1,)](triton_dist.zeros(16))
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT, timeout=60)
    assert result[0].returncode == -11, result.report
    assert "Segmentation fault" in result[0].stderr, result.report
    assert re.search(r"line 5 in far", result[0].stderr), result.report


def test_ops_on_the_host_are_refused() -> None:
    program = """
import triton_dist, triton_dist.language as dl
with triton_dist.init():
    for op in (dl.my_pe, dl.barrier_all, dl.quiet):
        try:
            op()
        except ValueError as error:
            print(error, flush=True)
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT, timeout=60)
    text = "was called outside of a kernel: call it from a @triton.jit function\n"
    names = ("my_pe", "barrier_all", "quiet")
    assert result[0].stdout == "".join(f"triton_dist.language.{name} {text}" for name in names), result.report


def test_an_argument_too_many_of_an_op_is_not_taken_for_another() -> None:
    program = """
import triton, triton_dist, triton_dist.language as dl
@triton.jit
def waits():
    dl.quiet(0)
with triton_dist.init():
    waits[(1,)]()
"""
    result = launch(["-c", program], 1, env=ENVIRONMENT, timeout=60)
    assert "TypeError: quiet() takes 0 positional arguments, and 1 were given" in result[0].stderr, result.report


def test_a_barrier_of_kernels_that_is_left_is_not_taken_for_the_next_one() -> None:
    """PE 0 has come to the second one, where its kernel ended. In the third it waits for PE 1 to come to both."""
    program = """
import time, torch, triton, triton_dist, triton_dist.language as dl
from unittest import mock
@triton.jit
def in_barrier():
    dl.barrier_all()
world = triton_dist.init()
flag = triton_dist.zeros(1)
triton_dist.barrier_all()
in_barrier[(1,)]()
if world.pe == 0:
    with mock.patch("triton_dist.cpu.scheduler.Scheduler._check_others", side_effect=TimeoutError("too long")):
        try:
            in_barrier[(1,)]()
        except TimeoutError:
            print("caught", flush=True)
else:
    time.sleep(1)
    in_barrier[(1,)]()
    triton_dist.peer(flag, 0).fill_(1)
in_barrier[(1,)]()
print(flag.item(), flush=True)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=60)
    assert [pe.stdout for pe in result] == ["caught\n1.0\n", "0.0\n"], result.report


@pytest.mark.parametrize("name", ["TRITON_DIST_CPU_SMS", "TRITON_DIST_SCHEDULE"])
def test_settings_that_differ_between_pes_are_an_error(name: str) -> None:
    values = {"TRITON_DIST_CPU_SMS": ("132", "not set"), "TRITON_DIST_SCHEDULE": ("random:1", "round-robin")}[name]
    program = f"import os\nif os.environ['RANK'] == '0': os.environ['{name}'] = '{values[0]}'\n"
    program += "import triton_dist; triton_dist.init()"
    result = launch(["-c", program], 2, env=ENVIRONMENT, timeout=60)
    text = "\n".join(pe.stderr for pe in result)
    assert f"{name} is {values[0]} on PE 0 and {values[1]} on PE 1: set it alike on all PEs" in text, result.report


def test_hosts_that_wait_long_report() -> None:
    program = """
import time, triton_dist
with triton_dist.init() as world:
    time.sleep(4 * world.pe)
    triton_dist.barrier_all()
"""
    environment = {**ENVIRONMENT, "TRITON_DIST_WAIT_TIMEOUT": "1", "TRITON_DIST_WAIT_ACTION": "abort"}
    result = launch(["-c", program], 2, env=environment, timeout=60)
    assert [pe.returncode for pe in result] == [1, 1], result.report
    report = (
        r"PE \d: a wait has lasted for 1 s \(TRITON_DIST_WAIT_TIMEOUT\)\n    the host waits for other PEs in barrier"
    )
    text = "\n".join(pe.stderr for pe in result)
    assert re.search(report, text), result.report
    assert re.search(r"PE \d waited for 1 s: the host waits for other PEs in barrier", text), result.report


def test_what_a_failed_pe_shares_says_why_before_the_others_hear_of_it() -> None:
    """Else one of them is still writing it there when this one leaves, and takes it for one that just left."""
    detector = FailureDetector(0)
    ours, theirs = socket.socketpair()
    key = Key(bytes(32))
    theirs.setblocking(False)
    detector._peers[1] = wire.Channel(ours, key, key)
    heard: list[bytes] = []

    def share(trouble: Trouble) -> None:
        with contextlib.suppress(BlockingIOError):
            heard.append(theirs.recv(1000))

    detector.on_trouble(share)
    detector.fail("gave up")
    detector._tell_failure()
    assert not heard and b"gave up" in theirs.recv(1000)


def test_who_loses_pe_0_names_those_who_ended_before_it() -> None:
    """PE 0 passes on what it hears. When it has ended because of another PE, a late one has not heard of that."""
    here = Member.self(3, 4, has_secret=False, detector="", key=-1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = replace(here, pid=ended.pid)
    lost = _lost((replace(gone, pe=0), replace(here, pe=1), replace(gone, pe=2), here), 0)
    process = rf"is lost: its process {ended.pid} was killed, crashed or just ended"
    assert re.fullmatch(rf"PE 0 {process}; PE 2 {process}", str(lost))


def test_a_ctrl_c_is_one_line_a_pe() -> None:
    """The terminal sends it to all PEs; each says where it was, and nobody prints a traceback."""
    program = """
import os, signal, threading, time, triton_dist
world = triton_dist.init()
triton_dist.barrier_all()
if world.pe == 0:
    threading.Timer(2, os.kill, [os.getpid(), signal.SIGINT]).start()
triton_dist.empty(1) if world.pe == 2 else time.sleep(1000)
"""
    result = launch(["-c", program], 3, env=ENVIRONMENT)
    assert [pe.returncode for pe in result] == [-2, 1, 1], result.report
    assert re.fullmatch(r"PE 0: interrupted at <string>:7, in <module>\n", result[0].stderr), result.report
    sleeps = (
        r"PE 1: PE 0 was interrupted \(Ctrl-C\)\. So this process, which is at <string>:7, in <module> and does .*\n"
    )
    assert re.fullmatch(sleeps, result[1].stderr), result.report
    waits = r"PE 2: ends at <string>:7, in <module>, because PE 0 was interrupted \(Ctrl-C\)\n"
    assert re.fullmatch(waits, result[2].stderr), result.report


def test_a_ctrl_c_that_python_cannot_see() -> None:
    """The main thread is in a library, as in a wait for a GPU: here it locks a mutex twice, which no signal ends."""
    program = """
import ctypes, os, signal, threading, triton_dist
world = triton_dist.init()
triton_dist.barrier_all()
threading.Timer(2, os.kill, [os.getpid(), signal.SIGINT]).start()
mutex = ctypes.create_string_buffer(64)
for turn in range(2): ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
    result = launch(["-c", program], 2, env=ENVIRONMENT)
    assert [pe.returncode for pe in result] == [130, 130], result.report
    for pe in result:
        assert "interrupted (Ctrl-C). This process, which is at <string>:7, in <module> and" in pe.stderr, result.report


def test_nothing_is_left_after_a_kill() -> None:
    """The launcher's time limit kills all PEs in the middle of their work."""
    before = shared_files()
    mark = uuid.uuid4().hex
    # Not forks, whose environment as the system tells it is that of the process that they are forks of.
    for timeout in (10, 40, 120):  # the longer ones for a slow machine
        result = testing.launch([FAILING / "linger.py"], 2, env={**ENVIRONMENT, "MARK": mark}, timeout=timeout)
        if all("ready" in pe.stdout for pe in result):
            break
    assert result.timed_out and all("ready" in pe.stdout for pe in result), result.report
    assert_nothing_shared_is_left(before)
    assert_processes_end(mark)
