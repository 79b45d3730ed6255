"""What a PE knows of the others when nothing is shared: what the failure detector tells it."""

from __future__ import annotations

from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.runtime.control import State

__all__ = ["WatchedControl"]


class WatchedControl:
    """A :class:`~triton_dist.cpu.transport.Control` whose only news is what :meth:`abort` was called with."""

    def __init__(self, launch: Launch) -> None:
        self._members = launch.members
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
