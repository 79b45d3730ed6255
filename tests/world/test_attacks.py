"""What another user of the host, or a program that writes to the launch's store, can and cannot do to a world."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from by_hand import by_hand
from leftovers import abstract_sockets, all_abstract_sockets
from limits import HANG_SECONDS
from started import Started

from triton_dist.testing.launch import child_environment

NOBODY = 65534
STAY = """
import json, os, sys, triton_dist
from triton_dist.bootstrap import failure_detector
failure_detector._GREETING_SECONDS = 10_000.0  # who waits for a stranger to speak waits longer than a test
world = triton_dist.init()
heap = getattr(world, "heap", None)
detector = world._launch.members[0].detector
print(json.dumps([os.getpid(), heap.fd, detector]), flush=True)
sys.stdin.readline()
world.finalize()
"""


LATE_READER = """
import sys, time, triton_dist
from triton_dist.bootstrap.authentication import AuthenticatedStore
write = AuthenticatedStore.set
def write_and_wait(store, name, value):  # what it reads from now on is the attacker's
    write(store, name, value)
    while name.split("/")[0] == sys.argv[1] and store._store.get(name).decode(errors="replace") != sys.argv[2]:
        time.sleep(0.001)
AuthenticatedStore.set = write_and_wait
with triton_dist.init(): triton_dist.zeros(4)
"""


def world(port: int, program: str, *arguments: str, **env: str) -> AbstractContextManager[list[Started]]:
    """PEs whose rendezvous store every client may write to."""
    return by_hand([0, 1], 2, port, program, [arguments] * 2, agent=True, **env)


class Payload:
    """Runs a command in the process that unpickles it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("entry", ["log", "turns", "heap"])
def test_a_planted_entry_runs_no_code(tmp_path: Path, entry: str) -> None:
    """A checked run while an attacker repeatedly overwrites the entries of its store that name the PEs' files."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    marker, planted = tmp_path / "executed", tmp_path / "planted"
    planted.write_bytes(pickle.dumps([Payload(f"touch {marker}")]) * 100)
    fd = os.open(planted, os.O_RDWR)
    words = {
        "log": [os.getpid(), fd],
        "turns": [os.getpid(), fd, "bell"],
        "heap": {"size": 16 << 20, "heap": fd, "control": fd},
    }
    value = json.dumps(words[entry])
    stop = threading.Event()

    def attack() -> None:
        mine = store.clone()
        while not stop.is_set():
            for pe in range(2):
                mine.set(f"triton_dist/torchrun/0/1/{entry}/{pe}", value)
            stop.wait(0.001)

    attacker = threading.Thread(target=attack)
    attacker.start()
    with world(store.port, LATE_READER, entry, value, TRITON_DIST_CHECK="1") as pes:
        errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
    stop.set()
    attacker.join()
    os.close(fd)
    assert not marker.exists(), "the attacker's code was run"
    assert [pe.returncode for pe in pes] == [1, 1], errors
    refusal = rf"the value of '{entry}/[01]' in the store of this launch was not written by a PE of this world"
    assert any(re.search(refusal, error) for error in errors)


def test_somebody_comes_as_a_pe_before_it_does() -> None:
    """The rendezvous fails, on all PEs, and soon."""
    from torch.distributed import TCPStore

    from triton_dist.bootstrap.rendezvous import Member

    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    store.set("triton_dist/torchrun/0/1/member/1", Member.self(1, 2).text())
    with world(store.port, STAY) as pes:
        errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
    for error in errors:
        assert f"two processes are PE 1: process {os.getpid()} and process {pes[1].pid}" in error, errors


def as_nobody(attempt: Callable[[], str]) -> str:
    """What ``attempt`` gives in a process of another user."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = attempt()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(write, found.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with open(read) as file:
        found = file.read()
    os.waitpid(pid, 0)
    return found


