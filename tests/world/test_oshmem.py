"""A CPU world over Open MPI's OpenSHMEM library: what the shared-memory world is checked for, over others' code."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checking import BETWEEN_HOSTS, HERE, assert_passed, checks_of
from forking import COMPILER, launch
from hosts import SUBNET, two_hosts
from limits import HANG_SECONDS, INIT_SECONDS

PROGRAM = HERE / "reached.py"
OSHMEM = {
    "TRITON_DIST_WORLD": "cpu",
    "TRITON_DIST_CPU_TRANSPORT": "oshmem",
    "TRITON_DIST_SYMMETRIC_SIZE": "16M",
    "TRITON_DIST_GROUP_MEMORY": "16M",
    "TRITON_DIST_INIT_TIMEOUT": INIT_SECONDS,
    "OMP_NUM_THREADS": "1",
    "UCX_TLS": "tcp,self",  # as between hosts: no PE maps another's memory
}


BY_OPEN_MPI = 195
"""The status of a process that Open MPI has ended because another one of its job has."""


@pytest.fixture(autouse=True)
def _library() -> None:
    if shutil.which("oshrun") is None:
        pytest.skip("oshrun is not installed (scripts/install_mpi.sh installs it)")
    try:
        ctypes.CDLL("liboshmem.so.40")
    except OSError as error:
        pytest.skip(f"Open MPI's OpenSHMEM library is not installed: {error}")


def oshrun(*arguments: str) -> list[str]:
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["oshrun", *as_root, "--oversubscribe", "--bind-to", "none", *arguments]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "TRITON_DIST_"))}
    there = clean | OSHMEM | {"PYTHONPATH": str(HERE.parents[1])} | environment
    return subprocess.run(command, env=there, capture_output=True, text=True, timeout=HANG_SECONDS)


@pytest.mark.parametrize("launcher", ["oshrun", pytest.param("mpirun.openmpi", marks=pytest.mark.slow)])
def test_oshrun(launcher: str) -> None:
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    done = run([launcher, *oshrun("-n", "2")[1:], sys.executable, str(PROGRAM)])
    assert done.returncode == 0 and done.stdout.count("passed") == 2, done.stdout + done.stderr


@pytest.mark.slow
def test_torchrun() -> None:
    """PE 0 starts an oshrun of placeholders, so that the PEs have places in a job of Open MPI: as in ``launch``."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    done = run([*torchrun, str(PROGRAM)])
    assert done.returncode == 0 and done.stdout.count("passed") == 3, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "n_pes"),
    BETWEEN_HOSTS.items(),
)
def test_checks(file: str, n_pes: int) -> None:
    """On two PEs: the library polls, and more processes than cores take several times as long."""
    for check in checks_of(file):
        assert_passed(file, min(n_pes, 2), check, **(OSHMEM | {"TRITON_DIST_SYMMETRIC_SIZE": "64M"}))


@pytest.mark.slow
def test_ops(tmp_path: Path) -> None:
    """The checks between GPUs, as far as they do not load from and store to peers."""
    report = tmp_path / "results.json"
    worker = HERE.parent / "gpu" / "worker_ops.py"
    env = OSHMEM | {"TRITON_DIST_SYMMETRIC_SIZE": "256M", "TRITON_DIST_GROUP_MEMORY": "64M"}
    launch([worker, "--limit", "600", "--results", report], 2, env=env, timeout=2 * HANG_SECONDS).check()
    run = json.loads(report.read_text())
    assert all(check["passed"] for check in run["checks"]) and len(run["checks"]) > 50


def test_gemms_between_hosts() -> None:
    """Each PE is a host, since none maps another's memory: GEMMs with two-level collectives in front or behind."""
    program = HERE.parent / "kernels" / "checks" / "two_level_gemms.py"
    sizes = {"TRITON_DIST_SYMMETRIC_SIZE": "64M", "TRITON_DIST_GROUP_MEMORY": "64M"}
    env = OSHMEM | sizes | {"PYTHONPATH": str(HERE / "checks")}
    check = "uneven_rows"
    result = launch([program, check], 2, env=env, timeout=HANG_SECONDS, modules=COMPILER).check()
    assert all(f"passed: {check}" in pe.stdout for pe in result), result.report


