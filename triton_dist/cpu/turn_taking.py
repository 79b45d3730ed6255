"""One PE at a time: the PEs take turns, so that a run is one sequence of steps, and the same one again.

Who has the turn decides, by its schedule, who has it next: among the PEs in a kernel or in a collective that can go on,
and those that run host code. A PE takes the turn when it starts a kernel or a collective and gives it back at the end;
host code in between runs at the same time as others, but a PE that is chosen is waited for, however long its host code
takes. Only if that sleeps (it may wait for a PE outside of our sight, in ``torch.distributed`` say) is it passed over,
and that is the only choice that time has a part in.

A PE that cannot go on says so, with the number of the last step of any PE; it is asked again after the next
step. When none can go on there will not be a next one: that is a deadlock, and known at once.
"""

from __future__ import annotations

import enum
import os
import secrets
import select
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from triton_dist import environment
from triton_dist.bootstrap import memfd
from triton_dist.bootstrap.launch import Launch
from triton_dist.cpu.bootstrap import DESCRIPTOR
from triton_dist.cpu.runtime.atomics import WORDS, Order
from triton_dist.cpu.schedule import Access, Schedule
from triton_dist.cpu.shared import words
from triton_dist.decoding import record, text

__all__ = ["GONE", "DeadlockError", "Turns", "word_count"]

_WORD = WORDS[8]

_NOBODY = 0xFFFF
_HELD = 1 << 16
_LOOK_SECONDS = 0.1
_ASLEEP_SECONDS = 1.0
"""How long host code must have slept to be passed over."""
_FRUITLESS = 200
"""How often all look again before those that poll memory in loops of their own count as stuck."""

_CARD = record(DESCRIPTOR, text(100))
"""PE 0's descriptor of the shared words, and the name of this PE's bell."""

_TURN, _STEP, _FRUITLESS_ROUNDS, _EVENTS, _STUCK, _VERDICT, _PER_PE = range(7)


def word_count(n_pes: int) -> int:
    """How many words so many PEs share."""
    return _PER_PE + 3 * n_pes


class DeadlockError(RuntimeError):
    """No PE can go on. All that wait for a turn get it; ``first`` says whether this PE has found it out."""

    def __init__(self, *, first: bool) -> None:
        super().__init__("no PE can go on")
        self.first = first


class _State(enum.IntEnum):
    HOST = 0
    """Runs host code; comes when it comes."""
    READY = 1
    BLOCKED = 2
    """Can go on only after a step of another PE."""
    POLLS = 3
    """The same, as far as we can see: it looks into memory in a loop of its own."""
    AWAY = 4
    """Its host code sleeps; comes back by itself."""
    GONE = 5


GONE = _State.GONE