def knock(name: str) -> str:
    """The answer of an abstract socket to a client that connects and sends its credentials."""
    answers = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as stranger:
            stranger.settimeout(2.0)
            stranger.connect("\0" + name)
            hello = json.dumps([1, "00" * 32]).encode()
            with suppress(BrokenPipeError):
                stranger.sendall(struct.pack("!I", len(hello)) + hello)
            if kind == socket.SOCK_STREAM:
                with suppress(ConnectionResetError):
                    answers.append(repr(stranger.recv(1 << 16)))
    return " ".join(answers)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host(tmp_path: Path) -> None:
    """The heap, the key, the logs, the sockets and what lies in the directory for temporary files."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    with world(store.port, STAY, TRITON_DIST_CHECK="1", TMPDIR=str(tmp_path)) as pes:
        told = [json.loads(pe.stdout.readline()) for pe in pes if pe.stdout is not None]
        for pid, fd, _ in told:
            files = {int(name): os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
            ours = {number: name for number, name in files.items() if "triton_dist" in name}
            assert {re.sub(r"_\d+| .*", "", name) for name in ours.values()} >= {
                "/memfd:triton_dist_heap",
                "/memfd:triton_dist_log",
            }
            for number in {*ours, fd}:
                assert os.stat(f"/proc/{pid}/fd/{number}").st_mode & 0o777 == 0o600
                path = f"/proc/{pid}/fd/{number}"
                assert as_nobody(lambda path=path: str(os.open(path, os.O_RDONLY))).startswith("PermissionError")
            for name in ("mem", "environ", "maps", f"map_files/{0:x}-{1:x}"):
                path = f"/proc/{pid}/{name}"
                assert "Error" in as_nobody(lambda path=path: Path(path).read_bytes().hex())
        names = abstract_sockets(pid for pid, _, _ in told)
        assert told[0][2] in names
        for name in names:
            assert as_nobody(lambda name=name: knock(name)) in ("", "b''"), f"{name} answers strangers"
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
        for pe in pes:
            assert pe.stdin is not None
            pe.stdin.write("\n")
            pe.stdin.flush()
        errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
        assert [pe.returncode for pe in pes] == [0, 0], errors
    assert not all_abstract_sockets() & names, "sockets of a world that has ended"


def test_strangers_do_not_hold_up_the_failure_detector() -> None:
    """Of this user, too: connections that say nothing, or noise, by the hundred. PE 1 is still missed at once."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    with world(store.port, STAY) as pes:
        told = [json.loads(pe.stdout.readline()) for pe in pes if pe.stdout is not None]
        strangers = []
        for i in range(200):
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect("\0" + told[0][2])
            with suppress(OSError):
                stranger.sendall([b"", b"\xff" * 100, b"\0\0\0\x05[1,2]", struct.pack("!I", 1 << 16)][i % 4])
            strangers.append(stranger)
        pes[1].kill()
        assert pes[0].stdin is not None
        pes[0].stdin.write("\n")
        pes[0].stdin.flush()
        error = pes[0].communicate(timeout=HANG_SECONDS)[1]
        assert f"PE 0 cannot complete finalize(): PE 1 is lost: its process {pes[1].pid}" in error, error
        for stranger in strangers:
            stranger.close()


SQUAT = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
server = socket.socket(socket.AF_UNIX)
server.bind("\\0" + sys.argv[1])
server.listen(8)
print(flush=True)
sys.stdin.readline()
"""
MEET = """
import sys
from triton_dist.bootstrap.launchers import host
for pe in (0, 1):
    try:
        host.store(sys.argv[1], pe, 1.0)
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_holds_the_name_of_pe_0() -> None:
    """Which anybody can work out. It is an error that names the process; nothing is asked of it or told to it."""
    launch = f"a launch of process {os.getpid()}"  # not that of a test that runs in another source tree
    name = f"triton_dist/{os.geteuid()}/{hashlib.sha256(launch.encode()).hexdigest()}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    squatter = subprocess.Popen([sys.executable, "-c", SQUAT, name], **pipes)
    try:
        assert squatter.stdout is not None and squatter.stdout.readline() == "\n"
        environment = child_environment() | {"TRITON_DIST_WORLD": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", MEET, launch],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=True,
        )
        first, second = done.stdout.splitlines()
        squatting = f"process {squatter.pid} of user {NOBODY} has bound the rendezvous socket of this launch"
        assert first.startswith(squatting), first
        assert f"PE 0 did not arrive within 1 s (TRITON_DIST_INIT_TIMEOUT) (process {squatter.pid} of user" in second
    finally:
        squatter.kill()
        squatter.wait()


def test_a_log_that_is_damaged_ends_a_checked_run() -> None:
    """On all PEs, soon, and by an error of the check."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    program = """
import os, triton_dist
with triton_dist.init() as world:
    triton_dist.barrier_all()
    if world.pe == 1:
        world.recorder.flush()
        os.write(world.recorder._log._fd, b"no event")
"""
    with world(store.port, program, TRITON_DIST_CHECK="1") as pes:
        errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
    assert [pe.returncode for pe in pes] == [1, 1], errors
    assert "triton-dist-check: nothing was checked: the log of PE 1 is damaged" in "".join(errors)
