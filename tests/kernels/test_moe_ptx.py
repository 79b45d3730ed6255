"""The machine code of dispatch, combine and the grouped GEMM: made for a GPU that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
COMPILE = Path(__file__).parent / "moe_ptx.py"


@pytest.mark.parametrize(("hidden", "dtype"), [(7168, "bfloat16"), (2048, "float8_e4m3fn")])
def test_it_moves_16_bytes_at_a_time_and_does_not_spill(tmp_path: Path, hidden: int, dtype: str) -> None:
    # In a process of its own, since the kernels of this one may be interpreted.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(tmp_path)}
    made = subprocess.run(
        [sys.executable, COMPILE, tmp_path, str(hidden), dtype], env=environment, stderr=-1, text=True
    )
    assert made.returncode == 0, made.stderr
    for name in ("dispatch", "combine", "dispatch_rounds", "combine_rounds", "grouped_gemm"):
        file = tmp_path / f"{name}.ptx"
        command = [PTXAS, "-v", "-arch=sm_90a", file, "-o", tmp_path / "kernel.cubin"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert " 0 bytes spill stores" in report, (name, report)
        ptx = file.read_text()
        if name == "grouped_gemm":
            assert "wgmma.mma_async" in ptx
        else:
            assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx, name
    assert (
        "an expert id is not in [-1, num_experts)" in (tmp_path / "dispatch.ptx").read_text()
        or "__assertfail" in (tmp_path / "dispatch.ptx").read_text()
    )


def test_all_warps_have_seen_words_before_one_clears_them(tmp_path: Path) -> None:
    """Each of 8 warps polls 32 words for itself: one that is late would wait for ever for words that are cleared."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, Path(__file__).parent / "take_words_ptx.py"]
    made = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    body = made.stdout.partition(".entry receive")[2]
    last_poll, first_store = body.rindex("ld.volatile"), body.index("st.global")
    assert "bar.sync" in body[last_poll:first_store], body
