"""How a process was started, as far as its world needs to know it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from triton_dist import environment
from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap.authentication import AuthenticatedStore, AuthenticationError
from triton_dist.bootstrap.failure_detector import BrokenWorldError, FailureDetector
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.decoding import DecodingError, Schema, decode

__all__ = ["Launch"]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-4, 2e-2  # seconds between two looks of a wait for other PEs


@dataclass(frozen=True)
class Launch:
    """How this process was started: which PE it is, and the store through which PEs find each other.

    ``store`` is private to this world (no other user of the underlying store sees its keys), ``detector`` tells whether
    the other PEs still run; both are None in a world of one. ``members`` are the PEs' processes and hosts.
    """

    pe: int
    n_pes: int
    local_pe: int
    n_local_pes: int
    store: AuthenticatedStore | None
    launcher: str = "python"
    members: tuple[Member, ...] = field(default=(), repr=False)
    detector: FailureDetector | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.pe < self.n_pes, f"pe {self.pe} is out of range [0, {self.n_pes})"
        assert 0 <= self.local_pe < self.n_local_pes, f"local pe {self.local_pe}: out of range [0, {self.n_local_pes})"
        assert self.store is not None or self.n_pes == 1, f"{self.n_pes} PEs need a store to find each other"

    def exchange(self, key: str, value: str, pes: Sequence[int] | None = None, doing: str | None = None) -> list[str]:
        """What each of ``pes`` (by default all) passed as ``value`` under ``key``, in that order; a key serves once.

        *Collective* over ``pes``. This is for rare, small things (who are you, what shape do you want): it costs a
        round trip or two.

        Args:
            doing: what reports of the wait and errors call it, as "exchange kind", which is what it is by default.

        Raises:
            BrokenWorldError: a PE has failed, so that it will never tell.
        """
        if self.store is None:
            return [value]
        keys = [f"{key}/{pe}" for pe in (range(self.n_pes) if pes is None else pes)]
        doing = doing or f"exchange {key}"
        with self._using_store(doing):
            self.store.set(f"{key}/{self.pe}", value)
            self.await_keys(keys, doing)
            return [found.decode() for found in self.store.get_all(keys)]

    def exchange_values(self, key: str, value: Any, schema: Schema, pes: Sequence[int] | None = None) -> list[Any]:
        """As :meth:`exchange`, for values that ``schema`` accepts.

        Raises:
            BrokenWorldError: a PE has failed. RuntimeError: a PE sent a value that ``schema`` rejects.
        """
        values = []
        for pe, text in enumerate(self.exchange(key, json.dumps(value), pes)):
            try:
                values.append(decode(text, schema))
            except DecodingError as error:
                raise RuntimeError(f"the {key} of PE {pe if pes is None else pes[pe]} is invalid: {error}") from None
        return values

    def await_keys(self, keys: Iterable[str], doing: str, seconds: float | None = None) -> None:
        """Wait until other PEs have set ``keys``, whose last parts are their numbers, in the store.

        A wait that lasts longer than ``TRITON_DIST_WAIT_TIMEOUT`` is reported, once, and ``TRITON_DIST_WAIT_ACTION``
        says whether it goes on.

        Raises:
            BrokenWorldError: a PE has failed. TimeoutError: ``seconds`` are over.
        """
        assert self.store is not None
        keys = list(keys)
        begin = time.monotonic()
        deadline = None if seconds is None else begin + seconds
        report_at = begin + (environment.get("TRITON_DIST_WAIT_TIMEOUT") or math.inf)
        pause = _SHORTEST_PAUSE
        with self._using_store(doing):
            while not self.store.check(keys):  # its wait() would not see the detector, and warns when it ends in vain
                self.check(doing)
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"PE {self.pe} cannot {doing}: not all PEs came within {seconds:g} s")
                if time.monotonic() > report_at:
                    self._report_wait(keys, doing, report_at - begin)
                    report_at = math.inf
                time.sleep(pause)
                pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _report_wait(self, keys: Sequence[str], doing: str, seconds: float) -> None:
        """Say on stderr, and to the other PEs, for whom this one has waited."""
        assert self.store is not None
        missing = [key.rpartition("/")[2] for key in keys if not self.store.check([key])]
        what = f"the host waits for PE{'s' if len(missing) > 1 else ''} {', '.join(missing)} to {doing}"
        others = "" if self.detector is None else f"\nPE {self.pe}: other PEs: {self.detector.waits(self.n_pes)}"
        exit_report.say(
            f"PE {self.pe}: a wait has lasted for {seconds:g} s (TRITON_DIST_WAIT_TIMEOUT)\n    {what}{others}"
        )
        if self.detector is not None:
            self.detector.tell_waits(what)
            if environment.get("TRITON_DIST_WAIT_ACTION") == "abort":
                self.detector.give_up(f"waited for {seconds:g} s: {what}")

    @contextmanager
    def _using_store(self, doing: str) -> Iterator[None]:
        """Where torch raises an error of the store, say whose end that is."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, (BrokenWorldError, AuthenticationError)):
                raise
            self.await_trouble(doing)  # a PE's store, perhaps
            raise BrokenWorldError(
                f"PE {self.pe} cannot {doing}: the store of this launch is gone, the process that held it has ended"
                f" ({str(error).splitlines()[0]})"
            ) from None

    def await_trouble(self, doing: str) -> None:
        """BrokenWorldError when a PE has failed, of which the failure detector is to tell in a moment. Else returns
        after some seconds."""
        for _ in range(250):
            self.check(doing)
            time.sleep(_LONGEST_PAUSE)

    def check(self, doing: str) -> None:
        """BrokenWorldError when a PE has failed, so that ``doing`` something with all is in vain."""
        if self.detector is not None:
            self.detector.raise_trouble(doing)
