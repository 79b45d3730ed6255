"""The first thing that PEs do: each says who it is, and sees that all the others are there and mean the same world.

Everything that can be wrong with a launch as such is found here, within ``TRITON_DIST_INIT_TIMEOUT`` seconds: a PE that
does not come, two that think they are the same, different ideas of how many there are.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from triton_dist.world.process import Process, host_identity, kernel_identity

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["Member", "check_in"]

_LOOK_SECONDS = 0.25  # how often it is looked whether those who have come agree and still run
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
    watch: tuple[str, ...] = ()
    """PE 0's: where it listens for the others (see :mod:`triton_dist.world.watch`)."""

    @staticmethod
    def self(pe: int, n_pes: int, watch: tuple[str, ...] = ()) -> Member:
        process = Process.find(os.getpid())
        assert process is not None
        return Member(
            pe, n_pes, process.pid, process.started, platform.node(), host_identity(), kernel_identity(), watch
        )

    @property
    def is_seen_dead(self) -> bool:
        """Whether its process is known not to run any more; that can be seen on the same machine only."""
        return self.kernel_identity == kernel_identity() and not Process(self.pid, self.started).is_running()

    def __str__(self) -> str:
        elsewhere = "" if self.host_identity == host_identity() else f" on {self.host}"
        return f"process {self.pid}{elsewhere}"

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def of(text: str) -> Member:
        fields = json.loads(text)
        return Member(**{**fields, "watch": tuple(fields["watch"])})


def check_in(store: Store, me: Member, seconds: float, holder: str) -> tuple[Member, ...]:
    """All members, by PE, once all have come. *Collective.* ``holder`` is whose process holds the store, for messages.

    Raises:
        RuntimeError: a PE did not come in time, has ended, or comes with another number of PEs; or two say that they
            are this one.
    """
    try:
        return _check_in(store, me, seconds)
    except RuntimeError as error:
        if type(error) is RuntimeError:  # ours
            _spread(store, me, str(error))
            raise
        raise RuntimeError(
            f"PE {me.pe} lost the store through which the PEs meet: {holder} has ended ({str(error).splitlines()[0]})"
        ) from None


def _spread(store: Store, me: Member, verdict: str) -> None:
    """Let all fail with the same words. PE 0, which may hold the store, leaves them a moment to read them."""
    with contextlib.suppress(RuntimeError):
        if store.compare_set("verdict", "", verdict).decode() == verdict and me.pe == 0:
            time.sleep(2 * _LOOK_SECONDS)


def _check_in(store: Store, me: Member, seconds: float) -> tuple[Member, ...]:
    kept = store.compare_set(f"member/{me.pe}", "", me.text()).decode()
    if kept != me.text():
        raise RuntimeError(f"two processes say that they are PE {me.pe}: {Member.of(kept)} and {me}")
    members: dict[int, Member] = {}
    missing = list(range(me.n_pes))
    deadline = time.monotonic() + seconds
    while missing:
        left = deadline - time.monotonic()
        arrived = _arrived(store, missing, min(_LOOK_SECONDS, max(left, 0.001)))
        for pe in arrived:
            members[pe] = Member.of(store.get(f"member/{pe}").decode())
            _compare(me, members[pe])
        missing = [pe for pe in missing if pe not in members]
        if missing and store.check(["verdict"]):
            raise RuntimeError(store.get("verdict").decode())
        for member in members.values():
            if missing and member.is_seen_dead:
                raise RuntimeError(f"PE {member.pe} is lost: its {member} ended before all PEs had come")
        if missing and left < 0:
            raise RuntimeError(
                f"{_listed(missing)} did not come to triton_dist.init() within {seconds:g} s"
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


def _compare(me: Member, other: Member) -> None:
    if other.n_pes != me.n_pes:
        raise RuntimeError(
            f"PE {me.pe} was started as one of {me.n_pes} PEs, and PE {other.pe} ({other}) as one of {other.n_pes}:"
            " start all of them with the same number"
        )


def _listed(pes: list[int]) -> str:
    shown = ", ".join(f"PE {pe}" for pe in pes[:_LISTED])
    return f"{shown} and {len(pes) - _LISTED} more" if len(pes) > _LISTED else shown
