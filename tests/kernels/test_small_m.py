"""The machine code of small-M GEMMs: made for a GPU that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
COMPILE = Path(__file__).parent / "small_m_ptx.py"


@pytest.mark.parametrize(("rows", "how"), [(16, ""), (32, ""), (64, ""), (128, ""), (64, "traced"), (64, "finished")])
def test_it_streams_fits_and_does_not_spill(tmp_path: Path, rows: int, how: str) -> None:
    # In a process of its own, since the kernels of this one may be interpreted.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(tmp_path)}
    file = tmp_path / "kernel.ptx"
    script = [sys.executable, COMPILE, str(rows), file, *how.split()]
    made = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    stages, shared = map(int, made.stdout.split())
    assert shared <= 227 << 10
    ptx = file.read_text()
    assert "wgmma.mma_async" in ptx
    kernel = ptx[ptx.index(".visible .entry") :].split("\n.func")[0]
    assert "lookAtClock" in kernel and ("%globaltimer;" in kernel) == (how == "traced")
    # The loop is pipelined: loads of A and B for all stages but one in front of it, and for one in it.
    assert stages >= 6 and ptx.count("cp.async.bulk.tensor") == 2 * stages
    # Words go to peers, and are looked at, by four.
    assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx
    command = [PTXAS, "-v", "-arch=sm_90a", file, "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert " 0 bytes spill stores" in report, report
