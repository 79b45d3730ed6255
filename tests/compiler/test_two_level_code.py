"""The two-level collectives' machine code: for every transport, with wide accesses, and nothing spilled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

KERNELS = [
    f"{transport}: {name}"
    for transport in ("p2p", "p2p, pretended hosts", "nvshmem")
    for name in (
        *("all_gather", "reduce_scatter", "all_to_all", "broadcast"),
        *("sums of GEMMs", "finished rows of GEMMs"),
    )
]


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    script = Path(__file__).with_name("two_level_ptx.py")
    found: dict[str, str] = json.loads(made_by(script))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_elements_move_16_bytes_at_a_time(ptx: dict[str, str], name: str) -> None:
    assert "ld.global.v4.b32" in ptx[name] and "st.global.v4.b32" in ptx[name]
    entry = ptx[name][ptx[name].index(".visible .entry") :].split("\n.func")[0]
    if "nvshmem" not in name:  # whose routines, which are linked, also copy what is not aligned
        assert not re.search(r"(ld|st)\.global(\.v\d)?\.b16", entry), "elements move one by one"


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith("p2p: ")])
def test_nothing_is_spilled(ptx: dict[str, str], tmp_path: Path, name: str) -> None:
    (file := tmp_path / "kernel.ptx").write_text(ptx[name])
    report = ptxas_report(file)
    assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}, report
