"""How a thread waits for another process: it yields, then sleeps longer and longer."""

from __future__ import annotations

import os
import time

__all__ = ["Backoff"]

_YIELDS = 32
_SHORTEST = 5e-6
_LONGEST = 1e-3


class Backoff:
    """One wait. The library's own waits do the same (runtime/lib/Backoff.cpp)."""

    def __init__(self) -> None:
        self._rounds = 0

    def pause(self) -> None:
        """Give others a turn."""
        self._rounds += 1
        if self._rounds <= _YIELDS:
            os.sched_yield()
        else:
            time.sleep(min(_SHORTEST * 2 ** min(self._rounds - _YIELDS - 1, 8), _LONGEST))

    def reset(self) -> None:
        """Begin anew: something has happened."""
        self._rounds = 0