def test_collectives_of_hosts_are_the_library_s() -> None:
    result = launch([HERE / "whole_collectives.py"], 3, env=OSHMEM, timeout=HANG_SECONDS).check()
    assert all("passed" in pe.stdout for pe in result), result.report


def test_a_second_world_of_the_same_processes() -> None:
    program = (
        "import torch, triton_dist\n"
        "for turn in range(3):\n"
        "    with triton_dist.init() as world:\n"
        "        mine = triton_dist.full((4,), world.pe + turn, dtype=torch.int64)\n"
        "        got = torch.zeros(4, dtype=torch.int64)\n"
        "        triton_dist.get(got, mine, 1 - world.pe)\n"
        "        assert got.tolist() == [1 - world.pe + turn] * 4\n"
        "        del mine\n"
        "print('passed')"
    )
    result = launch(["-c", program], 2, env=OSHMEM, timeout=HANG_SECONDS).check()
    assert all("passed" in pe.stdout for pe in result), result.report


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_pe_is_lost(how: str) -> None:
    """While the others wait in a kernel and on the host: these end, too.

    Open MPI ends the processes of a job when one of them is killed, perhaps before they can say why.
    """
    program = f"""
import os, signal, torch, triton, triton_dist, triton_dist.language as dl
@triton.jit
def wait(signal):
    dl.signal_wait_until(signal, dl.CMP_GE, 1)
with triton_dist.init() as world:
    signal_word = triton_dist.zeros(1, dtype=torch.int64)
    if world.pe == 2:
        if {how!r} == "raises":
            raise ValueError("no more")
        os.kill(os.getpid(), signal.SIGKILL)
    elif world.pe == 1:
        wait[(1,)](signal_word)
    triton_dist.barrier_all()
"""
    (file := Path(os.environ.get("TMPDIR", "/tmp")) / f"triton_dist_lost_{os.getpid()}.py").write_text(program)
    try:
        result = launch([file], 3, env=OSHMEM, timeout=HANG_SECONDS)
    finally:
        file.unlink()
    assert not result.timed_out and all(pe.returncode for pe in result), result.report
    if how == "raises":
        told = ["PE 2 raised ValueError: no more" in pe.stderr for pe in result if pe.pe != 2]
        assert any(told), result.report
        ended_by_the_launcher = [pe.returncode == BY_OPEN_MPI for pe in result if pe.pe != 2]
        assert all(a or b for a, b in zip(told, ended_by_the_launcher, strict=True)), result.report


