"""How PEs that have come to the rendezvous agree on the key by which they know each other from then on.

It is made of a secret and of what all members have said of themselves. So PEs that see different members, because
somebody else wrote to the store, have different keys, and find that out at once: each proves that it has the key.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from triton_dist.world import memfd
from triton_dist.world.authentication import AuthenticatedStore, AuthenticationError, Key
from triton_dist.world.check_in import Member, failing_together, listed, raise_verdict

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["agree", "create_key"]

_KEY_BYTES = 32
_LABEL = "key"


def create_key() -> int:
    """PE 0: the descriptor of a new file with a secret. Others read it in :func:`agree`; it must stay open so long."""
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
    """The key of the world, and its store with it. *Collective.*

    Args:
        secret: what ``TRITON_DIST_SECRET_FILE`` holds, if it is set.
        seconds: for all PEs to prove that they have the key, too.
        holder: whose process holds the store, for messages.
        one_host: whether the launcher has said that all PEs are on one host.

    Raises:
        RuntimeError: PEs have different secrets, or only some have one; PE 0 is another user's process; another program
            writes to the store; a PE has ended.
    """
    with failing_together(store, me, holder, time.monotonic()):
        base = _base(me, members, secret, one_host=one_host)
        key = Key(base).derive(b"world", *(member.text().encode() for member in members))
        authenticated = AuthenticatedStore(store, key)
        authenticated.set(f"proof/{me.pe}", "")
        _await_proofs(store, authenticated, members, seconds)
    return key, authenticated


def _base(me: Member, members: Sequence[Member], secret: bytes | None, *, one_host: bool) -> bytes:
    """The secret that the key is made of; nothing where PEs have none in common."""
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
            f"the launcher says that all PEs are on one host, and PE {apart.pe} that it is on another one, or in"
            f" another container ({apart.host}): set TRITON_DIST_SECRET_FILE on all PEs, so that they know each other"
        )
    if me.pe == 0:
        warnings.warn(
            "the PEs are on several hosts, or in several containers, and have no secret in common"
            " (TRITON_DIST_SECRET_FILE): who can connect to PE 0's host can pretend to be a PE. See SECURITY.md",
            stacklevel=2,
        )
    return b""


def _secret_of(first: Member) -> bytes:
    """PE 0's, which the kernel lets processes of the same user read."""
    try:
        fd = memfd.open_of(first.pid, first.key, _LABEL)
    except OSError as error:
        if first.is_seen_dead:
            raise RuntimeError(f"PE 0 is lost: its {first} ended before all PEs had come") from None
        raise RuntimeError(
            f"the key of PE 0, which is said to be {first}, cannot be read: {error}. All PEs of a host run as one user;"
            " or another program writes to the store of this launch"
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
                raise RuntimeError(f"PE {member.pe} is lost: its {member} ended before all PEs had come")
        if time.monotonic() > deadline:
            pes = listed([member.pe for member in silent])
            raise RuntimeError(f"{pes} came and did not go on within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT)")
        time.sleep(0.01)
    for name, member in names.items():
        try:
            authenticated.get(name)
        except AuthenticationError:
            raise AuthenticationError(
                f"PE {member.pe}, {member}, does not have the key of this world: it has another secret"
                " (TRITON_DIST_SECRET_FILE), or another program writes to the store of this launch"
            ) from None
