"""Operations in flight, where they arrive as late as the standard allows: copies of a schedule that says so, and, under
the checker, copies, signals and atomics between hosts.

Operations to one PE arrive in any order, but a ``fence`` begins a new epoch: what belongs to an epoch arrives after all
of the earlier ones. An operation arrives when the program calls ``quiet``; before an operation of a later epoch that is
made at once; when the schedule says so; when no program of the PE can go on without it; and at the end of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Outstanding"]

_Make = Callable[[], None]


class Outstanding:
    """The operations of one program."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        """``arrived`` is called after each arrival."""
        self._arrived = arrived
        self._epochs: dict[int | None, list[list[_Make]]] = {}
        """By target (None: gets): what is in flight, an epoch each. The last epoch is open and may be empty."""

    def __bool__(self) -> bool:
        return any(operations for epochs in self._epochs.values() for operations in epochs)

    def add(self, pe: int | None, make: _Make) -> None:
        """``make`` makes the operation arrive. ``pe`` is its target, None for a get."""
        self._epochs.setdefault(pe, [[]])[-1].append(make)

    def fence(self, pe: int | None = None) -> None:
        """What the program does from now on, to PE ``pe`` or to any (None), comes after what it has sent there."""
        for target, epochs in self._epochs.items():
            if target is not None and pe in (None, target) and epochs[-1]:
                epochs.append([])

    def before_update(self, pe: int) -> None:
        """The program is about to change memory of PE ``pe`` with something that does not wait."""
        epochs = self._epochs.get(pe, [])
        while len(epochs) > 1:
            self._make_all(epochs.pop(0))

    def arrive(self, pe: int | None = None) -> None:
        """All, or those to PE ``pe`` and the gets; those of one epoch in the order that is the least expected."""
        for target in [target for target in self._epochs if pe is None or target in (None, pe)]:
            for operations in self._epochs.pop(target):
                self._make_all(operations)

    def n_next(self) -> int:
        """How many of them may be the next to arrive."""
        return sum(len(epochs[0]) for epochs in self._epochs.values())

    def arrive_one(self, which: int) -> None:
        """That one of :meth:`n_next`; the last is the youngest one to its target."""
        for target, epochs in self._epochs.items():
            if which < len(epochs[0]):
                make = epochs[0].pop(which)
                if not epochs[0]:
                    epochs.pop(0)
                if not epochs:
                    del self._epochs[target]
                make()
                self._arrived()
                return
            which -= len(epochs[0])

    def _make_all(self, operations: list[_Make]) -> None:
        for make in reversed(operations):
            make()
            self._arrived()
