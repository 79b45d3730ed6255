"""What a PE knows of the others when nothing is shared: what the failure detector tells it."""

from __future__ import annotations

import time

from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.runtime.control import State

__all__ = ["WatchedControl"]

_NEWS_SECONDS = 5.0
"""For the failure detector to tell of a PE whose connection is lost already; that it is lost takes it milliseconds."""


class WatchedControl:
    """A :class:`~triton_dist.cpu.transport.Control` whose only news is what :meth:`abort` was called with."""

    def __init__(self, launch: Launch) -> None:
        self._launch, self._members = launch, launch.members
        self._aborted: tuple[int, str] | None = None

    def leave(self, pe: int) -> None:
        """Nothing looks: the failure detector tells of the end of a process."""

    def state(self, pe: int) -> State:
        return State.RUNNING

    def pid(self, pe: int) -> int:
        return self._members[pe].pid

    def abort(self, pe: int, reason: str) -> None:
        if self._aborted is None:
            self._aborted = pe, reason

    def aborted(self) -> tuple[int, str] | None:
        return self._aborted

    def why_lost(self, pe: int) -> str:
        """What became of ``pe``, to which the library has lost its connection: a wait for news of it."""
        detector, deadline = self._launch.detector, time.monotonic() + _NEWS_SECONDS
        while detector is not None and detector.trouble is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if detector is not None and detector.trouble is not None:
            return str(detector.trouble)
        return f"the OpenSHMEM library has lost the connection to {self._members[pe]}; it says why above"
