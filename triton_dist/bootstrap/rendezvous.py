"""The first thing that PEs do: each says who it is, and sees that all the others are there and mean the same world.

Everything that can be wrong with a launch as such is found here, within ``TRITON_DIST_INIT_TIMEOUT`` seconds: a PE that
does not come, two that think they are the same, different ideas of how many there are.

What is said here any process may have said. Only its form is checked; who said it is known when the PEs have agreed on
their key (:mod:`triton_dist.bootstrap.key_agreement`).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from triton_dist.bootstrap.authentication import AuthenticationError
from triton_dist.bootstrap.process import Process, host_identity, kernel_identity
from triton_dist.decoding import DecodingError, boolean, decode, integer, record, text

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["Member", "check_in", "failing_together", "listed", "raise_verdict"]

_LOOK_SECONDS = 0.25  # how often the members that have arrived are compared and checked to be alive
_HEAR_SECONDS = 5.0  # for the other PEs to read a verdict before PE 0 may end, and the store with it
_VERDICT_BYTES = 4000
_LISTED = 16


@dataclass(frozen=True)
class Member:
    """One PE, as it tells the others of itself."""

    pe: int
    n_pes: int
    pid: int
    started: int
    """Clock ticks since its machine booted: a process number alone may be used again."""
    host: str
    """The host's name, for messages."""
    host_identity: str
    kernel_identity: str
    nonce: str
    """Random, different in every world."""
    has_secret: bool = False
    """Whether ``TRITON_DIST_SECRET_FILE`` is set."""
    detector: str = ""
    """Of PE 0: the socket where it listens for the other PEs (see :mod:`triton_dist.bootstrap.failure_detector`)."""
    key: int = -1
    """Of PE 0: the descriptor of the file with the world's key (see :mod:`triton_dist.bootstrap.key_agreement`)."""

    @staticmethod
    def self(pe: int, n_pes: int, *, has_secret: bool = False, detector: str = "", key: int = -1) -> Member:
        process = Process.find(os.getpid())
        assert process is not None
        here = platform.node(), host_identity(), kernel_identity()
        return Member(pe, n_pes, process.pid, process.started, *here, secrets.token_hex(16), has_secret, detector, key)

    @property
    def is_near(self) -> bool:
        """Whether this process sees the other one in its PID namespace."""
        return self.kernel_identity == kernel_identity()

    @property
    def is_seen_dead(self) -> bool:
        """Whether its process is known not to run any more; that can be seen on the same machine only."""
        return self.is_near and not Process(self.pid, self.started).is_running()

    def __str__(self) -> str:
        elsewhere = "" if self.host_identity == host_identity() else f" on {self.host}"
        return f"process {self.pid}{elsewhere}"

    def text(self) -> str:
        return json.dumps(astuple(self))

    @staticmethod
    def of(text: bytes | str) -> Member:
        """The inverse of :meth:`text`. DecodingError if ``text`` is not a member's."""
        return Member(*decode(text, _MEMBER, limit=_MEMBER_BYTES))


_MEMBER_BYTES = 8192
_MAX_INT = (1 << 31) - 1
_MEMBER = record(
    integer(0, _MAX_INT),
    integer(1, _MAX_INT),
    integer(1, _MAX_INT),
    integer(0, (1 << 63) - 1),
    text(255),
    text(1024),
    text(1024),
    text(32),
    boolean,
    text(100),
    integer(-1, _MAX_INT),
)


def check_in(store: Store, me: Member, seconds: float, holder: str) -> tuple[Member, ...]:
    """All members, by PE, once all have come. *Collective.* ``holder`` is whose process holds the store, for messages.

    Raises:
        RuntimeError: a PE did not come in time, has ended, or comes with another number of PEs; or two say that they
            are this one.
    """
    deadline = time.monotonic() + seconds
    with failing_together(store, me, holder, deadline):
        return _check_in(store, me, seconds, deadline)


@contextlib.contextmanager
def failing_together(
    store: Store, me: Member, holder: str, deadline: float, members: Sequence[Member] = ()
) -> Iterator[None]:
    """Context of a step of the rendezvous. If this PE fails in it, all PEs that reach the store raise the same error.

    Args:
        holder: the process that holds the store, for messages.
        deadline: until when PEs may arrive, by ``time.monotonic()``.
        members: all of them, once they are known.
    """
    try:
        yield
    except RuntimeError as error:
        if type(error) in (RuntimeError, AuthenticationError):  # ours
            _spread(store, me, str(error), deadline)
            raise
        lost = f"PE {me.pe} lost the rendezvous store: {holder} has ended ({str(error).splitlines()[0]})"
        # It may have ended because of another PE, before this one could hear so from it.
        others = [f"PE {member.pe} is lost: its {member} has ended" for member in members[1:] if member.is_seen_dead]
        raise RuntimeError("; ".join([lost, *others])) from None


