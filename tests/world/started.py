"""Processes that a test starts one by one and talks to, as forks of one that has imported everything.

Run as a program it is that process. For each request it forks a process that forks the one asked for, waits for it, and
writes its number and its exit status to a pipe of the test.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread

from triton_dist.testing import forks
from triton_dist.testing.launch import child_environment, die_with_parent

__all__ = ["Started"]


class Started:
    """``python -c program``: as much of a ``subprocess.Popen`` with text pipes as tests use.

    Args:
        environment: all of it. What Python and PyTorch read while they start has been read already.
    """

    def __init__(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        (stdin, to), (out, stdout), (errors, stderr), (told, status) = (os.pipe() for _ in range(4))
        request = json.dumps([["-c", program, *arguments], dict(environment)]).encode()
        theirs = [stdin, stdout, stderr, status]
        socket.send_fds(_forking_process(), [request], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin, self.stdout, self.stderr = os.fdopen(to, "w"), os.fdopen(out), os.fdopen(errors)
        self._status = os.fdopen(told)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._status.readline())
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What the process still writes until it ends."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        found = ["", ""]

        def read(index: int) -> None:
            found[index] = (self.stdout, self.stderr)[index].read()

        readers = [Thread(target=read, args=[index], daemon=True) for index in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(["-c"], timeout)
        self.wait()
        return found[0], found[1]

    def close(self) -> None:
        """End the process and close the pipes."""
        self.kill()
        self.wait()
        for file in (self.stdin, self.stdout, self.stderr, self._status):
            with suppress(BrokenPipeError):
                file.close()


@functools.cache
def _forking_process() -> socket.socket:
    """The connection to the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(theirs.fileno())],
            env=child_environment() | {"TRITON_DIST_WORLD": "cpu"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # called first
    return ours


# ---- the process that forks


def _serve(connection: socket.socket) -> list[str] | None:
    """Answer requests until there are no more. In the process asked for: its arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing is left of a process that waited for another
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if not request:
            return None
        if os.fork() == 0:
            connection.close()
            return _start(*json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _start(
    args: list[str], environment: dict[str, str], stdin: int, stdout: int, stderr: int, status: int
) -> list[str]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with_parent()
    pid = os.fork()
    if pid == 0:
        os.close(status)
        for number, descriptor in enumerate((stdin, stdout, stderr)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        forks._dress(environment, [])
        return args
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    with suppress(BrokenPipeError), open(status, "w") as told:
        print(pid, file=told, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=told, flush=True)
    os._exit(0)


if __name__ == "__main__":
    for module in forks._MODULES:
        importlib.import_module(module)
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        try:
            forks._become(program)
        except BaseException as error:
            forks._end(error)
        forks._end(None)