class Turns:
    """This PE's part in taking turns. ``trouble`` raises when the world is broken.

    Made by all PEs together, before any takes the turn.
    """

    def __init__(self, launch: Launch, schedule: Schedule, trouble: Callable[[], None]) -> None:
        self._trouble = trouble
        self._limit = environment.get("TRITON_DIST_WAIT_TIMEOUT")
        # The bell only saves waiting time: whose turn it is stands in the shared words. An abstract name is no file.
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        name = f"triton_dist_{os.getpid()}_{secrets.token_hex(8)}"
        self._bell.bind(f"\0{name}")
        count = word_count(launch.n_pes)
        fd = memfd.create("turns", bytes(8 * count)) if launch.pe == 0 else 0
        cards = launch.exchange_values("turns", [fd, name], _CARD)
        self._pids = [member.pid for member in launch.members] or [os.getpid()]
        self._bells = [f"\0{name}" for _, name in cards]
        if launch.pe != 0:
            fd = memfd.open_of(self._pids[0], cards[0][0], "turns")
        self._share(schedule, launch.pe, launch.n_pes, words(fd, count))
        weakref.finalize(self, os.close, fd)  # not before: the others open PE 0's

    def _share(self, schedule: Schedule, pe: int, n_pes: int, shared: NDArray[np.int64]) -> None:
        """Take part by these :func:`word_count` words, which are zero at first."""
        self.schedule = schedule
        self._pe, self._n_pes = pe, n_pes
        self._words = shared
        self._turn_address = int(self._words.ctypes.data) + 8 * _TURN
        self._states, self._tried, self._intentions = self._words[_PER_PE:].reshape(3, self._n_pes)
        self._depth = 0
        self.before_passing: Callable[[], None] = lambda: None
        """Called before another PE may have the turn."""

    # ---- taking and giving

    def take(self) -> None:
        """Wait for the turn, coming from host code."""
        self._depth += 1
        if self._depth == 1:
            self._states[self._pe] = _State.READY
            self._await_turn()

    def give(self) -> None:
        """Back to host code."""
        self._depth -= 1
        if self._depth == 0:
            self._intentions[self._pe] = Access.NOTHING
            self._states[self._pe] = _State.HOST
            self._pass_on()

    def leave(self, *, waiting: bool) -> None:
        """This PE takes no more turns; ``waiting`` if it may wait for one last."""
        if waiting and self._states[self._pe] != _State.GONE and self._depth == 0:
            self.take()
        self._states[self._pe] = _State.GONE
        if self._owner() == self._pe:
            self._offer(self._choose())

    def offer(self, intention: Access) -> None:
        """Let the schedule choose; returns when it is this PE's turn again. It can go on, and intends to do this."""
        self._intentions[self._pe] = intention
        self._states[self._pe] = _State.READY
        if self.schedule.stays(intention, [self._intention(pe) for pe in self._candidates() if pe != self._pe]):
            return
        self._pass_on()
        self._await_turn()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let others go on until ``ready()``."""
        while not ready():
            self.blocked(polls=False)
        self.step()

    def blocked(self, *, polls: bool) -> None:
        """Nothing here can go on; returns after another PE's step, with this PE's turn, or raises DeadlockError.

        ``polls``: it may yet, if it looks into memory often enough.
        """
        self._states[self._pe] = _State.POLLS if polls else _State.BLOCKED
        self._tried[self._pe] = self.now
        if not self._candidates() and not (self._states == _State.AWAY).any():
            if not (self._states == _State.POLLS).any() or self._words[_FRUITLESS_ROUNDS] >= _FRUITLESS:
                self._declare_stuck()
            self._words[_FRUITLESS_ROUNDS] += 1
            self._words[_STEP] += 1
        self._pass_on()
        self._await_turn()

    def step(self) -> None:
        """Something has changed: PEs that could not go on may look again."""
        self._words[_STEP] += 1
        self._words[_FRUITLESS_ROUNDS] = 0

    def gave_up(self) -> None:
        """After a DeadlockError: this PE has nothing more to say."""
        self._states[self._pe] = _State.GONE

    def all_gave_up(self) -> bool:
        waiting = (self._states >= _State.READY) & (self._states <= _State.POLLS)
        return not waiting.any()

    @property
    def verdict(self) -> int:
        """What a check of the run has come to, zero before; shared by all PEs."""
        return int(self._words[_VERDICT])

    @verdict.setter
    def verdict(self, value: int) -> None:
        self._words[_VERDICT] = value
        self.step()

    def claim_verdict(self, claimed: int) -> bool:
        """Make it ``claimed`` if no PE has made it anything; whether this PE has."""
        address = self._turn_address + 8 * (_VERDICT - _TURN)
        return _WORD.compare_swap(address, 0, claimed, Order.ACQUIRE_RELEASE) == 0

    @property
    def now(self) -> int:
        """The number of the last step."""
        return int(self._words[_STEP])

    def next_event(self) -> int:
        """A number for something that happens now, larger than all before."""
        # Atomic, since host code runs while others have the turn.
        return _WORD.fetch_add(self._turn_address + 8 * (_EVENTS - _TURN), 1, Order.ACQUIRE_RELEASE) + 1

    # ---- whose turn it is

    def _owner(self) -> int:
        return _WORD.load(self._turn_address, Order.ACQUIRE) & _NOBODY

    def _swap(self, seen: int, owner: int, held: bool) -> bool:
        """Change the turn from what was ``seen``; the upper bits count, so that nothing old is mistaken for it."""
        new = ((seen >> 17) + 1) << 17 | (_HELD if held else 0) | owner
        return _WORD.compare_swap(self._turn_address, seen, new, Order.ACQUIRE_RELEASE) == seen

    def _can_go_on(self) -> NDArray[np.bool_]:
        """Which PEs can, or may find that they can."""
        can: NDArray[np.bool_] = (self._states <= _State.READY) | (
            ((self._states == _State.BLOCKED) | (self._states == _State.POLLS)) & (self._tried < self._words[_STEP])
        )
        return can

    def _candidates(self) -> list[int]:
        return [int(pe) for pe in np.flatnonzero(self._can_go_on())]

    def _intention(self, pe: int) -> Access:
        return Access(int(self._intentions[pe])) if self._states[pe] == _State.READY else Access.NOTHING

    def _choose(self) -> int:
        candidates = self._candidates()
        if not candidates:
            return _NOBODY
        return self.schedule.next_pe(candidates, [self._intention(pe) for pe in candidates], self._pe)

    def _pass_on(self) -> None:
        self._offer(self._choose())

    def _declare_stuck(self) -> NoReturn:
        self._words[_STUCK] = 1
        for pe in range(self._n_pes):
            self._ring(pe)
        raise DeadlockError(first=True)

    def _offer(self, pe: int) -> None:
        self.before_passing()
        seen = _WORD.load(self._turn_address, Order.ACQUIRE)
        new = ((seen >> 17) + 1) << 17 | pe
        _WORD.store(self._turn_address, new, Order.RELEASE)
        if pe not in (_NOBODY, self._pe):
            self._ring(pe)

    def _ring(self, pe: int) -> None:
        with suppress(OSError):  # it has gone, or has more bells to hear than it needs
            self._bell.sendto(b"!", self._bells[pe])

    def _await_turn(self) -> None:
        asleep_since, last = time.monotonic(), ("", -1)
        while True:
            turn = _WORD.load(self._turn_address, Order.ACQUIRE)
            owner, held = turn & _NOBODY, bool(turn & _HELD)
            if self._states[self._pe] == _State.AWAY:  # it came while it was being passed over
                self._states[self._pe] = _State.READY
            if owner == self._pe or (owner == _NOBODY and self._is_first(_State.READY)):
                if self._swap(turn, self._pe, True):
                    return
                continue
            rung, _, _ = select.select([self._bell], [], [], _LOOK_SECONDS)
            if rung:
                self._hear()
                if not self._words[_STUCK]:
                    continue
            self._trouble()
            if self._words[_STUCK]:
                raise DeadlockError(first=False)
            if owner == _NOBODY:
                if time.monotonic() - asleep_since > self._limit:
                    self._declare_stuck()
            elif not held and self._states[owner] in (_State.HOST, _State.GONE):
                seen = (_activity(self._pids[owner]), turn)
                if seen != last or not seen[0].startswith("S"):
                    asleep_since, last = time.monotonic(), seen
                gone = self._states[owner] == _State.GONE
                if (gone or time.monotonic() - asleep_since > _ASLEEP_SECONDS) and self._is_first(_State.POLLS):
                    self._pass_over(owner, turn)

    def _pass_over(self, owner: int, turn: int) -> None:
        if self._swap(turn, self._pe, True):
            if self._states[owner] == _State.HOST:
                self._states[owner] = _State.AWAY
            self._pass_on()

    def _is_first(self, last: _State) -> bool:
        """Whether this PE is the first of those whose states are from READY to ``last``: that one acts for all."""
        waiting = (self._states >= _State.READY) & (self._states <= last)
        return bool(waiting[self._pe]) and not waiting[: self._pe].any()

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while self._bell.recv(16):
                pass


def _activity(pid: int) -> str:
    """Whether a process runs or sleeps, and the processor time it has had."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return f"{fields[0]} {fields[11]} {fields[12]}"
