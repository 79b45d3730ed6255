"""Start PEs from a notebook, a REPL or a test, in one call.

In a CPU world a PE is a fork of the calling process, so any function can be called, also one that was just typed. In a
GPU world it is a new process, since a process that has asked for GPUs cannot be forked: the function is imported there.
"""

from __future__ import annotations

import importlib
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

import triton_dist
from triton_dist.testing.child import fork
from triton_dist.testing.forks import Fork
from triton_dist.testing.launch import die_with_parent, kill_all, launch, pe_environment
from triton_dist.testing.values import dumps, loads

__all__ = ["PEError", "spawn"]

_GRACE_SECONDS = 15.0
"""For the other PEs to end by themselves, once one has failed."""

_NEVER = float("inf")

_PROGRAM = "import sys; from triton_dist.spawning import _new_process; _new_process(sys.argv[1])"


class PEError(RuntimeError):
    """A function that :func:`spawn` called has failed. The message has the PE's traceback.

    Attributes:
        pe: the number of the PE.
        kind: the name of the exception's class there; None if the process ended without one.
    """

    def __init__(self, pe: int, kind: str | None, message: str) -> None:
        super().__init__(f"PE {pe}: {message}")
        self.pe = pe
        self.kind = kind


def spawn(function: Callable[..., Any], n_pes: int, *args: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``function(*args)`` on ``n_pes`` new PEs, in a world that is made and finalised around the call.

    Args:
        function: in a CPU world any function; in a GPU world one that can be imported, that is, which a module defines
            that is not the main program (no lambda, no function within another).
        n_pes: how many PEs.
        args: for the function. In a CPU world any; in a GPU world as results are.
        timeout: seconds until all PEs are killed.

    Returns:
        what each PE's call returned, in PE order: None, bool, int, float, str, bytes, tensors (copied, on the CPU), and
        lists, tuples and dicts of them. Nothing is pickled.

    Raises:
        PEError: the call failed on a PE, or its process ended: the first such error. PEs that only report the loss of
            another one do not count.
        TimeoutError: a PE had not ended after ``timeout`` seconds.
        RuntimeError: this process is a PE of a world. ValueError, TypeError: an argument is not as described.

    In a CPU world, what the calling process has loaded and computed is there in every PE, and threads other than the
    caller's are not.
    """
    if not callable(function):
        raise TypeError(f"spawn: function must be callable, got {type(function).__name__}")
    if type(n_pes) is not int or n_pes < 1:
        raise ValueError(f"spawn: n_pes must be a positive integer, got {n_pes!r}")
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"spawn: timeout must be a positive number of seconds, got {timeout!r}")
    if triton_dist.is_initialized():
        raise RuntimeError("spawn: this process is a PE of a world itself: call triton_dist.finalize() before")
    start = _in_new_processes if triton_dist.kind() == "gpu" else _in_forks
    outcomes = start(function, n_pes, args, timeout)
    errors = sorted(outcomes, key=lambda outcome: (outcome.kind == "BrokenWorldError", outcome.moment))
    for outcome in errors:
        if outcome.error is not None:
            raise PEError(outcome.pe, outcome.kind, outcome.error)
    return [outcome.value for outcome in outcomes]


class _Outcome:
    """What became of a call on one PE, read from what :func:`_called` returned there."""

    def __init__(self, pe: int, data: bytes | None, status: int | None, moment: float) -> None:
        self.pe, self.moment = pe, moment
        self.value: Any = None
        self.kind: str | None = None
        self.error: str | None = None
        if data is None:
            how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
            self.error = f"the process ended {how} before the call returned"
            return
        report = loads(data)
        if isinstance(report, tuple) and len(report) == 1:
            (self.value,) = report
        elif isinstance(report, list) and len(report) == 2 and all(isinstance(text, str) for text in report):
            self.kind, self.error = report
        else:
            raise ValueError(f"PE {pe} reported {str(report)[:60]}")


def _called(function: Callable[..., Any], args: Sequence[Any]) -> bytes:
    """Call the function in a world: a tuple of the result, or a list of the error's class and traceback."""
    try:
        with triton_dist.init():
            return dumps((function(*args),))
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        lines = [*traceback.format_exception_only(error), *traceback.format_list(frames)]
        return dumps([type(error).__name__, "".join(lines).rstrip()])


# ---- forks


def _in_forks(function: Callable[..., Any], n_pes: int, args: Sequence[Any], timeout: float) -> list[_Outcome]:
    from triton_dist.bootstrap.launchers import tcp  # here, since it takes a second

    listener = tcp.listen("127.0.0.1")
    port = listener.getsockname()[1]
    sys.stdout.flush()
    sys.stderr.flush()
    forks: list[Fork] = []
    readers: list[int] = []
    try:
        for pe in range(n_pes):
            reader, writer = os.pipe()
            pid = fork()
            if pid == 0:
                for other in (*readers, reader, listener.detach()):
                    os.close(other)
                _become_pe(pe_environment(pe, n_pes, port), function, args, writer)
            os.close(writer)
            readers.append(reader)
            forks.append(Fork(pid))
        # The store starts a thread, so it comes after the forks: a fork would inherit what that thread has locked
        # at that moment, in the C library for instance, and nothing would ever unlock it there.
        _store = tcp.serve(listener, "127.0.0.1", timeout)  # it ends with this variable
        reports = _read_all(readers, time.monotonic() + timeout)
    finally:
        listener.close()
        kill_all(forks)
        for reader in readers:
            os.close(reader)
    outcomes = [_Outcome(pe, data, forks[pe].returncode, moment) for pe, (data, moment) in enumerate(reports)]
    _check_time(outcomes, timeout)
    return outcomes


def _check_time(outcomes: Sequence[_Outcome], timeout: float) -> None:
    """TimeoutError if PEs had to be killed, unless another one's failure is why."""
    late = [outcome.pe for outcome in outcomes if outcome.moment == _NEVER]
    if late and not any(outcome.error is not None and outcome.moment != _NEVER for outcome in outcomes):
        raise TimeoutError(f"spawn: PEs {late} had not ended after {timeout:g} s")


def _become_pe(environment: dict[str, str], function: Callable[..., Any], args: Sequence[Any], writer: int) -> NoReturn:
    """The rest of a fork's life. It ends without what the calling process has registered for its exit."""
    status = 1
    try:
        os.setsid()  # so that a kill reaches what the PE itself starts, and an interrupt the calling process alone
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        torch.set_num_threads(1)  # the threads that computed in the calling process do not exist here
        report = _called(function, args)
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(len(report).to_bytes(8, "little") + report)
        status = 0
    finally:
        os._exit(status)


def _read_all(readers: Sequence[int], deadline: float) -> list[tuple[bytes | None, float]]:
    """What each PE has written, if it wrote all of it, and when. After an error the others have a limited time."""
    data = {reader: bytearray() for reader in readers}
    moments = dict.fromkeys(readers, _NEVER)
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                reader = int(key.fd)
                chunk = os.read(reader, 1 << 20)
                data[reader] += chunk
                if not chunk or _report(data[reader]) is not None:
                    selector.unregister(reader)
                    moments[reader] = time.monotonic()
                    report = _report(data[reader])
                    if report is None or isinstance(loads(report), list):
                        deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
    return [(_report(data[reader]), moments[reader]) for reader in readers]


def _report(data: bytearray) -> bytes | None:
    length = int.from_bytes(data[:8], "little")
    return bytes(data[8:]) if len(data) >= 8 and len(data) == 8 + length else None


# ---- new processes


def _in_new_processes(function: Callable[..., Any], n_pes: int, args: Sequence[Any], timeout: float) -> list[_Outcome]:
    module, name = function.__module__, getattr(function, "__qualname__", "")
    if module == "__main__" or "<" in name or _find(module, name) is not function:
        raise ValueError(
            f"spawn: in a GPU world PEs are new processes, which import the function, and {module}.{name} cannot be"
            " imported. Define it in a module, outside of other functions; or use a CPU world (TRITON_DIST_WORLD=cpu)"
        )
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "call").write_bytes(dumps([module, name, list(args)]))
        path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
        result = launch(["-c", _PROGRAM, directory], n_pes, env={"PYTHONPATH": path}, timeout=timeout)
        for pe in result:
            sys.stdout.write(pe.stdout)
            sys.stderr.write(pe.stderr)
        reports = [folder / f"{pe}" for pe in range(n_pes)]
        found = [report.read_bytes() if report.exists() else None for report in reports]
        outcomes = [
            _Outcome(pe.pe, data, pe.returncode, _NEVER if result.timed_out and data is None else pe.seconds)
            for pe, data in zip(result, found, strict=True)
        ]
        _check_time(outcomes, timeout)
        return outcomes


def _new_process(directory: str) -> None:
    folder = Path(directory)
    module, name, args = loads((folder / "call").read_bytes())
    report = _called(_find(module, name), args)
    unfinished = folder / f"{os.environ['RANK']}.part"
    unfinished.write_bytes(report)
    unfinished.rename(folder / os.environ["RANK"])


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    with suppress(AttributeError):
        for part in name.split("."):
            found = getattr(found, part)
        return found
    return None
