"""Authentication of PEs: a key that only the PEs of a world have, and authentication codes made with it.

The rendezvous store belongs to a launcher or to torch and authenticates no client. So a value in it is accepted only
with a code (HMAC-SHA256) over its name and text. The key is never in the store. Its secret comes

- on one machine, from a memfd of PE 0, which the kernel opens for processes of the same user only;
- between machines, from the file that ``TRITON_DIST_SECRET_FILE`` names, which the user has copied to all of them;
- between machines without such a file, from nowhere. The codes then detect mistakes, not attacks.

The nonces of all PEs are part of each key's derivation, so a message of one world is not valid in another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["AuthenticatedStore", "AuthenticationError", "Key", "read_secret"]

_CODE_BYTES = 32
_SECRET_BYTES = range(16, 4097)


class AuthenticationError(RuntimeError):
    """A value or message does not come from a PE of this world."""


class Key:
    """A secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def code(self, *parts: bytes) -> bytes:
        """The authentication code of ``parts``, which also covers the boundaries between them."""
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, message, "sha256")

    def verify(self, code: bytes, *parts: bytes) -> bool:
        return hmac.compare_digest(code, self.code(*parts))

    def derive(self, *parts: bytes) -> Key:
        """A key for another use. This key cannot be computed from it."""
        return Key(self.code(b"derive", *parts))


class AuthenticatedStore:
    """A store in which each value carries its code. Reading a value of another program is an error."""

    def __init__(self, store: Store, key: Key) -> None:
        self._store = store
        self._key = key

    def set(self, name: str, value: str | bytes) -> None:
        value = value.encode() if isinstance(value, str) else value
        self._store.set(name, self._key.code(name.encode(), value) + value)  # type: ignore[arg-type]  # bytes, too

    def get(self, name: str) -> bytes:
        """The value of ``name``, which is in the store.

        Raises:
            AuthenticationError: the value was not written by a PE of this world.
        """
        return self._verified(name, self._store.get(name))

    def get_all(self, names: list[str]) -> list[bytes]:
        """The values of ``names``, which are in the store; errors as of :meth:`get`."""
        if not self._store.has_extended_api():  # type: ignore[attr-defined]
            return [self.get(name) for name in names]
        return [self._verified(name, found) for name, found in zip(names, self._store.multi_get(names), strict=True)]

    def check(self, names: list[str]) -> bool:
        """Whether all names are in the store."""
        return bool(self._store.check(names))

    def _verified(self, name: str, found: bytes) -> bytes:
        code, value = found[:_CODE_BYTES], found[_CODE_BYTES:]
        if not self._key.verify(code, name.encode(), value):
            raise AuthenticationError(
                f"the value of {name!r} in the store of this launch was not written by a PE of this world: another"
                " program writes to it, or the PEs see different members or have different secrets"
            )
        return value


def read_secret(path: str) -> bytes:
    """A digest of the secret in a file of this user, 32 bytes.

    Raises:
        RuntimeError: the file cannot be read, other users may read it, or it is not 16 to 4096 bytes long.
    """
    what = f"TRITON_DIST_SECRET_FILE={path!r}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{what} cannot be read ({error})") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise RuntimeError(f"{what} is not a regular file")
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise RuntimeError(
                f"{what} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}: it must be"
                " yours, and other users must not be able to read it (chmod 600)"
            )
        secret = os.read(fd, _SECRET_BYTES.stop).strip()
    finally:
        os.close(fd)
    if len(secret) not in _SECRET_BYTES:
        raise RuntimeError(
            f"{what} holds {len(secret)} bytes, and {_SECRET_BYTES.start} to {_SECRET_BYTES.stop - 1} are allowed:"
            " create one with `openssl rand -hex 32`"
        )
    return hashlib.sha256(secret).digest()
