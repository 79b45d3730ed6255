"""Time limits of tests. They end what hangs: no result depends on how fast the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["HANG_SECONDS", "INIT_SECONDS", "until"]

HANG_SECONDS = 900.0
"""For programs and threads that end by themselves."""

INIT_SECONDS = "600"
"""``TRITON_DIST_INIT_TIMEOUT`` of PEs that all arrive: less than the above, so that a PE that hangs there says why."""


def until(ready: Callable[[], object]) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + HANG_SECONDS
    while not ready():
        assert time.monotonic() < deadline, f"not after {HANG_SECONDS:g} s"
        time.sleep(0.002)
