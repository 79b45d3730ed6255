"""The machine code of dispatch and combine between hosts: for every transport, and with wide accesses."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
import triton
from ptx import made_by, ptxas_report

BETWEEN = "moe_dispatch_between_hosts, 2 bytes", "moe_combine_between_hosts, 2 bytes"
HALVES = (
    "moe_dispatch_between_hosts, 1 bytes",
    "moe_dispatch_between_hosts_send, 2 bytes",
    "moe_dispatch_between_hosts_receive, 2 bytes",
)
INSIDE = "dispatch", "dispatch in rounds", "combine", "combine in rounds"
CASES = [
    *((transport, name) for name in BETWEEN for transport in ("p2p", "nvshmem")),
    *(
        pytest.param(transport, name, marks=pytest.mark.slow)
        for transport in ("p2p", "nvshmem", "p2p, pretended hosts", "nvshmem, pretended hosts")
        for name in (BETWEEN if "pretended" in transport else (*HALVES, *INSIDE))
    ),
]
SPILLED = {
    "moe_dispatch_between_hosts_receive, 2 bytes": 8,
    "dispatch in rounds": 88,
    "combine in rounds": 8,
    "combine": 20,
}
"""Bytes that a thread of these kernels spills, with Triton 3.7.1; the others none."""


@functools.cache
def compiled(transport: str, some: tuple[str, ...]) -> dict[str, str]:
    """PTX by transport and name."""
    script = Path(__file__).with_name("two_level_moe_ptx.py")
    found: dict[str, str] = json.loads(made_by(script, transport, ";".join(some)))
    return found


@pytest.mark.parametrize(("transport", "name"), CASES)
def test_rows_move_16_bytes_at_a_time(tmp_path: Path, transport: str, name: str) -> None:
    some = next(names for names in (BETWEEN, HALVES, INSIDE) if name in names)
    text = compiled(transport, some)[f"{transport}: {name}"]
    assert "st.global.v4.b32" in text
    assert "ld.global.v4.b32" in text or "ld.volatile.global.v4.b32" in text
    if transport == "p2p" and triton.__version__.startswith("3.7."):
        (file := tmp_path / "kernel.ptx").write_text(text)
        stores = re.findall(r"(\d+) bytes spill stores", ptxas_report(file))
        assert max(map(int, stores)) <= SPILLED.get(name, 0), stores
