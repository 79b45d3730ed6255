"""The machine code of small-M GEMMs: made for a GPU that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

COMPILE = Path(__file__).parent / "small_m_ptx.py"

SLOW = ((32, ""), (64, ""), (64, "finished"), (16, "dependent"))


@pytest.mark.parametrize(
    ("rows", "how"),
    [
        *((16, ""), (128, ""), (64, "traced"), (128, "bands"), (128, "shards")),
        *(pytest.param(rows, how, marks=pytest.mark.slow) for rows, how in SLOW),
    ],
)
def test_it_streams_fits_and_does_not_spill(tmp_path: Path, rows: int, how: str) -> None:
    file = tmp_path / "kernel.ptx"
    stages, shared = map(int, made_by(COMPILE, str(rows), file, *how.split()).split())
    assert shared <= 227 << 10
    ptx = file.read_text()
    assert "wgmma.mma_async" in ptx
    kernel = ptx[ptx.index(".visible .entry") :].split("\n.func")[0]
    assert "lookAtClock" in kernel and ("%globaltimer;" in kernel) == (how == "traced")
    # The loop is pipelined: loads of A and B for all stages but one in front of it, and for one in it.
    assert stages >= (4 if how in ("bands", "shards") else 6)
    assert ptx.count("cp.async.bulk.tensor") == 2 * stages
    # Words go to peers, and are looked at, by four.
    assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx
    # The next kernel begins while tiles are exchanged: no block of B is loaded behind that.
    before = re.findall(r"griddepcontrol\.\w+|bulk\.tensor|ld\.volatile", kernel)
    if how == "dependent":
        turn = before.index("griddepcontrol.launch_dependents")
        assert before[0] == "griddepcontrol.wait", before
        assert "bulk.tensor" not in before[turn:] and "ld.volatile" not in before[:turn], before
    assert (how == "dependent") == ("griddepcontrol.wait" in before)
    report = ptxas_report(file)
    assert " 0 bytes spill stores" in report, report
