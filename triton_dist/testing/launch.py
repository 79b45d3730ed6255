"""Start N PEs of a Python program on this machine, as ``torchrun`` would, and collect what each of them did.

Tests want what torchrun does not give: the output of each PE apart, a PE that dies *without* the launcher ending the
others (that they end by themselves is the thing under test), and a time limit after which everything is killed and the
output so far is still there.

    result = launch(["examples/01_ring_put.py"], n_pes=4, timeout=60).check()
    print(result[0].stdout)
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

__all__ = [
    "PEResult",
    "Process",
    "Result",
    "child_environment",
    "die_with_parent",
    "kill_all",
    "launch",
    "pe_environment",
    "wait_for_all",
]


@dataclass(frozen=True)
class PEResult:
    """What one PE did. A negative ``returncode`` is the signal that ended it, as in :mod:`subprocess`."""

    pe: int
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    """From the beginning of the launch to the end of this PE."""


@dataclass(frozen=True)
class Result:
    """What all PEs did; ``result[pe]`` is one of them."""

    pes: tuple[PEResult, ...]
    seconds: float
    timed_out: bool

    def __getitem__(self, pe: int) -> PEResult:
        return self.pes[pe]

    def __iter__(self) -> Iterator[PEResult]:
        return iter(self.pes)

    @property
    def ok(self) -> bool:
        return not self.timed_out and all(pe.returncode == 0 for pe in self.pes)

    @property
    def report(self) -> str:
        """How each PE ended and all it printed."""
        lines = [f"timed out after {self.seconds:.1f} s" if self.timed_out else f"ended after {self.seconds:.1f} s"]
        for pe in self.pes:
            lines.append(f"---- PE {pe.pe}: exit status {pe.returncode} after {pe.seconds:.1f} s")
            lines += [f"[{name}] {line}" for name in ("stdout", "stderr") for line in getattr(pe, name).splitlines()]
        return "\n".join(lines)

    def check(self) -> Result:
        """This result; RuntimeError with the report when a PE failed or the time limit was hit."""
        if not self.ok:
            raise RuntimeError(self.report)
        return self


def launch(
    args: Sequence[str | os.PathLike[str]],
    n_pes: int,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
) -> Result:
    """Run ``python *args`` (a script, ``-m module`` or ``-c code``, then its arguments) as ``n_pes`` processes.

    Each gets torchrun's variables. The TCPStore they meet at lives in the calling process, as torchrun's agent hosts
    it, on a port that the system picks: no two launches race for one. ``env`` is added to this process's environment.

    After ``timeout`` seconds the PEs and whatever they started are killed; :attr:`Result.timed_out` tells.
    """
    with ExitStack() as stack:
        outputs = [tuple(stack.enter_context(_scratch()) for _ in ("stdout", "stderr")) for _ in range(n_pes)]
        begin, processes = stack.enter_context(_started(args, n_pes, env, timeout, outputs))
        ends = wait_for_all(processes, begin + timeout)
        timed_out = len(ends) < n_pes
        kill_all(processes)
        seconds = time.monotonic() - begin
        pes = tuple(
            PEResult(pe, process.returncode, _text(stdout), _text(stderr), ends.get(pe, begin + seconds) - begin)
            for pe, (process, (stdout, stderr)) in enumerate(zip(processes, outputs, strict=True))
        )
    return Result(pes, seconds, timed_out)


@contextmanager
def _started(
    args: Sequence[str | os.PathLike[str]],
    n_pes: int,
    env: Mapping[str, str] | None,
    timeout: float,
    outputs: Sequence[tuple[IO[str] | None, ...]],
) -> Iterator[tuple[float, list[subprocess.Popen[str]]]]:
    """When they were started, and the processes, which are killed at the end of the block."""
    if n_pes < 1:
        raise ValueError(f"n_pes is {n_pes}: a launch needs at least one PE")
    from triton_dist.bootstrap.launchers.tcp import open_store  # here, since it takes a second

    _store, port = open_store("127.0.0.1", timeout)  # it ends with this variable
    begin = time.monotonic()
    processes: list[subprocess.Popen[str]] = []
    try:
        for pe, (stdout, stderr) in enumerate(outputs):
            processes.append(
                subprocess.Popen(
                    [sys.executable, *(os.fspath(arg) for arg in args)],
                    env=pe_environment(pe, n_pes, port) | dict(env or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    text=True,
                    start_new_session=True,  # so that a kill reaches what the PE itself started
                    preexec_fn=die_with_parent,
                )
            )
        yield begin, processes
    finally:
        kill_all(processes)


def child_environment() -> dict[str, str]:
    """This process's environment, for a process that is to import the same triton_dist and shares the cores."""
    package_root = Path(__file__).resolve().parents[2]
    path = [str(package_root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def pe_environment(pe: int, n_pes: int, port: int) -> dict[str, str]:
    """The same for a PE, with torchrun's variables. The agent's store is at ``port`` of this host."""
    return child_environment() | {
        "RANK": str(pe),
        "WORLD_SIZE": str(n_pes),
        "LOCAL_RANK": str(pe),
        "LOCAL_WORLD_SIZE": str(n_pes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "PYTHONUNBUFFERED": "1",  # a killed PE has said all it had to say
    }


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a new process: it does not outlive the one that started it, if that is killed (Linux tells it)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _scratch() -> IO[str]:
    # A file takes any amount of output, needs no reader thread, and can be read after a kill.
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


class Process(Protocol):
    """As much of a ``subprocess.Popen`` as the functions below need. It leads a process group."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int | None: ...


def wait_for_all(processes: Sequence[Process], deadline: float) -> dict[int, float]:
    """When each PE ended, of those that did before the deadline. Every PE is reaped as soon as it ends."""
    ends: dict[int, float] = {}
    with ExitStack() as descriptors:
        until_an_end = _sleep(processes, descriptors)
        while len(ends) < len(processes) and (now := time.monotonic()) <= deadline:
            for pe, process in enumerate(processes):
                if pe not in ends and process.poll() is not None:
                    ends[pe] = now
            if len(ends) < len(processes):
                until_an_end(deadline - time.monotonic())
    return ends


def _sleep(processes: Sequence[Process], descriptors: ExitStack) -> Callable[[float], None]:
    """Sleeps for so many seconds at most, and not beyond the next end of a process: there it may return earlier."""
    ended = select.epoll()
    descriptors.callback(ended.close)
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:  # it has ended and is reaped, or this kernel has none
            return lambda seconds: time.sleep(0.01)
        descriptors.callback(os.close, descriptor)
        ended.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def sleep(seconds: float) -> None:
        ended.poll(min(max(seconds, 0), 60.0))

    return sleep


def kill_all(processes: Sequence[Process]) -> None:
    """End every PE's process group: the PE if it still runs, and what it left running."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):  # when no process is left in it
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # one that does not lead its group yet
        process.wait()
