"""What the compiler makes of the broadcast in rounds, on a machine without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMPILE = Path(__file__).parent / "broadcast_ptx.py"


def test_whoever_waits_acquires(tmp_path: Path) -> None:
    # In a process of its own, since the kernels of this one may be interpreted.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DIST_WORLD": "cpu", "TRITON_CACHE_DIR": str(tmp_path)}
    made = subprocess.run([sys.executable, COMPILE], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    # All PEs in the first and in the last meeting, the root before each round.
    assert sum("atom.global.sys.acquire.add" in line for line in lines) == 2
    assert sum("ld.global.sys.acquire" in line for line in lines) == 1
    # And all tell all in the first and the last, the root after each round.
    assert sum("atom.global.sys.release.exch" in line for line in lines) == 3
    # Whole vectors come and go, the root's to three PEs and the others' to two and, maybe, the root.
    assert sum("st.global.v4" in line for line in lines) == 12
