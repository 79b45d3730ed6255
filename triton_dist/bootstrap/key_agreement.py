"""Key agreement of the PEs of a world, after their rendezvous.

The key is derived from a secret and from the descriptions of all members. Each PE proves that it has the key. So PEs
that see different members, because another program wrote to the store, have different keys and fail at once.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from triton_dist.bootstrap import memfd
from triton_dist.bootstrap.authentication import AuthenticatedStore, AuthenticationError, Key
from triton_dist.bootstrap.rendezvous import Member, failing_together, listed, raise_verdict

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["agree", "create_key"]

_KEY_BYTES = 32
_LABEL = "key"


def create_key() -> int:
    """PE 0: the descriptor of a new file with a secret. It must stay open until the other PEs have read it in
    :func:`agree`."""
    return memfd.create(_LABEL, os.urandom(_KEY_BYTES))


def agree(
    store: Store,
    me: Member,
    members: Sequence[Member],
    secret: bytes | None,
    seconds: float,
    holder: str,
    *,
    one_host: bool,
) -> tuple[Key, AuthenticatedStore]:
    """The key of the world, and the store authenticated with it. *Collective.*

    Args:
        secret: what ``TRITON_DIST_SECRET_FILE`` holds, if it is set.
        seconds: time limit for the proofs of all PEs.
        holder: the process that holds the store, for messages.
        one_host: whether the launcher has said that all PEs are on one host.

    Raises:
        RuntimeError: PEs have different secrets, or only some have one; PE 0 is another user's process; another program
            writes to the store; a PE has ended.
    """
    with failing_together(store, me, holder, time.monotonic(), members):
        base = _base(me, members, secret, one_host=one_host)
        key = Key(base).derive(b"world", *(member.text().encode() for member in members))
        authenticated = AuthenticatedStore(store, key)
        authenticated.set(f"proof/{me.pe}", "")
        _await_proofs(store, authenticated, members, seconds)
    return key, authenticated


def _base(me: Member, members: Sequence[Member], secret: bytes | None, *, one_host: bool) -> bytes:
    """The secret from which the key is derived; empty if the PEs have no secret in common."""
    for other in members:
        if other.has_secret != me.has_secret:
            having, lacking = (me, other) if me.has_secret else (other, me)
            raise RuntimeError(
                f"TRITON_DIST_SECRET_FILE is set on PE {having.pe} and not on PE {lacking.pe}: set it on all PEs"
            )
    if secret is not None:
        return secret
    apart = next((member for member in members if member.kernel_identity != members[0].kernel_identity), None)
    if apart is None:
        return _secret_of(members[0])
    if one_host:
        raise RuntimeError(
            f"the launcher says that all PEs are on one host, but PE {apart.pe} is on another host or in another"
            f" container ({apart.host}): set TRITON_DIST_SECRET_FILE on all PEs, so that they authenticate each other"
        )
    if me.pe == 0:
        warnings.warn(
            "the PEs are on several hosts, or in several containers, and have no secret in common"
            " (TRITON_DIST_SECRET_FILE): every program that can connect to PE 0's host can impersonate a PE. See"
            " SECURITY.md",
            stacklevel=2,
        )
    return b""


def _secret_of(first: Member) -> bytes:
    """PE 0's secret. The kernel lets processes of the same user read it."""
    try:
        fd = memfd.open_of(first.pid, first.key, _LABEL)
    except OSError as error:
        if first.is_seen_dead:
            raise RuntimeError(f"PE 0 is lost: its {first} ended before all PEs had arrived") from None
        raise RuntimeError(
            f"the key of PE 0 ({first} according to the store) cannot be read: {error}. Either the PEs of this host run"
            " as different users, or another program writes to the store of this launch"
        ) from None
    with os.fdopen(fd, "rb") as file:
        return file.read(_KEY_BYTES)


def _await_proofs(store: Store, authenticated: AuthenticatedStore, members: Sequence[Member], seconds: float) -> None:
    names = {f"proof/{member.pe}": member for member in members}
    deadline = time.monotonic() + seconds
    while not store.check(list(names)):
        raise_verdict(store)
        silent = [member for name, member in names.items() if not store.check([name])]
        for member in silent:
            if member.is_seen_dead:
                raise RuntimeError(f"PE {member.pe} is lost: its {member} ended before all PEs had arrived")
        if time.monotonic() > deadline:
            pes = listed([member.pe for member in silent])
            raise RuntimeError(f"{pes} did not authenticate within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT)")
        time.sleep(0.01)
    for name, member in names.items():
        try:
            authenticated.get(name)
        except AuthenticationError:
            raise AuthenticationError(
                f"PE {member.pe}, {member}, does not have the key of this world: it has a different secret"
                " (TRITON_DIST_SECRET_FILE), or another program writes to the store of this launch"
            ) from None
