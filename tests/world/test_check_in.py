"""What is wrong with a launch is said by every PE that came, before the time is over, and is never a hang."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from checking import ENVIRONMENT
from forking import launch
from limits import HANG_SECONDS
from torch.distributed import Store, TCPStore

from triton_dist.bootstrap.process import Process
from triton_dist.bootstrap.rendezvous import Member, check_in


@pytest.fixture
def store() -> Store:
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def together(store: Store, members: list[Member], seconds: float = 10 * HANG_SECONDS) -> list[object]:
    """What the check-in of each gives, or the message of its error, when they come at the same time.

    The time to come is longer than this waits, so an error is never that of the time.
    """
    results: list[object] = [None] * len(members)

    def one(i: int, connection: Store) -> None:
        try:
            results[i] = check_in(connection, members[i], seconds, "PE 0")
        except RuntimeError as error:
            results[i] = str(error)

    threads = [threading.Thread(target=one, args=(i, store.clone())) for i in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    return results


def test_all_come(store: Store) -> None:
    members = [Member.self(pe, 3) for pe in range(3)]
    assert together(store, members) == [tuple(members)] * 3


def test_a_missing_pe_is_named(store: Store) -> None:
    members = [Member.self(pe, 4) for pe in (0, 2)]
    for member in members:  # so that neither misses the other, however late its thread starts
        store.set(f"member/{member.pe}", member.text())
    results = together(store, members, 1.0)
    for result in results:
        assert "PE 1, PE 3 did not come to triton_dist.init() within 1 s (TRITON_DIST_INIT_TIMEOUT)" in str(result)


def test_different_numbers_of_pes(store: Store) -> None:
    results = together(store, [Member.self(0, 2), Member.self(1, 3)])
    for result in results:
        assert re.search(r"as one of [23] PEs, and PE [01] \(process \d+\) as one of [23]: start all of", str(result))


def test_two_that_are_the_same(store: Store) -> None:
    other = replace(Member.self(1, 2), pid=1, host="elsewhere", host_identity="another")
    results = together(store, [Member.self(0, 2), Member.self(1, 2), other])
    assert "two processes are PE 1: process 1 on elsewhere and process" in "".join(map(str, results)) or (
        "and process 1 on elsewhere" in "".join(map(str, results))
    )


def test_one_that_came_and_ended(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.find(ended.pid)
    assert process is not None and process.is_running()
    ended.wait()
    assert not process.is_running()
    dead = replace(Member.self(1, 3), pid=process.pid, started=process.started)
    store.set("member/1", dead.text())
    [result] = together(store, [Member.self(0, 3)])
    assert result == f"PE 1 is lost: its process {process.pid} ended before all PEs had arrived"


def test_a_store_that_an_earlier_program_has_used(store: Store) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.find(ended.pid)
    assert process is not None
    ended.wait()
    store.set("member/0", replace(Member.self(0, 1), pid=process.pid, started=process.started).text())
    [result] = together(store, [Member.self(0, 1)])
    assert str(result).startswith(f"PE 0 was process {process.pid}, which has ended, and process"), result
    assert "served an earlier program" in str(result), result


def test_the_store_is_lost() -> None:
    program = "from torch.distributed import TCPStore; import sys; s = TCPStore('127.0.0.1', 0, None, True,"
    program += " wait_for_workers=False); print(s.port, flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    store = TCPStore("127.0.0.1", int(holder.stdout.readline()), None, False, wait_for_workers=False)
    threading.Timer(0.5, holder.kill).start()
    with pytest.raises(RuntimeError, match="PE 1 lost the rendezvous store: PE 0 has ended"):
        check_in(store, Member.self(1, 2), 10 * HANG_SECONDS, "PE 0")
    holder.wait()


ATTEMPTS = """
import os, triton_dist
def attempt(**variables):
    os.environ.update(variables)
    try:
        with triton_dist.init() as world:
            print(f"a world of {world.n_pes}")
    except RuntimeError as error:
        print(error)
pe = os.environ["RANK"]
attempt(TRITON_DIST_SYMMETRIC_SIZE=pe + "1M")
attempt(TRITON_DIST_SYMMETRIC_SIZE="4M")
attempt(WORLD_SIZE="3", TRITON_DIST_INIT_TIMEOUT="3")
"""


def test_an_attempt_that_fails_can_be_made_again() -> None:
    """PEs with different heaps; then a sound world; then one of which a PE was not started."""
    result = launch(["-c", ATTEMPTS], 2, env=ENVIRONMENT).check()
    for pe in result:
        lines = pe.stdout.splitlines()
        assert "set TRITON_DIST_SYMMETRIC_SIZE alike on all PEs" in lines[0], result.report
        assert lines[1] == "a world of 2", result.report
        assert "PE 2 did not come to triton_dist.init() within 3 s" in lines[2], result.report
