"""The machine code of fused norms and flash decode: made for a GPU that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

HERE = Path(__file__).parent
PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


def compiled(tmp_path: Path, script: str, *arguments: str) -> tuple[str, str]:
    """The kernel's PTX, and what the script prints. Nothing is spilled to local memory."""
    # In a process of its own, since the kernels of this one may be interpreted.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(tmp_path)}
    file = tmp_path / "kernel.ptx"
    made = subprocess.run(
        [sys.executable, HERE / script, *arguments, file], env=environment, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    command = [PTXAS, "-v", "-arch=sm_90a", file, "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert " 0 bytes spill stores" in report, report
    ptx = file.read_text()
    return ptx[ptx.index(".visible .entry") :].split("\n.func")[0], made.stdout


@pytest.mark.parametrize(
    "arguments",
    ["two_shot 8192 8 block", "one_shot 16384 8 token"],
)
def test_norms_send_and_poll_16_bytes_at_a_time(tmp_path: Path, arguments: str) -> None:
    ptx, _ = compiled(tmp_path, "norm_ptx.py", *arguments.split())
    assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx
    assert "ld.volatile.global.b32" not in ptx and "lookAtClock" in ptx


@pytest.mark.parametrize("case", ["gqa", "mla"])
def test_decode_is_pipelined_and_fits(tmp_path: Path, case: str) -> None:
    ptx, shared = compiled(tmp_path, "decode_ptx.py", case, "4")
    assert int(shared) <= (113 << 10 if case != "mla" else 227 << 10)  # so that a multiprocessor holds two programs
    assert "cp.async.cg.shared.global" in ptx and "mma.sync" in ptx
    assert "st.global.v2.b64" in ptx and "ld.volatile.global.v2.b64" in ptx and "lookAtClock" in ptx
