"""The two-level collectives' machine code: for every transport, with wide accesses, and nothing spilled."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

TRANSPORTS = ("p2p", "nvshmem")
PRETENDED = ("p2p, pretended hosts", "nvshmem, pretended hosts")
SLOW = [pytest.param(transport, marks=pytest.mark.slow) for transport in PRETENDED]
NAMES = (
    *("all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("sums of GEMMs", "finished rows of GEMMs"),
)


@functools.cache
def compiled(*transports: str) -> dict[str, str]:
    """PTX by transport and name."""
    script = Path(__file__).with_name("two_level_ptx.py")
    found: dict[str, str] = json.loads(made_by(script, *transports))
    return found


def ptx(transport: str, name: str) -> str:
    return compiled(*(TRANSPORTS if transport in TRANSPORTS else (transport,)))[f"{transport}: {name}"]


@pytest.mark.parametrize(
    "transport", [*TRANSPORTS, *(pytest.param(name, marks=pytest.mark.slow) for name in PRETENDED)]
)
@pytest.mark.parametrize("name", NAMES)
def test_elements_move_16_bytes_at_a_time(transport: str, name: str) -> None:
    text = ptx(transport, name)
    assert "ld.global.v4.b32" in text and "st.global.v4.b32" in text
    entry = text[text.index(".visible .entry") :].split("\n.func")[0]
    if not transport.startswith("nvshmem"):  # whose routines, which are linked, also copy what is not aligned
        assert not re.search(r"(ld|st)\.global(\.v\d)?\.b16", entry), "elements move one by one"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_spilled(tmp_path: Path, name: str) -> None:
    (file := tmp_path / "kernel.ptx").write_text(ptx("p2p", name))
    report = ptxas_report(file)
    assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}, report
