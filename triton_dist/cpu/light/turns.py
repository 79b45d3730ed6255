"""Whose turn it is among the coroutines: a PE runs until it waits, or has run its share, and chooses the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import greenlet
import numpy as np

from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.schedule import Access, RoundRobin
from triton_dist.cpu.turn_taking import GONE, DeadlockError, Turns, word_count
from triton_dist.process_state import of_process
from triton_dist.world.base import World
from triton_dist.world.current import Current

__all__ = ["LightTurns", "Ring"]


class Ring:
    """The coroutines of all PEs, and the words that they share."""

    def __init__(self, n_pes: int, runs: Sequence[int]) -> None:
        """``runs``: the PEs that do."""
        self.n_pes = n_pes
        self.words = np.zeros(word_count(n_pes), np.int64)
        self.turns = [LightTurns(self, pe) for pe in range(n_pes)]
        for pe in set(range(n_pes)).difference(runs):
            self.turns[pe].leave(waiting=False)
        self._runs = runs
        self.pes: dict[int, greenlet.greenlet] = {}
        self.running = runs[0]
        self._worlds: list[tuple[World | None, Launch | None]] = [(None, None)] * n_pes

    def switch(self, pe: int) -> None:
        """Let a PE go on; returns when the one that calls is to."""
        current = of_process(Current)
        self._worlds[self.running] = current.world, current.launch
        self.running = pe
        current.world, current.launch = self._worlds[pe]
        self.pes[pe].switch()

    def run(self, program: Callable[[int], None]) -> None:
        """Run ``program`` of each PE to its end. An exception of one ends this."""

        def start(pe: int) -> None:
            greenlet.getcurrent().parent.switch()
            program(pe)

        self.pes = {pe: greenlet.greenlet(start) for pe in self._runs}
        for pe, coroutine in self.pes.items():
            coroutine.switch(pe)  # from here, since a coroutine counts the frames below it
        while alive := [pe for pe, coroutine in self.pes.items() if not coroutine.dead]:
            self.switch(next((pe for pe in alive if self.turns[pe].can_go_on()), alive[0]))


class LightTurns(Turns):
    """Of one PE. There is nothing to await: the PE that gets the turn is switched to."""

    def __init__(self, ring: Ring, pe: int) -> None:
        self._share(RoundRobin(), pe, ring.n_pes, ring.words)
        self._others = ring

    def take(self) -> None:
        self._depth += 1

    def leave(self, *, waiting: bool) -> None:
        """No other PE switches to this one again; it ends by itself."""
        self._states[self._pe] = GONE

    def offer(self, intention: Access) -> None:
        if not self.schedule.stays(intention, ()):
            self._pass_on()

    def can_go_on(self) -> bool:
        return bool(self._can_go_on()[self._pe])

    def _choose(self) -> int:
        """The next PE that can go on, or this one: ``next_pe`` of the schedule, without lists of all."""
        can = self._can_go_on()
        after = can[self._pe + 1 :]
        found = int(after.argmax()) if after.size else 0
        return self._pe + 1 + found if after.size and after[found] else int(can.argmax())

    def _pass_on(self) -> None:
        pe = self._choose()
        if pe != self._pe:
            self._others.switch(pe)

    def _await_turn(self) -> None:
        pass

    def _declare_stuck(self) -> NoReturn:
        raise DeadlockError(first=True)
