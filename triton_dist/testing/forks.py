"""Starts PEs as forks of a process that has imported everything, since importing takes longer than most small programs.

Run as a program it is that process: a line of JSON in, a line out. A fork leaves its loop and becomes the PE: it runs
the script as ``__main__`` and ends as any Python process does, with what is registered for its exit.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from triton_dist.testing.launch import (
    PEResult,
    Result,
    child_environment,
    die_with_parent,
    kill_all,
    pe_environment,
    wait_for_all,
)
from triton_dist.triton_api.interpreter import rewrite_imported

__all__ = ["Fork", "Forker", "Outcome"]

_MODULES = (
    "triton.experimental.gluon",  # a kernel's first launch would import it
    "triton_dist.cpu.checking",
    "triton_dist.cpu.world",
)


@dataclass(frozen=True)
class Outcome:
    """What the PEs of one run did."""

    statuses: list[int]
    """A negative one is the signal that ended the PE, as in :mod:`subprocess`."""

    output: str
    """Of all PEs; empty if it went where this process's output goes."""

    timed_out: bool
    """The PEs that still ran at the time limit were killed."""


class Forker:
    """Starts the process that forks; use it as a context manager. The PEs are of the CPU world.

    What a PE reads while Python or PyTorch start, such as ``OMP_NUM_THREADS``, it has from the process that forks.

    Args:
        env: what that process and the PEs have in their environment besides, such as what importing triton_dist reads.
        modules: what that process imports besides triton_dist.
    """

    def __init__(self, env: Mapping[str, str] | None = None, modules: Sequence[str] = ()) -> None:
        self._env = {"TRITON_DIST_WORLD": "cpu", **(env or {})}
        self._modules = modules

    def __enter__(self) -> Forker:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), str(theirs.fileno()), *self._modules],
                env=child_environment() | self._env,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # what a terminal sends on Ctrl-C is for this process alone
                preexec_fn=die_with_parent,  # and its PEs with it, which may wait for each other for ever
            )
        with ours:
            self._requests, self._answers = ours.makefile("w"), ours.makefile("r")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._answers.close()
        with suppress(OSError):  # what an interrupted request has left unsent
            self._requests.close()

    def launch(
        self,
        args: Sequence[str | os.PathLike[str]],
        n_pes: int,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> Result:
        """What :func:`triton_dist.testing.launch` does, in a fraction of the time, with a script or ``-c code``."""
        with tempfile.TemporaryDirectory() as directory:
            files = [[f"{directory}/{pe}.{name}" for name in ("stdout", "stderr")] for pe in range(n_pes)]
            statuses, ends, seconds = self._ask(args, files, env, timeout)
            texts = [[_text(file) for file in both] for both in files]
        pes = (
            PEResult(pe, status, stdout, stderr, seconds if end is None else end)
            for pe, (status, (stdout, stderr), end) in enumerate(zip(statuses, texts, ends, strict=True))
        )
        return Result(tuple(pes), seconds, None in ends)

    def launch_together(
        self,
        args: Sequence[str | os.PathLike[str]],
        n_pes: int,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        captures: bool = True,
    ) -> Outcome:
        """The same for PEs that write to one output: with ``captures`` a file, else that of this process."""
        with tempfile.TemporaryDirectory() as directory:
            output = f"{directory}/output"
            files = [[output] * 2 if captures else []] * n_pes
            statuses, ends, _ = self._ask(args, files, env, timeout)
            return Outcome(statuses, _text(output) if captures else "", None in ends)

    def _ask(
        self,
        args: Sequence[str | os.PathLike[str]],
        files: Sequence[Sequence[str]],
        env: Mapping[str, str] | None,
        timeout: float,
    ) -> tuple[list[int], list[float | None], float]:
        """All exit statuses; when each PE ended, if it did in time; how long it took.

        ``files`` are, for each PE, those of its stdout and stderr, or none.
        """
        from triton_dist.bootstrap.launchers.tcp import open_store  # here, since it takes a second

        n_pes = len(files)
        _store, port = open_store("127.0.0.1", 60.0)  # it ends with this variable
        environments = [pe_environment(pe, n_pes, port) | self._env | dict(env or {}) for pe in range(n_pes)]
        request = [[os.fspath(arg) for arg in args], environments, files, timeout]
        answer = ""
        with suppress(OSError):  # the other end is gone
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"the process that forks PEs has ended with status {self._process.wait()}")
        statuses, ends, seconds = json.loads(answer)
        return statuses, ends, seconds


def _text(file: str) -> str:
    path = Path(file)
    return path.read_text("utf-8", "replace") if path.exists() else ""


# ---- the process that forks


class Fork:
    """A forked PE, as much of a ``subprocess.Popen`` as :mod:`triton_dist.testing.launch` needs."""

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

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def _prepare(modules: Sequence[str]) -> None:
    """Import what PEs need, ``modules`` besides, and leave it as it is best shared with forks."""
    gc.disable()  # imports make hundreds of thousands of objects that stay
    for module in (*_MODULES, *modules):
        importlib.import_module(module)
    rewrite_imported()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]  # a public way to find them all is missing
        finalizer.atexit = False  # PyTorch's take its operators back one by one, half of what a short program takes
    gc.enable()
    gc.collect()
    gc.freeze()  # what is here stays, so a fork need not touch it, which would copy it


def _serve(connection: socket.socket) -> None:
    """Answer requests until there are no more. A fork becomes the PE that was asked for, and does not return."""
    program = _forked(connection)
    if program is not None:
        try:
            _become(program)
        except BaseException as error:
            _end(error)
        _end(None)


def _forked(connection: socket.socket) -> list[str] | None:
    """In a fork: the arguments of the program that it is to run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forks: list[Fork] = []

    def end(*_: object) -> NoReturn:
        kill_all(forks)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for line in connection.makefile("r"):
        args, environments, files, timeout = json.loads(line)
        begin = time.monotonic()
        for environment, own_files in zip(environments, files, strict=True):
            if (pid := os.fork()) == 0:
                os.close(connection.detach())
                _dress(environment, own_files)
                return list(args)
            forks.append(Fork(pid))
        ends = wait_for_all(forks, begin + timeout)
        kill_all(forks)
        moments = [ends[pe] - begin if pe in ends else None for pe in range(len(forks))]
        answer = [[fork.returncode for fork in forks], moments, time.monotonic() - begin]
        forks.clear()  # their numbers may become those of other processes
        connection.sendall(json.dumps(answer).encode() + b"\n")
    return None


def _dress(environment: Mapping[str, str], files: Sequence[str]) -> None:
    """Give a fork what a process that was started has of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()  # so that a kill reaches what the PE itself started
    die_with_parent()
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # lines of several PEs stay whole


def _become(args: Sequence[str]) -> None:
    """Run ``python *args``: a script, or ``-c`` and code."""
    is_code = args[0] == "-c"
    file = "<string>" if is_code else args[0]
    source, sys.argv[:] = (args[1], ["-c", *args[2:]]) if is_code else (Path(file).read_bytes(), args)
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
        if isinstance(error.code, int | None):
            status = error.code or 0
        else:
            status = 1
            print(error.code, file=sys.stderr)
    elif error is not None:
        status = 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next  # the frames of the program itself are left
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _prepare(sys.argv[2:])
    _serve(socket.socket(fileno=int(sys.argv[1])))
