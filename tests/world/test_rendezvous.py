"""Launches that fail in the rendezvous: all PEs soon raise an error that names the PE and the reason."""

from __future__ import annotations

import signal
import socket
import subprocess
import time

import pytest
from by_hand import by_hand

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
import os, sys, time
import triton_dist
from triton_dist.bootstrap import discovery as launch_info
if sys.argv[1:] == ["late"]:
    time.sleep(3)
check_in = launch_info.check_in
def come(store, me, *rest):
    print("comes", flush=True)
    return check_in(store, me, *rest)
launch_info.check_in = come
triton_dist.init()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def errors_of(pes: list[subprocess.Popen[str]], seconds: float = 60) -> list[str]:
    found = [pe.communicate(timeout=seconds)[1] for pe in pes]
    return [error.strip().splitlines()[-1] if error else "" for error in found]


@pytest.mark.parametrize("rank", [0, 1])
def test_something_silent_listens_there(rank: int) -> None:
    """It takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with by_hand([rank], 2, port, TRITON_DIST_INIT_TIMEOUT="2") as pes:
            [error] = errors_of(pes, 40)
    assert f"127.0.0.1:{port}" in error and "another program listens there" in error and "MASTER_PORT" in error, error


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_two_are_pe_0(host: str) -> None:
    begin = time.monotonic()
    with by_hand([0, 0], 2, free_port(), MASTER_ADDR=host) as pes:
        errors = errors_of(pes)
        for error in errors:
            assert "two processes are PE 0" in error, errors
            assert all(f"process {pe.pid}" in error for pe in pes), errors
    assert time.monotonic() - begin < 30, "only when the time was over"


def test_the_port_is_another_programs() -> None:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)  # one that no PE 0 has opened
    with by_hand([0], 2, store.port) as pes:
        [error] = errors_of(pes)
    assert f"cannot open the rendezvous store at 127.0.0.1:{store.port} (another program listens there)" in error


def test_an_address_of_another_host() -> None:
    with by_hand([0], 2, free_port(), MASTER_ADDR="192.0.2.7") as pes:
        [error] = errors_of(pes)
    assert "PE 0, process" in error and "at 192.0.2.7:" in error and "MASTER_ADDR to an address of PE 0's host" in error


def test_the_one_that_was_killed_is_named_by_all() -> None:
    """Also on a PE that arrives after PE 0, which holds the store, has failed."""
    begin = time.monotonic()
    with by_hand([0, 2, 1], 3, free_port(), COME_AND_STAY, ["", "", "late"]) as pes:
        for pe in pes[:2]:
            assert pe.stdout is not None and pe.stdout.readline() == "comes\n"
        time.sleep(1.0)
        pes[1].send_signal(signal.SIGKILL)
        errors = errors_of([pes[0], pes[2]])
        for error in errors:
            assert error.endswith(f"PE 2 is lost: its process {pes[1].pid} ended before all PEs had arrived"), errors
    assert time.monotonic() - begin < 40


def test_pe_0_is_stopped() -> None:
    """Its store takes what is sent to it, and does not answer."""
    with by_hand([0], 2, port := free_port(), COME_AND_STAY) as first:
        assert first[0].stdout is not None and first[0].stdout.readline() == "comes\n"
        first[0].send_signal(signal.SIGSTOP)
        with by_hand([1], 2, port, TRITON_DIST_INIT_TIMEOUT="2") as pes:
            [error] = errors_of(pes, 40)
    assert "TRITON_DIST_INIT_TIMEOUT" in error and ("PE 0 is stopped" in error), error


def test_the_store_listens_on_its_address_only() -> None:
    with by_hand([0], 2, port := free_port(), COME_AND_STAY) as pes:
        assert pes[0].stdout is not None and pes[0].stdout.readline() == "comes\n"
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}") as file:
                rows = [line.split() for line in file.read().splitlines()[1:]]
            listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
            assert listening in ([], [f"0100007F:{port:04X}"]), table


@pytest.mark.parametrize("order", ["world(); reduce()", "world(); reduce(); world()", "reduce(); world()"])
def test_torch_and_we_share_what_pe_0_has_opened(order: str) -> None:
    with by_hand([0, 1], 2, free_port(), f"{TORCH}\n{order}\ndist.destroy_process_group()") as pes:
        errors = [pe.communicate(timeout=60)[1] for pe in pes]
        assert [pe.returncode for pe in pes] == [0, 0], errors
