"""Starts PEs as forks of a process that has imported everything, since importing takes longer than most small programs.

Run as a program it is that process: a line of JSON in, a line out.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

__all__ = ["Forker", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What the PEs of one run did."""

    statuses: list[int]
    output: str
    """Of all PEs; empty if it went where this process's output goes."""


class Forker:
    """Use it as a context manager. The PEs are of the CPU world.

    Args:
        env: what the process that forks has in its environment besides, such as what importing triton_dist reads.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = dict(env or {})

    def __enter__(self) -> Forker:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        env = os.environ | {"TRITON_DIST_WORLD": "cpu", "OMP_NUM_THREADS": threads, "PYTHONPATH": path} | self._env
        self._answers, theirs = os.pipe()
        command = [sys.executable, os.path.abspath(__file__), str(theirs)]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, pass_fds=[theirs], start_new_session=True
        )
        os.close(theirs)
        self._read = b""
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        os.close(self._answers)

    def run(
        self, script: str | os.PathLike[str], *args: str, n_pes: int = 2, **env: str
    ) -> Outcome:  # fmt: skip
        """Run the script on ``n_pes`` PEs, with ``env`` added to this process's environment, and take its output."""
        outcome = self.run_for(None, script, args, n_pes, env, captures=True)
        assert outcome is not None
        return outcome

    def run_for(
        self,
        seconds: float | None,
        script: str | os.PathLike[str],
        args: Sequence[str],
        n_pes: int,
        env: Mapping[str, str],
        *,
        captures: bool,
    ) -> Outcome | None:
        """The same, for at most so many seconds (None: any). None: it took longer, and this object can do no more."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # here, since it takes a second

        store = TCPStore("127.0.0.1", 0, n_pes, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        launch = {
            "WORLD_SIZE": str(n_pes),
            "LOCAL_WORLD_SIZE": str(n_pes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        assert self._process.stdin is not None
        job = [os.fspath(script), args, n_pes, {**env, **launch}, captures]
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer(None if seconds is None else time.monotonic() + seconds)
        return None if answer is None else Outcome(*json.loads(answer))

    def _answer(self, deadline: float | None) -> bytes | None:
        while b"\n" not in self._read:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._answers], [], [], left)[0]:
                return None
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise RuntimeError(f"the process that starts PEs has ended ({self._process.wait()})")
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line


# ---- in the process that has imported everything


def _serve(answers: int) -> None:
    import triton
    import triton.experimental.gluon  # noqa: F401  (a kernel's first launch would)

    import triton_dist.world.cpu.checking
    import triton_dist.world.cpu.world  # noqa: F401

    gc.collect()
    gc.freeze()  # what lies here now is never garbage: PEs need not look through it
    for line in iter(sys.stdin.buffer.readline, b""):
        script, args, n_pes, env, captures = json.loads(line)
        with tempfile.TemporaryFile() as output:
            fd = output.fileno() if captures else None
            pids = [_fork(script, args, env | {"RANK": str(pe), "LOCAL_RANK": str(pe)}, fd) for pe in range(n_pes)]
            statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            output.seek(0)
            answer = json.dumps([statuses, output.read().decode(errors="replace")]).encode() + b"\n"
        while answer:
            answer = answer[os.write(answers, answer) :]


def _fork(script: str, args: Sequence[str], env: dict[str, str], output: int | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        from triton_dist.testing.launch import die_with_parent

        die_with_parent()
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if output is not None:
            os.dup2(output, 1)
            os.dup2(output, 2)
        sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # whole lines
        sys.argv[:] = [script, *args]
        sys.path[:1] = [os.path.dirname(os.path.abspath(script))]
        sys.path[1:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
        status = _status(script)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status(script: str) -> int:
    """Run it; its exit status."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return _code(end.code)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
