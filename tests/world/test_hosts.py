"""Several hosts, as far as one machine shows: processes in network namespaces of their own, with a cable between them.

Each namespace is a host to us: another address, no common loopback. (Their processes see each other's memory all the
same, which is how a CPU world can span them.)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checking import HERE
from hosts import SUBNET, ip, two_hosts
from limits import HANG_SECONDS, INIT_SECONDS

PROGRAM = HERE / "failing" / "hosts.py"
_OWN_KERNEL = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    with two_hosts() as names:
        yield names


def start(host: str, environment: dict[str, str], *arguments: str, own_kernel: bool = False) -> subprocess.Popen[str]:
    """``own_kernel``: as far as process numbers tell. Such PEs share no memory; they only say that they have met."""
    common = {
        "TRITON_DIST_WORLD": "cpu",
        "TRITON_DIST_SYMMETRIC_SIZE": "16M",
        "TRITON_DIST_INIT_TIMEOUT": INIT_SECONDS,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "PYTHONUNBUFFERED": "1",
    }
    clean = {k: v for k, v in os.environ.items() if not re.match("LOCAL_|TORCHELASTIC", k)}
    return subprocess.Popen(
        ["ip", "netns", "exec", host, *(_OWN_KERNEL if own_kernel else []), sys.executable, PROGRAM, *arguments],
        env=clean | common | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def by_hand(pe: int, n_pes: int) -> dict[str, str]:
    """RANK and so on, with PE 0 on the first host, which nobody else's agent helps."""
    return {"RANK": str(pe), "WORLD_SIZE": str(n_pes), "MASTER_ADDR": f"{SUBNET}.1", "MASTER_PORT": "29511"}


def by_slurm(pe: int, n_pes: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "1001",
        "SLURM_STEP_ID": "2",
        "SLURM_PROCID": str(pe),
        "SLURM_STEP_NUM_TASKS": str(n_pes),
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": f"{SUBNET}.[1-2]",  # names that need no name service
    }


@pytest.mark.slow
def test_pes_of_two_hosts_meet(hosts: list[str]) -> None:
    pes = [start(host, by_slurm(pe, 3)) for pe, host in enumerate([hosts[0], hosts[0], hosts[1]])]
    outputs = [pe.communicate(timeout=HANG_SECONDS) for pe in pes]
    assert [pe.returncode for pe in pes] == [0, 0, 0], outputs
    assert [out for out, _ in outputs] == ["here 0 of 2\n", "here 1 of 2\n", "here 0 of 1\n"]


def test_the_other_host_is_lost(hosts: list[str]) -> None:
    """The cable is cut while PE 0 is in a wait of the host, and PE 1 in nothing that it could be roused from."""
    pes = [start(host, by_hand(pe, 2), "wait") for pe, host in enumerate(hosts)]
    assert all(pe.stdout is not None and pe.stdout.readline().startswith("here") for pe in pes)
    ip("-n", hosts[1], "link", "set", "v" + hosts[1].removeprefix("td"), "down")
    errors = [pe.communicate(timeout=HANG_SECONDS)[1] for pe in pes]
    assert [pe.returncode for pe in pes] == [1, 1], errors
    assert re.search(r"PE 0 cannot exchange never: PE 1 is lost: its process \d+", errors[0]), errors
    assert re.search(r"PE 1: PE 0 is lost: .* So this process, which is at \S*hosts.py:\d+", errors[1]), errors


def launch_on(hosts: list[str], *secrets: Path) -> list[tuple[int, str, str]]:
    """Status, output and errors of PEs of two hosts in separate namespaces, each with its own secret."""
    files = [{"TRITON_DIST_SECRET_FILE": str(file)} for file in secrets] or [{}, {}]
    pes = [start(host, by_hand(pe, 2) | files[pe], "rendezvous", own_kernel=True) for pe, host in enumerate(hosts)]
    outputs = [pe.communicate(timeout=HANG_SECONDS) for pe in pes]
    return [(pe.returncode, *output) for pe, output in zip(pes, outputs, strict=True)]


@pytest.fixture
def secrets(tmp_path: Path) -> list[Path]:
    for name in ("one", "other"):
        (tmp_path / name).write_text(name * 10)
        (tmp_path / name).chmod(0o600)
    return [tmp_path / "one", tmp_path / "other"]


@pytest.mark.slow
def test_hosts_without_a_secret_are_warned(hosts: list[str]) -> None:
    (first, out, warning), (second, other, silence) = launch_on(hosts)
    assert (first, second) == (0, 0) and out == other == "met ['PE 0', 'PE 1']\n", (warning, silence)
    assert "have no secret in common (TRITON_DIST_SECRET_FILE)" in warning and "SECRET" not in silence


@pytest.mark.slow
def test_hosts_with_a_secret(hosts: list[str], secrets: list[Path]) -> None:
    for status, out, err in launch_on(hosts, secrets[0], secrets[0]):
        assert (status, out) == (0, "met ['PE 0', 'PE 1']\n") and "SECRET" not in err, err


@pytest.mark.slow
def test_hosts_with_different_secrets(hosts: list[str], secrets: list[Path]) -> None:
    for status, _, err in launch_on(hosts, *secrets):
        assert status == 1 and "does not have the key of this world: it has a different secret" in err, err
