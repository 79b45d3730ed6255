"""Launches that fail in the rendezvous: all PEs soon raise an error that names the PE and the reason."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from by_hand import by_hand
from limits import HANG_SECONDS
from started import Started

from triton_dist.bootstrap.launchers.tcp import means_loopback

TORCH = """
import torch, torch.distributed as dist, triton_dist
def reduce():
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2
    dist.barrier()
def world():
    with triton_dist.init() as found:
        triton_dist.barrier_all()
    assert found.n_pes == 2
"""
COME_AND_STAY = """
import sys
import triton_dist
from triton_dist.bootstrap import rendezvous
arrived = rendezvous._arrived
def has_come(*arguments):  # who this PE is stands in the store
    rendezvous._arrived = arrived
    print("comes", flush=True)
    return arrived(*arguments)
rendezvous._arrived = has_come
if sys.argv[1:] == ["late"]:
    print("ready", flush=True)
    sys.stdin.readline()
triton_dist.init()
"""
ASK_AND_COME = """
import socket
import triton_dist
connect = socket.create_connection
def refused(*arguments):
    try:
        return connect(*arguments)
    except OSError:
        socket.create_connection = connect
        print("refused", flush=True)
        raise
socket.create_connection = refused
with triton_dist.init() as world: print(world)
"""
STAY_A_WHILE = """
import atexit, time
import triton_dist
atexit.register(time.sleep, 1.0)  # runs behind what init() registers
try:
    triton_dist.init()
finally:
    print("failed", flush=True)
"""
AGREE_AND_STAY = """
import sys
import triton_dist
from triton_dist.bootstrap import discovery, key_agreement
proofs = key_agreement._await_proofs
def late(*arguments):  # this PE's proof stands in the store
    print("agrees", flush=True)
    sys.stdin.readline()
    return proofs(*arguments)
if sys.argv[1:] == ["late"]:
    key_agreement._await_proofs = late
class Launch(discovery.Launch):
    def __init__(self, *arguments):  # this PE has joined
        super().__init__(*arguments)
        print("joined", flush=True)
discovery.Launch = Launch
triton_dist.init()
"""


@pytest.fixture
def port() -> Iterator[int]:
    """One that a store may listen on, and that the system gives to nobody else: it is bound here, too."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def errors_of(pes: list[Started]) -> list[str]:
    found = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
    return [error.strip().splitlines()[-1] if error else "" for error in found]


@pytest.mark.parametrize("rank", [0, 1])
def test_something_silent_listens_there(rank: int) -> None:
    """It takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with by_hand([rank], 2, port, TRITON_DIST_INIT_TIMEOUT="2") as pes:
            [error] = errors_of(pes)
    assert f"127.0.0.1:{port}" in error and "another program listens there" in error and "MASTER_PORT" in error, error


def test_something_that_speaks_first_listens_there() -> None:
    """What it says tells the user what it is; torch's client would print pages of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    connections.append(connection)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")

        connections: list[socket.socket] = []
        threading.Thread(target=greet, daemon=True).start()
        port = server.getsockname()[1]
        with by_hand([1], 2, port) as pes:
            _, errors = pes[0].communicate(timeout=HANG_SECONDS)
        server.shutdown(socket.SHUT_RDWR)
    error = errors.strip().splitlines()[-1]
    assert f"another program listens at 127.0.0.1:{port}, which says 'SSH-2.0-OpenSSH_9.2p1': set MASTER_PORT" in error
    assert "frame #" not in errors


@pytest.mark.parametrize("rank", [0, 1])
def test_something_silent_ends_while_the_process_does(rank: int) -> None:
    """No thread comes back from torch's client then: it would abort the process, behind the error."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with by_hand([rank], 2, port, STAY_A_WHILE, TRITON_DIST_INIT_TIMEOUT="2") as pes:
            connections = [silent.accept()[0]]
            assert pes[0].stdout.readline() == "failed\n"
            silent.settimeout(0.0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connections.append(silent.accept()[0])
            for connection in connections:
                connection.close()
            [error] = errors_of(pes)
            assert pes[0].wait() == 1 and "another program listens there" in error, error  # the last line


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_nothing_listens_there(host: str, port: int) -> None:
    with by_hand([1], 2, port, MASTER_ADDR=host, TRITON_DIST_INIT_TIMEOUT="2") as pes:
        [pe] = pes
        _, errors = pe.communicate(timeout=HANG_SECONDS)
    error = errors.strip().splitlines()[-1]
    assert f"no rendezvous store answers at {host}:{port}" in error and "is PE 0 running" in error, errors
    assert "frame #" not in errors and errors.count("Error") == 1, "C++ frames of torch's client hide the reason"


def test_pe_0_comes_late(port: int) -> None:
    """The others find it, and print nothing about the connections that were refused."""
    with by_hand([1], 2, port, ASK_AND_COME) as early:
        assert early[0].stdout.readline() == "refused\n"
        with by_hand([0], 2, port) as late:
            for pe in (*early, *late):
                output, errors = pe.communicate(timeout=HANG_SECONDS)
                assert pe.wait() == 0 and "of 2 on cpu" in output and not errors, output + errors


INTERRUPTED = """
import os, signal, threading, triton_dist
threading.Timer(2, os.kill, [os.getpid(), signal.SIGINT]).start()
triton_dist.init()
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_ctrl_c_while_others_are_waited_for_is_one_line(rank: int, port: int) -> None:
    with by_hand([rank], 2, port, INTERRUPTED) as [pe]:
        _, errors = pe.communicate(timeout=HANG_SECONDS)
        assert pe.wait() == -signal.SIGINT, errors
    line = r"triton_dist: interrupted at \S+:\d+, in <module>, while init\(\) waited for the other PEs\n"
    assert re.fullmatch(line, errors), errors


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "LOCALHOST", "localhost.", "::1", "127.0.0.1"])
def test_spellings_of_loopback(host: str) -> None:
    assert means_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "host0", "localhost.example", "", "1.2.3.4"])
