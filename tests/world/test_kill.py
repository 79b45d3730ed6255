"""Whichever PE is killed, whenever: the others end and name it, nothing is left, and the next run starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from checking import HERE
from leftovers import assert_nothing_shared_is_left, assert_processes_end, shared_files
from limits import HANG_SECONDS, INIT_SECONDS

KILLS = int(os.environ.get("KILLS", "12"))  # in the CPU world; KILLS=50 for more of them


@pytest.mark.parametrize(
    ("world", "kills"),
    [("cpu", 2), pytest.param("cpu", KILLS, marks=pytest.mark.slow), pytest.param("gpu", 5, marks=pytest.mark.gpu(3))],
)
def test_a_kill_at_any_moment(world: str, kills: int) -> None:
    mark = uuid.uuid4().hex
    before = shared_files()
    environment = os.environ | {
        "TRITON_DIST_WORLD": world,
        "TRITON_DIST_SYMMETRIC_SIZE": "64M",
        "TRITON_DIST_INIT_TIMEOUT": INIT_SECONDS,
        "TRITON_DIST_WAIT_TIMEOUT": "10000",  # a PE that ends has heard of the other's end
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "MARK": mark,
    }
    program = [sys.executable, HERE / "failing" / "kill.py", str(kills), mark]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=kills * HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    for run in runs:
        told = json.dumps(run, indent=1).replace("\\n", "\n")
        victim = run["victim"]
        if victim < 0:
            assert run["statuses"] == [0, 0, 0], told
            continue
        killed = run["statuses"][victim] == -9
        for pe, (status, output) in enumerate(zip(run["statuses"], run["outputs"], strict=True)):
            # Without a failure only where the program had ended: then all of them have ended so.
            assert pe == victim or status == 1 or run["statuses"].count(0) == 3 - killed, told
            assert pe == victim or status == 0 or f"PE {victim}" in output, told
    assert sum(run["victim"] >= 0 and run["statuses"][run["victim"]] == -9 for run in runs) == kills
    assert_nothing_shared_is_left(before)
    assert mark not in Path("/proc/net/unix").read_text(), "a rendezvous is left"
    assert_processes_end(mark)
