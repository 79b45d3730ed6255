"""What tests compile is cached in this source tree, or where the user says, and not with that of other trees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import triton
from forking import Forker

PROGRAM = "import triton; print(triton.knobs.cache.dir)"


def test_all_processes_share_a_cache_that_is_not_the_user_s(forker: Forker) -> None:
    here = triton.knobs.cache.dir
    assert Path(here) != Path.home() / ".triton" / "cache"
    started = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    forked = forker.launch(["-c", PROGRAM], 1).check()
    assert [started.stdout.strip(), forked[0].stdout.strip(), os.environ["TRITON_CACHE_DIR"]] == [here] * 3
