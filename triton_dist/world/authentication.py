"""By what PEs know each other: a key that all PEs of a world have and nobody else, and codes made with it.

The store through which PEs meet belongs to a launcher or to torch. It asks nobody who he is, so what lies in it is
believed only with a code (HMAC-SHA256) over its name and its text. The key never lies in the store. It comes

- on one machine from a file in the memory of PE 0, which the kernel opens for processes of the same user only;
- between machines from the file that ``TRITON_DIST_SECRET_FILE`` names, which the user has put on all of them;
- from nowhere between machines without such a file. The codes then protect from mistakes, and from nobody who means it.

In each case the nonces of all PEs go into it, so that no message of one world is one of another.
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
    """Something was said by nobody of this world."""


class Key:
    """A secret of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def code(self, *parts: bytes) -> bytes:
        """The authentication code of these parts, in which it matters where one ends and the next begins."""
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, message, "sha256")

    def verify(self, code: bytes, *parts: bytes) -> bool:
        return hmac.compare_digest(code, self.code(*parts))

    def derive(self, *parts: bytes) -> Key:
        """Another key for another use: it tells nothing of this one."""
        return Key(self.code(b"derive", *parts))


class AuthenticatedStore:
    """A store in which each value carries its code. What others write into it is an error when it is read."""

    def __init__(self, store: Store, key: Key) -> None:
        self._store = store
        self._key = key

    def set(self, name: str, value: str | bytes) -> None:
        value = value.encode() if isinstance(value, str) else value
        self._store.set(name, self._key.code(name.encode(), value) + value)  # type: ignore[arg-type]  # bytes, too

    def get(self, name: str) -> bytes:
        """The value of a name that is there.

        Raises:
            AuthenticationError: no PE of this world has written it.
        """
        return self._verified(name, self._store.get(name))

    def get_all(self, names: list[str]) -> list[bytes]:
        """The values of names that are there; errors as of :meth:`get`."""
        if not self._store.has_extended_api():  # type: ignore[attr-defined]
            return [self.get(name) for name in names]
        return [self._verified(name, found) for name, found in zip(names, self._store.multi_get(names), strict=True)]

    def check(self, names: list[str]) -> bool:
        """Whether all names are there."""
        return bool(self._store.check(names))

    def _verified(self, name: str, found: bytes) -> bytes:
        code, value = found[:_CODE_BYTES], found[_CODE_BYTES:]
        if not self._key.verify(code, name.encode(), value):
            raise AuthenticationError(
                f"what the store of this launch has under {name!r} was not written by a PE of this world: another"
                " program writes to it, or the PEs see different members or have different secrets"
            )
        return value


def read_secret(path: str) -> bytes:
    """The secret that a file of this user's holds, whatever its length.

    Raises:
        RuntimeError: the file cannot be read, others may read it, or it is shorter than 16 bytes or longer than 4096.
    """
    what = f"TRITON_DIST_SECRET_FILE={path!r}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{what} cannot be read ({error})") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise RuntimeError(f"{what} is no file")
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise RuntimeError(
                f"{what} belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}: it must be"
                " yours, and nobody else may read it (chmod 600)"
            )
        secret = os.read(fd, _SECRET_BYTES.stop).strip()
    finally:
        os.close(fd)
    if len(secret) not in _SECRET_BYTES:
        raise RuntimeError(
            f"{what} holds {len(secret)} bytes, and {_SECRET_BYTES.start} to {_SECRET_BYTES.stop - 1} are allowed: make"
            " one with `openssl rand -hex 32`"
        )
    return hashlib.sha256(secret).digest()
