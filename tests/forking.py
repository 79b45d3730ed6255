"""Starts PEs as forks of a process that has imported everything, since importing takes longer than most programs here.

Run as a program it is that process: a line of JSON in, a line out. A fork leaves its loop and becomes the PE: it runs
the script as ``__main__`` and ends as any Python process does, with what is registered for its exit.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from torch.distributed import TCPStore

import triton_dist
from triton_dist import testing
from triton_dist.testing import PEResult, Result
from triton_dist.testing.launch import _environment, _kill, _wait, die_with_parent

ROOT = Path(__file__).resolve().parents[1]


def launch(
    args: Sequence[str | os.PathLike[str]], n_pes: int, *, env: Mapping[str, str] | None = None, timeout: float = 120.0
) -> Result:
    """What :func:`triton_dist.testing.launch` does, for the CPU world, in a fraction of the time.

    In another world it is that function. What a PE reads while Python or PyTorch start, such as ``OMP_NUM_THREADS``, it
    has from the process that forks.
    """
    if (env or {}).get("TRITON_DIST_WORLD", triton_dist.kind()) != "cpu":
        return testing.launch(args, n_pes, env=env, timeout=timeout)
    return forker().launch(args, n_pes, env=env, timeout=timeout)


@functools.cache
def forker() -> Forker:
    """The one of this process, which ends with it."""
    return Forker()


@dataclass(frozen=True)
class Outcome:
    statuses: list[int]
    output: str
    """Of all PEs."""


class Forker:
    """The process that forks, as its user sees it. It ends when its user does, and the pipe between them with it."""

    def __init__(self) -> None:
        env = os.environ | {"TRITON_DIST_WORLD": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command, pipe = [sys.executable, __file__], subprocess.PIPE
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        atexit.register(self._stop)

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, script: Path, *args: str, n_pes: int = 2, **env: str) -> Outcome:
        """A script whose PEs write to one file."""
        with TemporaryDirectory() as directory:
            output = Path(directory, "output")
            _, statuses, _ = self._ask([script, *args], [[str(output)] * 2] * n_pes, env, 120)
            return Outcome(statuses, output.read_text())

    def launch(
        self, args: Sequence[str | os.PathLike[str]], n_pes: int, *, env: Mapping[str, str] | None, timeout: float
    ) -> Result:
        with TemporaryDirectory() as directory:
            outputs = [[f"{directory}/{pe}.{name}" for name in ("stdout", "stderr")] for pe in range(n_pes)]
            ends, statuses, seconds = self._ask(args, outputs, env or {}, timeout)
            texts = [[Path(file).read_text("utf-8", "replace") for file in files] for files in outputs]
        pes = (
            PEResult(pe, status, *text, seconds if end is None else end)
            for pe, (status, text, end) in enumerate(zip(statuses, texts, ends, strict=True))
        )
        return Result(tuple(pes), seconds, None in ends)

    def _ask(
        self,
        args: Sequence[str | os.PathLike[str]],
        outputs: Sequence[Sequence[str]],
        env: Mapping[str, str],
        timeout: float,
    ) -> tuple[list[float | None], list[int], float]:
        """When each PE ended, if it did in time; all exit statuses; how long it took. ``outputs`` are files."""
        n_pes, limit = len(outputs), timedelta(seconds=timeout)
        store = TCPStore("127.0.0.1", 0, n_pes, is_master=True, wait_for_workers=False, timeout=limit)
        environments = [_environment(pe, n_pes, store.port) | dict(env) for pe in range(n_pes)]
        assert self._process.stdin is not None and self._process.stdout is not None
        request = [[os.fspath(arg) for arg in args], environments, outputs, timeout]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process that forks PEs has ended with status {self._process.wait()}"
        ends, statuses, seconds = json.loads(answer)
        return ends, statuses, seconds


# ---- the process that forks


class _Fork:
    """A forked PE, as much of a ``subprocess.Popen`` as its launcher needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self, flags: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)


def _serve() -> list[str] | None:
    """Answers requests until there are no more. In a fork: the arguments of the program that it is to run."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    import triton_dist.world.cpu.world  # noqa: F401

    gc.freeze()  # what is here stays, so a fork need not touch it, which would copy it
    for line in sys.stdin:
        args, environments, outputs, timeout = json.loads(line)
        begin = time.monotonic()
        forks: list[Any] = []
        with ExitStack() as stack:
            for environment, files in zip(environments, outputs, strict=True):
                if (pid := os.fork()) == 0:
                    stack.pop_all()  # the other PEs are not this one's to kill
                    _dress(environment, files)
                    return list(args)
                forks.append(_Fork(pid))
                stack.callback(_kill, forks)
            ends = _wait(forks, begin + timeout)
        seconds = time.monotonic() - begin
        moments = [ends[pe] - begin if pe in ends else None for pe in range(len(forks))]
        print(json.dumps([moments, [fork.returncode for fork in forks], seconds]), flush=True)
    return None


def _dress(environment: Mapping[str, str], files: Sequence[str]) -> None:
    """Give a fork what a process that was started has of its own."""
    os.setsid()
    die_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # lines of several PEs stay whole


def _become(args: Sequence[str]) -> None:
    """Run ``python *args``: a script, or ``-c`` and code."""
    is_code = args[0] == "-c"
    file = "<string>" if is_code else args[0]
    source, sys.argv[:] = (args[1], ["-c", *args[2:]]) if is_code else (Path(file).read_text(), args)
    where = "" if is_code else str(Path(file).resolve().parent)
    sys.path[:] = [where, *filter(None, os.environ["PYTHONPATH"].split(os.pathsep)), *sys.path[1:]]
    main = types.ModuleType("__main__")
    if not is_code:
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(source, file, "exec"), main.__dict__)


def _end(error: BaseException | None) -> NoReturn:
    """What Python does at its end, but for taking everything imported apart, which takes longer than a program here."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        status = 1
        sys.excepthook(type(error), error, error.__traceback__)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program = _serve()
    if program is not None:
        try:
            _become(program)
        except BaseException as error:
            _end(error)
        _end(None)
