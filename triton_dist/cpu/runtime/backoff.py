"""How a thread waits for another process: it yields, then sleeps longer and longer."""

from __future__ import annotations

import os
import time

__all__ = ["Backoff"]

_AT_ONCE = 2e-4
"""Seconds for which a wait looks without a sleep between, as most of what is waited for comes by then."""
_LONGEST = 1e-3
_LONGEST_OF_SLOW_LOOKS = 2e-2


class Backoff:
    """One wait, which a sleep makes longer by a quarter at most.

    A look may be a turn of each loop of an interpreted kernel that polls, which takes milliseconds; and what is waited
    for is computed by other processes, often on the same processors. So sleeps are eight times as long as looks, up to
    20 ms. The library's own waits look at one word (runtime/lib/Backoff.cpp).
    """

    _since: float
    _woke: float

    def __init__(self) -> None:
        self.reset()

    def pause(self) -> None:
        """Give others a turn."""
        now = time.monotonic()
        waited, looked = now - self._since, now - self._woke
        if waited < _AT_ONCE:
            os.sched_yield()
        else:
            time.sleep(min(waited / 4, max(_LONGEST, min(8 * looked, _LONGEST_OF_SLOW_LOOKS))))
        self._woke = time.monotonic()

    def reset(self) -> None:
        """Begin anew: something has happened."""
        self._since = self._woke = time.monotonic()