def test_what_may_be_another_host(host: str) -> None:
    assert not means_loopback(host)


def test_no_file_can_be_opened(port: int) -> None:
    program = """
import os, resource, triton_dist, triton_dist.cpu.world, torch.distributed, socket
socket.getaddrinfo("localhost", 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open("/dev/null", 0)
except OSError:
    triton_dist.init()
"""
    with by_hand([0], 2, port, program) as pes:
        [error] = errors_of(pes)
    assert "cannot open the rendezvous store" in error and "too many files are open (ulimit -n)" in error, error


FEW_FILES = """
import os, resource, triton_dist, triton_dist.cpu.world, torch.distributed
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + LEFT,) * 2)
triton_dist.init()
"""


@pytest.mark.parametrize(("rank", "left", "what"), [(0, 2, "open"), (0, 8, "open"), (1, 0, "connect to")])
def test_few_files_can_be_opened(rank: int, left: int, what: str, port: int) -> None:
    """Torch has other words for that, as "Failed to init uv loop", or ends the process."""
    with by_hand([rank], 2, port, FEW_FILES.replace("LEFT", str(left)), MASTER_ADDR="127.0.0.1") as pes:
        [error] = errors_of(pes)
    assert f"cannot {what} the rendezvous store" in error and "too many files are open (ulimit -n)" in error, error


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_two_are_pe_0(host: str, port: int) -> None:
    with by_hand([0, 0], 2, port, MASTER_ADDR=host) as pes:
        errors = errors_of(pes)
        for error in errors:
            assert "two processes are PE 0" in error, errors
            assert all(f"process {pe.pid}" in error for pe in pes), errors


def test_the_port_is_another_programs() -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)  # one that no PE 0 has opened
    with by_hand([0], 2, store.port) as pes:
        [error] = errors_of(pes)
    assert f"cannot open the rendezvous store at 127.0.0.1:{store.port} (another program listens there)" in error


def test_an_address_of_another_host(port: int) -> None:
    with by_hand([0], 2, port, MASTER_ADDR="192.0.2.7") as pes:
        [error] = errors_of(pes)
    assert "PE 0, process" in error and "at 192.0.2.7:" in error and "MASTER_ADDR to an address of PE 0's host" in error


def test_the_one_that_was_killed_is_named_by_all(port: int) -> None:
    """Also on a PE that arrives after PE 0, which holds the store, has failed."""
    with by_hand([0, 2, 1], 3, port, COME_AND_STAY, [[], [], ["late"]]) as pes:
        for pe, says in zip(pes, ("comes\n", "comes\n", "ready\n"), strict=True):
            assert pe.stdout is not None and pe.stdout.readline() == says
        pes[1].send_signal(signal.SIGKILL)
        time.sleep(1.0)  # PE 0 fails meanwhile, and stays until PE 1 has heard of it
        pes[2].stdin.write("\n")  # type: ignore[union-attr]
        pes[2].stdin.flush()  # type: ignore[union-attr]
        errors = errors_of([pes[0], pes[2]])
        for error in errors:
            assert error.endswith(f"PE 2 is lost: its process {pes[1].pid} ended before all PEs had arrived"), errors


def test_who_loses_the_store_names_those_who_ended_before(port: int) -> None:
    """PE 0, which holds it, ends because PE 2 was killed; PE 1 has not joined yet, and cannot hear of it."""
    with by_hand([0, 2, 1], 3, port, AGREE_AND_STAY, [[], [], ["late"]]) as pes:
        for pe, says in zip(pes, ("joined\n", "joined\n", "agrees\n"), strict=True):
            assert pe.stdout is not None and pe.stdout.readline() == says
        pes[1].send_signal(signal.SIGKILL)
        assert f"PE 2 is lost: its process {pes[1].pid} was killed" in errors_of([pes[0]])[0]
        pes[2].stdin.write("\n")  # type: ignore[union-attr]
        pes[2].stdin.flush()  # type: ignore[union-attr]
        (error,) = errors_of([pes[2]])
        assert "PE 1 lost the rendezvous store: PE 0" in error
        assert error.endswith(f"; PE 2 is lost: its process {pes[1].pid} has ended"), error


def test_pe_0_is_stopped(port: int) -> None:
    """Its store takes what is sent to it, and does not answer."""
    with by_hand([0], 2, port, COME_AND_STAY) as first:
        assert first[0].stdout is not None and first[0].stdout.readline() == "comes\n"
        first[0].send_signal(signal.SIGSTOP)
        with by_hand([1], 2, port, TRITON_DIST_INIT_TIMEOUT="2") as pes:
            [error] = errors_of(pes)
    assert "TRITON_DIST_INIT_TIMEOUT" in error and ("PE 0 is stopped" in error), error


def test_the_store_listens_on_its_address_only(port: int) -> None:
    with by_hand([0], 2, port, COME_AND_STAY) as pes:
        assert pes[0].stdout is not None and pes[0].stdout.readline() == "comes\n"
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}") as file:
                rows = [line.split() for line in file.read().splitlines()[1:]]
            listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
            assert listening in ([], [f"0100007F:{port:04X}"]), table


@pytest.mark.parametrize("order", ["world(); reduce()", "world(); reduce(); world()", "reduce(); world()"])
def test_torch_and_we_share_what_pe_0_has_opened(order: str, port: int) -> None:
    with by_hand([0, 1], 2, port, f"{TORCH}\n{order}\ndist.destroy_process_group()") as pes:
        errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
        assert [pe.returncode for pe in pes] == [0, 0], errors