def raise_verdict(store: Store) -> None:
    """Raises RuntimeError if a PE has failed, with its message."""
    if store.check(["verdict"]):
        raise RuntimeError(_shown(store.get("verdict")))


def _spread(store: Store, me: Member, verdict: str, deadline: float) -> None:
    """Write the verdict for the other PEs. PE 0, which may hold the store, waits until all PEs have read it."""
    with contextlib.suppress(RuntimeError):
        store.compare_set("verdict", "", verdict.encode()[:_VERDICT_BYTES].decode(errors="ignore"))
        store.add("heard", 1)
        begin = time.monotonic()
        while me.pe == 0 and time.monotonic() < begin + _HEAR_SECONDS:
            came, dead = _count(store, me)
            expected = me.n_pes if time.monotonic() < deadline else came
            if store.add("heard", 0) >= expected - dead:
                break
            time.sleep(0.02)


def _count(store: Store, me: Member) -> tuple[int, int]:
    """How many PEs have arrived, and how many of these have ended."""
    came = [pe for pe in range(me.n_pes) if store.check([f"member/{pe}"])]
    dead = 0
    for pe in came:
        with contextlib.suppress(DecodingError):
            dead += Member.of(store.get(f"member/{pe}")).is_seen_dead
    return len(came), dead


def _check_in(store: Store, me: Member, seconds: float, deadline: float) -> tuple[Member, ...]:
    stored = store.compare_set(f"member/{me.pe}", "", me.text())
    if stored != me.text().encode():
        other = _member(me.pe, stored)
        if other.is_seen_dead:
            raise RuntimeError(
                f"PE {me.pe} was {other}, which has ended, and {me} says to be it now: the store of this launch has"
                " served an earlier program, or an earlier attempt. Each program needs a launch of its own, or a"
                " MASTER_PORT"
            )
        raise RuntimeError(
            f"two processes are PE {me.pe}: {other} and {me}. Each PE needs a number of its own"
            " (RANK, if you start them by hand), and each launch a MASTER_PORT of its own"
        )
    members: dict[int, Member] = {}
    missing = list(range(me.n_pes))
    while missing:
        left = deadline - time.monotonic()
        arrived = _arrived(store, missing, min(_LOOK_SECONDS, max(left, 0.001)))
        for pe in arrived:
            members[pe] = _member(pe, store.get(f"member/{pe}"))
            _compare(me, members[pe])
        missing = [pe for pe in missing if pe not in members]
        if missing:
            raise_verdict(store)
        for member in members.values():
            if missing and member.is_seen_dead:
                raise RuntimeError(f"PE {member.pe} is lost: its {member} ended before all PEs had arrived")
        if missing and left < 0:
            raise RuntimeError(
                f"{listed(missing)} did not come to triton_dist.init() within {seconds:g} s"
                f" (TRITON_DIST_INIT_TIMEOUT); {len(members)} of {me.n_pes} PEs did. Were they started, and did they"
                " fail?"
            )
    return tuple(members[pe] for pe in range(me.n_pes))


def _arrived(store: Store, missing: list[int], seconds: float) -> list[int]:
    """Those of ``missing`` who have come; waits up to ``seconds`` for all of them."""
    keys = {pe: f"member/{pe}" for pe in missing}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if store.check(list(keys.values())):
            return missing
        time.sleep(0.01)
    return [pe for pe, key in keys.items() if store.check([key])]


def _member(pe: int, found: bytes) -> Member:
    """The member ``found`` that the store holds as PE ``pe``."""
    try:
        member = Member.of(found)
        if member.pe != pe:
            raise DecodingError(f"it is PE {member.pe}'s")
    except DecodingError as error:
        raise RuntimeError(
            f"the member PE {pe} in the store of this launch was not written by a PE ({error}): another program, or"
            " another version of triton_dist, uses the same address and port"
        ) from None
    return member


def _compare(me: Member, other: Member) -> None:
    if other.n_pes != me.n_pes:
        raise RuntimeError(
            f"PE {me.pe} was started as one of {me.n_pes} PEs, and PE {other.pe} ({other}) as one of {other.n_pes}:"
            " start all of them with the same number"
        )


def _shown(verdict: bytes) -> str:
    """A verdict, which another program may have written, without control characters."""
    words = verdict[:_VERDICT_BYTES].decode(errors="replace")
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in words)


def listed(pes: Sequence[int]) -> str:
    """``pes`` as a text for messages."""
    shown = ", ".join(f"PE {pe}" for pe in pes[:_LISTED])
    return f"{shown} and {len(pes) - _LISTED} more" if len(pes) > _LISTED else shown
