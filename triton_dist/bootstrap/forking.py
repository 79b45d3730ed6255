"""What a child of fork() lets go of: it is no PE, and the connections that it has are its parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Children"]


class Parental(Protocol):
    def forget(self) -> None:
        """Called in a child, before its program goes on."""


class Children:
    """Calls ``forget()`` of what was added and is alive. One for each process: a registration with ``os`` cannot be
    taken back, and would keep a world's memory for as long as the process lives."""

    def __init__(self) -> None:
        self._parental: weakref.WeakSet[Parental] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._forget)

    def add(self, parental: Parental) -> None:
        self._parental.add(parental)

    def _forget(self) -> None:
        for parental in list(self._parental):
            parental.forget()
