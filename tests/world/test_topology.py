"""Pretended hosts: what reaches across them, and topologies that are none."""

from __future__ import annotations

import re

import pytest
from checking import BETWEEN_HOSTS, HERE, assert_passed, checks_of
from forking import launch
from limits import HANG_SECONDS

CPU = {"TRITON_DIST_WORLD": "cpu", "TRITON_DIST_SYMMETRIC_SIZE": "16M"}


@pytest.mark.parametrize(
    ("topology", "n_pes", "check"),
    [
        *(("2x1", 2, "0"), ("2x2", 4, "1")),
        *(pytest.param(*how, marks=pytest.mark.slow) for how in (("2x1", 2, "1"), ("2x2", 4, "0"))),
        *(pytest.param("3x1", 3, check, marks=pytest.mark.slow) for check in "01"),
    ],
)
def test_what_reaches_across(topology: str, n_pes: int, check: str) -> None:
    env = CPU | {"TRITON_DIST_TOPOLOGY": topology, "TRITON_DIST_CHECK": check}
    result = launch([HERE / "reached.py", "mapped"], n_pes, env=env, timeout=HANG_SECONDS).check()
    assert all("passed" in pe.stdout for pe in result), result.report


@pytest.mark.parametrize(
    ("file", "n_pes"),
    [pytest.param(*run, marks=[] if run[0] == "copies.py" else pytest.mark.slow) for run in BETWEEN_HOSTS.items()],
)
def test_checks(file: str, n_pes: int) -> None:
    """The same checks as in a world of one host, as far as they do not load from and store to peers."""
    for check in checks_of(file):
        assert_passed(file, n_pes, check, TRITON_DIST_TOPOLOGY=f"{n_pes}x1")


@pytest.mark.parametrize(
    ("topologies", "message"),
    [
        (["2x2"] * 3, "TRITON_DIST_TOPOLOGY=2x2 is 2 hosts of 2 PEs, 4 in all, and this world has 3 PEs: every host"),
        (["1x2"] * 3, "TRITON_DIST_TOPOLOGY=1x2 is 1 hosts of 2 PEs, 2 in all, and this world has 3 PEs: every host"),
        (["3x1", "3x1", "1x3"], "TRITON_DIST_TOPOLOGY is 3x1 on PE 0 and 1x3 on PE 2: set it alike on all PEs"),
        (["", "3x1", ""], "TRITON_DIST_TOPOLOGY is not set on PE 0 and 3x1 on PE 1: set it alike on all PEs"),
        (["2+1"] * 3, "TRITON_DIST_TOPOLOGY='2.1': expected <hosts>x<PEs of each>, such as 2x4"),
        (["0x3"] * 3, "TRITON_DIST_TOPOLOGY='0x3': expected <hosts>x<PEs of each>, such as 2x4"),
    ],
)
def test_no_topology(topologies: list[str], message: str) -> None:
    program = (
        f"import os, triton_dist\nvalue = {topologies!r}[int(os.environ['RANK'])]\n"
        "if value: os.environ['TRITON_DIST_TOPOLOGY'] = value\n"
        "triton_dist.init()"
    )
    result = launch(["-c", program], len(topologies), env=CPU, timeout=HANG_SECONDS)
    assert not result.timed_out and all(pe.returncode == 1 for pe in result), result.report
    assert any(re.search(message, pe.stderr) for pe in result), result.report
