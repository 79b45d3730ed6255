"""The machine code of GEMMs with a norm in front: made for a GPU that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

COMPILE = Path(__file__).parent / "norm_gemm_ptx.py"
SM = 228 << 10
"""Bytes of an SM's shared memory, of which each program takes 1 KB more than it has."""

SLOW = ((64, 25600, ""), (32, 3072, ""), (64, 12288, "dependent"))


@pytest.mark.parametrize(
    ("rows", "columns", "how"),
    [(16, 12288, ""), (16, 3072, "dependent"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_programs_stream_and_fit_on_the_gpu_together(tmp_path: Path, rows: int, columns: int, how: str) -> None:
    file = tmp_path / "kernel.ptx"
    stages, shared, of_an_sm = map(int, made_by(COMPILE, str(rows), str(columns), file, *how.split()).split())
    assert (shared + 1024) * of_an_sm <= SM
    ptx = file.read_text()
    assert "wgmma.mma_async" in ptx
    # The loop is pipelined: loads of A and B for all stages but one in front of it, and for one in it.
    assert stages >= 4 and ptx.count("cp.async.bulk.tensor") == 2 * stages
    orders = re.findall(r"griddepcontrol\.\w+|bulk\.tensor", ptx)
    if how:  # the wait, loads, and the next kernel's turn when all have come
        assert orders[0] == "griddepcontrol.wait" and set(orders[1:-1]) == {"bulk.tensor"}, orders
        assert orders[-1] == "griddepcontrol.launch_dependents", orders
    else:
        assert set(orders) == {"bulk.tensor"}, orders
    report = ptxas_report(file)
    assert " 0 bytes spill stores" in report, report
