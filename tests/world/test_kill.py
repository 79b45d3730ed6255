"""Whichever PE is killed, whenever: the others end soon and name it, nothing is left, and the next run starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from checking import HERE
from leftovers import new_shared_files, shared_files

KILLS = int(os.environ.get("KILLS", "12"))  # in the CPU world; KILLS=50 for more of them
SECONDS = 10


@pytest.mark.parametrize(("world", "kills"), [("cpu", KILLS), pytest.param("gpu", 5, marks=pytest.mark.gpu(3))])
def test_a_kill_at_any_moment(world: str, kills: int) -> None:
    mark = uuid.uuid4().hex
    before = shared_files()
    environment = os.environ | {
        "TRITON_DIST_WORLD": world,
        "TRITON_DIST_SYMMETRIC_SIZE": "64M",
        "TRITON_DIST_INIT_TIMEOUT": "6",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "MARK": mark,
    }
    program = [sys.executable, HERE / "failing" / "kill.py", str(kills), mark]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=20 * kills + 60)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    for run in runs:
        told = json.dumps(run, indent=1).replace("\\n", "\n")
        victim = run["victim"]
        if victim < 0:
            assert run["statuses"] == [0, 0, 0], told
            continue
        killed = run["statuses"][victim] == -9
        assert run["seconds"] < SECONDS, told
        for pe, (status, output) in enumerate(zip(run["statuses"], run["outputs"], strict=True)):
            # Without a failure only where the program had ended: then all of them have ended so.
            assert pe == victim or status == 1 or run["statuses"].count(0) == 3 - killed, told
            assert pe == victim or status == 0 or f"PE {victim}" in output, told
    assert sum(run["victim"] >= 0 and run["statuses"][run["victim"]] == -9 for run in runs) == kills
    assert not new_shared_files(before)
    assert mark not in Path("/proc/net/unix").read_text(), "a meeting point is left"
    assert not [process for process in psutil.process_iter() if _has(process, mark)]


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in process.environ().values()
    except psutil.Error:  # it ended meanwhile, or is not ours
        return False
