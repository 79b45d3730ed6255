"""Runs a file of checks with a GPU that is not there (``fake_gpu.py``) in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from limits import HANG_SECONDS


def results_of(
    program: str, folders: pytest.TempPathFactory, checks: Sequence[str] = (), pe: int = 0
) -> dict[str, Any]:
    """What ``program``, a file beside this one, prints as PE ``pe`` of a world: by check ``ok`` or its traceback. It
    runs all or ``checks``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "NVSHMEM_"))}
    environment["FAKE_GPU_PE"] = str(pe)
    environment["TRITON_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"]
    environment["TRITON_DIST_TUNING_DIR"] = str(folders.mktemp("tuning"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(program), folders.mktemp("driver"), *checks],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
