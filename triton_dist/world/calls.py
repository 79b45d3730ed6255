"""Comparing what the members of a group call, where PEs share no memory: through the store of the launch.

A member compares a call that it has not made before: it waits until it knows the call of equal number of every member.
A member that comes to that call compares, too, unless it has made an equal one before: then it does not know that the
others wait, and goes on. So a thread of each PE answers for it. What is waited for is a call and not a time: a member
that comes late, because it compiles or loads data, is no error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from triton_dist.bootstrap.launch import Launch

__all__ = ["CallComparison", "CallsDifferError", "check_equal_calls"]

ASK_SECONDS = 1.0
"""How long a member waits before it asks the others, and how often these look whether they are asked."""


class CallComparison:
    """A PE's part. ``give_up`` is called, in a thread of its own, with what is wrong when this PE's main thread cannot
    say so, because it has gone on with a call that differs from the others'."""

    def __init__(self, launch: Launch, give_up: Callable[[str], None]) -> None:
        self._launch, self._give_up = launch, give_up
        self._made: dict[str, tuple[Sequence[int], Callable[[int], str | None]]] = {}
        self._answered: set[tuple[str, int]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="triton_dist call comparison", daemon=True)

    def compare(self, name: str, pes: Sequence[int], number: int, call: str, made: Callable[[int], str | None]) -> None:
        """Return when call ``number`` of all members of the group called ``name`` is known, and is ``call``.

        Args:
            made: this PE's call of a number; None if it has not come to it yet. Called in another thread.

        Raises:
            RuntimeError: a member's call is another one; the message has every member's. BrokenWorldError: a PE ended.
        """
        store = self._launch.store
        assert store is not None
        self._made[name] = pes, made
        if self._thread.ident is None:
            self._thread.start()
        self._answered.add((name, number))
        store.set(_key(name, number, self._launch.pe), call)
        keys = [_key(name, number, pe) for pe in pes]
        try:
            self._launch.await_keys(keys, call, ASK_SECONDS)
        except TimeoutError:
            store.set(f"{name}/asked", str(number))
            self._launch.await_keys(keys, call)
        check_equal_calls(dict(zip(pes, (found.decode() for found in store.get_all(keys)), strict=True)))

    def forget(self, name: str) -> None:
        """The group of this name has ended."""
        self._made.pop(name, None)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * ASK_SECONDS)

    def _answer(self) -> None:
        store, me = self._launch.store, self._launch.pe
        assert store is not None
        while not self._stop.wait(ASK_SECONDS / 2):
            try:
                for name, (pes, made) in list(self._made.items()):
                    if not store.check([f"{name}/asked"]):
                        continue
                    number = int(store.get(f"{name}/asked"))
                    call = made(number)
                    if call is None or (name, number) in self._answered:
                        continue
                    self._answered.add((name, number))
                    store.set(_key(name, number, me), call)
                    told = [pe for pe in pes if store.check([_key(name, number, pe)])]
                    check_equal_calls({pe: store.get(_key(name, number, pe)).decode() for pe in told})
            except CallsDifferError as error:
                self._stop.wait(2 * ASK_SECONDS)  # those that compared say it first, and better: with a traceback
                self._give_up(str(error))
                return
            except RuntimeError:
                return  # the store is gone, and with it the process that held it: the failure detector says so


def _key(name: str, number: int, pe: int) -> str:
    return f"{name}/call {number}/{pe}"


class CallsDifferError(RuntimeError):
    """Members of a group have made different calls."""


def check_equal_calls(calls: Mapping[int, str]) -> None:
    """CallsDifferError if the calls of members, by PE, differ."""
    if len(set(calls.values())) > 1:
        listed = "; ".join(f"PE {pe}: {call}" for pe, call in calls.items())
        raise CallsDifferError(f"the members of a group call different things: {listed}")
