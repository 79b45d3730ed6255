"""Starts PEs as forks of a process that has imported everything, since importing takes longer than any program here.

Run as a program it is that process: a line of JSON in, a line out.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Outcome:
    statuses: list[int]
    output: str
    """Of all PEs."""


class Forker:
    """Use it as a context manager."""

    def __enter__(self) -> Forker:
        env = os.environ | {"TRITON_DIST_WORLD": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, script: Path, *args: str, n_pes: int = 2, **env: str) -> Outcome:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, n_pes, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        env |= {
            "WORLD_SIZE": str(n_pes),
            "LOCAL_WORLD_SIZE": str(n_pes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(script), args, n_pes, env]) + "\n")
        self._process.stdin.flush()
        return Outcome(*json.loads(self._process.stdout.readline()))


def _serve() -> None:
    import torch  # noqa: F401
    import triton  # noqa: F401

    import triton_dist.world.cpu.world  # noqa: F401

    for line in sys.stdin:
        script, args, n_pes, env = json.loads(line)
        with tempfile.TemporaryFile("w+") as output:
            pids = [_fork(script, args, env | {"RANK": str(pe), "LOCAL_RANK": str(pe)}, output) for pe in range(n_pes)]
            statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            output.seek(0)
            print(json.dumps([statuses, output.read()]), flush=True)


def _fork(script: str, args: Sequence[str], env: dict[str, str], output: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdout.reconfigure(line_buffering=True, write_through=False)  # lines of several PEs stay whole
        sys.argv[:] = [script, *args]
        sys.path[:0] = [str(Path(script).parent), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