def test_memory_of_a_lost_pe_is_not_made_up(tmp_path: Path) -> None:
    """The library returns what was on its stack, or nothing, once the connection is lost: none of it reaches a caller.

    Open MPI ends PE 0 a little later than PE 1, perhaps before it is done.
    """
    program = tmp_path / "lost.py"
    program.write_text("""
import ctypes, time, pytest, torch, triton_dist
from triton_dist.bootstrap.failure_detector import BrokenWorldError
from triton_dist.cpu.runtime.atomics import Order
world = triton_dist.init()
table = triton_dist.full((256,), 0, dtype=torch.uint8)
table.copy_(torch.arange(256))
triton_dist.barrier_all()
heap, at = world.heap, world.heap.find(table.data_ptr())[1]
if world.pe == 1:
    for pe in (0, 1):
        got = [heap.words(1).load(pe, at + i, Order.RELAXED) for i in range(256)]
        assert got == list(range(256)), got
    raise ValueError("no more")
while not world._launch.members[1].is_seen_dead:
    time.sleep(0.01)
time.sleep(0.1)
room = ctypes.create_string_buffer(256)
address = ctypes.addressof(room)
def late():
    heap.read_nbi(1, at, address, 256)
    heap.quiet()
for read in (
    lambda: heap.words(8).load(1, at, Order.ACQUIRE),
    lambda: heap.words(4).fetch_add(1, at, 1, Order.RELAXED),
    lambda: heap.words(4).compare_swap(1, at, 0, 1, Order.RELAXED),
    lambda: heap.words(1).load(1, at, Order.RELAXED),
    lambda: heap.read(1, at, address, 256),
    lambda: heap.read_strided(1, at, 8, address, 8, 4, 32),
    late,
):
    with pytest.raises(BrokenWorldError, match="PE 0 cannot read memory of PE 1: PE 1 raised ValueError: no more"):
        read()
    assert not any(room.raw)
print("none of it")
world.abort("has seen enough")
""")
    result = launch([program], 2, env=OSHMEM, timeout=HANG_SECONDS)
    assert not result.timed_out and result[1].returncode == 1 and "no more" in result[1].stderr, result.report
    assert result[0].returncode == BY_OPEN_MPI or "none of it" in result[0].stdout, result.report


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TRITON_DIST_CHECK": "1"}, "TRITON_DIST_CHECK needs TRITON_DIST_CPU_TRANSPORT=shared"),
        ({"TRITON_DIST_SCHEDULE": "random:1"}, "TRITON_DIST_SCHEDULE needs TRITON_DIST_CPU_TRANSPORT=shared"),
        ({"PATH": "/nowhere"}, "needs Open MPI's oshrun in PATH"),
        ({"TRITON_DIST_CPU_TRANSPORT": "sockets"}, "expected one of shared, oshmem"),
    ],
)
def test_what_it_refuses(environment: dict[str, str], message: str) -> None:
    result = launch(["-c", "import triton_dist; triton_dist.init()"], 2, env=OSHMEM | environment)
    assert not result.timed_out and all(pe.returncode == 1 for pe in result), result.report
    assert any(message in pe.stderr for pe in result), result.report


def test_transports_that_differ() -> None:
    program = "import os, triton_dist\nif os.environ['RANK'] == '1': del os.environ['TRITON_DIST_CPU_TRANSPORT']\n"
    result = launch(["-c", program + "triton_dist.init()"], 2, env=OSHMEM)
    assert not result.timed_out and all(pe.returncode == 1 for pe in result), result.report
    assert "TRITON_DIST_CPU_TRANSPORT is oshmem on PE 0 and shared on PE 1" in result[0].stderr, result.report


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    with two_hosts() as names:
        yield names


@pytest.mark.slow
def test_two_hosts(hosts: list[str], tmp_path: Path) -> None:
    """Two PEs on one host and two on another: each in a network namespace, and with a host name, of its own."""
    agent = tmp_path / "agent"
    agent.write_text(
        '#!/bin/bash\nhost=$1; shift\nexec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"\n'
    )
    agent.chmod(0o700)
    options = ["--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", f"{SUBNET}.0/24"]
    names = ",".join(f"{name}:2" for name in hosts)
    variables = [*OSHMEM, "PYTHONPATH", "MASTER_ADDR", "MASTER_PORT"]
    passed_on = [part for name in variables for part in ("-x", name)]
    command = oshrun(*options, "--host", names, "-n", "4", *passed_on, sys.executable, str(PROGRAM))
    quoted = " ".join(command)
    done = run(
        ["ip", "netns", "exec", hosts[0], "unshare", "--uts", "bash", "-c", f"hostname {hosts[0]}; {quoted}"],
        MASTER_ADDR=f"{SUBNET}.1",
        MASTER_PORT="29513",
    )
    assert done.returncode == 0 and done.stdout.count("passed") == 4, done.stdout + done.stderr
    assert not re.search("Traceback", done.stderr), done.stderr
