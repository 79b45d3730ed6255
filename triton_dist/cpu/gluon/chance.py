"""What is left open in hardware: when something asynchronous happens, and which partition goes first."""

from __future__ import annotations

import random

from triton_dist.process_state import of_process

__all__ = ["Chance", "new_chance"]


class Chance:
    """Of one launch. The n-th launch of a process has the same chances in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def happens(self, one_in: int = 2) -> bool:
        return self._random.randrange(one_in) == 0


class GluonLaunches:
    """How many launches of Gluon kernels there have been. One for each process: some run without a world."""

    def __init__(self) -> None:
        self.count = 0


def new_chance() -> Chance:
    """The chances of the next launch."""
    launches = of_process(GluonLaunches)
    launches.count += 1
    return Chance(launches.count)
