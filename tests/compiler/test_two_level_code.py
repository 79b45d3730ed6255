"""The two-level collectives' machine code: for every transport, with wide accesses, and nothing spilled."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
import triton
from ptx import made_by, ptxas_report, wide_accesses

TRANSPORTS = ("p2p", "nvshmem")
PRETENDED = ("p2p, pretended hosts", "nvshmem, pretended hosts")
SLOW = [pytest.param(transport, marks=pytest.mark.slow) for transport in PRETENDED]
NAMES = (
    *("all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("sums of GEMMs", "finished rows of GEMMs", "finished sums of hosts"),
)
EXCHANGE = ("admission", "exchange")
"""Kernels that move nothing by themselves but what a transport's puts move."""

SPILLED_BY_3_9 = {"reduce_scatter": 8, "sums of GEMMs": 20}
"""Bytes that a thread of these kernels spills with the compiler and ptxas of Triton 3.9, and none with 3.7.1."""


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


@pytest.mark.parametrize("name", NAMES[:3])
def test_blocks_of_many_pes_are_loaded_before_one_is_stored(tmp_path: Path, name: str) -> None:
    """Of eight blocks of 8 KB a thread has 16 loads in flight. The routines of puts have eight in a row."""
    (file := tmp_path / "kernel.ptx").write_text(ptx("p2p", f"{name} of 16 PEs"))
    ptxas_report(file)
    accesses = wide_accesses(file.with_suffix(".cubin"))
    assert max(len(row) for row in re.findall("L+", accesses)) >= 16, accesses


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_exchange_puts_by_the_transport(transport: str) -> None:
    """A put with a signal, by all threads of a program; the admission has signals only."""
    admission, exchange = (ptx(transport, name) for name in EXCHANGE)
    put = {"p2p": "triton_dist_putmem_signal_nbi_block", "nvshmem": "nvshmemi_transfer_put_signal"}[transport]
    assert put in exchange and put not in admission


@pytest.mark.parametrize("name", [*NAMES, *EXCHANGE])
def test_nothing_is_spilled(tmp_path: Path, name: str) -> None:
    (file := tmp_path / "kernel.ptx").write_text(ptx("p2p", name))
    report = ptxas_report(file)
    allowed = SPILLED_BY_3_9.get(name, 0) if triton.__version__.startswith("3.9.") else 0
    assert max(map(int, re.findall(r"(\d+) bytes spill", report))) <= allowed, report
