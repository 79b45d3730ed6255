"""A checked run (``TRITON_DIST_CHECK``): every PE writes down what it does, and at the end one looks through all of it.

The end is ``finalize()``, or the moment when no PE can go on, or when one touches memory it must not touch or fails.
The PE that finds that out reports; the others wait for the report and end with the same exit status. Analysis and
report are triton_dist.check's.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable

from triton_dist import check, environment
from triton_dist.bootstrap import memfd
from triton_dist.bootstrap.launch import Launch
from triton_dist.check.log import Log, LogError
from triton_dist.cpu.bootstrap import DESCRIPTOR
from triton_dist.cpu.host_accesses import HostAccesses
from triton_dist.cpu.recorder import Recorded, Recorder
from triton_dist.cpu.torch_barriers import TorchBarriers
from triton_dist.cpu.turn_taking import Turns

__all__ = ["Checking"]

_STATUS = 1
_PATIENCE = 60.0
"""Seconds to wait for another PE's report."""


class Checking:
    """This PE's part. Made by all PEs together."""

    def __init__(self, launch: Launch, world: Recorded, turns: Turns) -> None:
        self._pe, self._turns = launch.pe, turns
        fd = memfd.create("log", grows=True)
        self._logs = [
            fd if pe == launch.pe else memfd.open_of(launch.members[pe].pid, theirs, "log", grows=True)
            for pe, theirs in enumerate(launch.exchange_values("log", fd, DESCRIPTOR))
        ]
        self._folder: str | None = environment.get("TRITON_DIST_CHECK_LOG")
        self.recorder = Recorder(world, turns, Log(fd), work=self._folder is not None)
        self._turns.before_passing = self.recorder.flush
        self._host: list[HostAccesses | TorchBarriers] = [
            HostAccesses(self.recorder),
            TorchBarriers(self.recorder, launch.n_pes),
        ]
        for watching in self._host:
            watching.start()

    def end(self) -> None:
        """The world ends; nothing is recorded any more."""
        for watching in self._host:
            watching.stop()

    @property
    def has_reported(self) -> bool:
        """Whether a PE has reported problems; one that is about to is waited for."""
        self._await(lambda: self._turns.verdict != _PENDING, time.monotonic() + _PATIENCE)
        return self._turns.verdict == _FOUND

    def finish(self) -> None:
        """All PEs are done, and come here together, each with the turn: SystemExit if there is something to report."""
        if self._pe == 0:
            self._report()
        self._turns.wait(lambda: self._turns.verdict not in (0, _PENDING))
        if self.has_reported:
            raise SystemExit(_STATUS)

    def fail(self, why: str) -> None:
        """The run cannot go on, and this PE knows first. Reports."""
        self.recorder.failed(why)
        self._report(complete=False)

    def give_up(self, *, first: bool) -> None:
        """No PE can go on; all come here, and the ``first`` one reports when the others have written down why."""
        self.recorder.flush()
        self._turns.gave_up()
        deadline = time.monotonic() + _PATIENCE
        if first:
            self._await(self._turns.all_gave_up, deadline)
            self._report()
        else:
            self._await(lambda: self._turns.verdict not in (0, _PENDING), deadline)
        raise SystemExit(_STATUS)

    def _report(self, *, complete: bool = True) -> None:
        self.recorder.flush()
        if not self._turns.claim_verdict(_PENDING):
            return
        if self._folder is not None:
            for pe, fd in enumerate(self._logs):
                shutil.copyfile(f"/proc/self/fd/{fd}", os.path.join(self._folder, f"pe{pe}.log"))
            self._turns.verdict = _CLEAN if complete else _FOUND
            return
        try:
            findings, events = check.analyse(self._logs)
        except LogError as error:
            print(f"triton-dist-check: nothing was checked: {error}", file=sys.stderr, flush=True)
            self._turns.verdict = _FOUND
            return
        schedule = environment.get("TRITON_DIST_SCHEDULE")
        text = check.report(findings, events, len(self._logs), schedule, complete=complete)
        print(text, file=sys.stderr, flush=True)
        self._turns.verdict = _FOUND if findings else _CLEAN

    @staticmethod
    def _await(done: Callable[[], bool], deadline: float) -> None:
        while not done() and time.monotonic() < deadline:
            time.sleep(0.01)


_CLEAN, _FOUND, _PENDING = 1, 2, 3
