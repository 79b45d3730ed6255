"""The tables on disk: those that come with the package, and the one that ``kernels.tune`` has stored for this user.

Both have the same form and a file for each model of GPU and number of PEs. What is stored is added to what the file
holds by then, written to a new file that replaces it, and for its owner only. Its folder is locked meanwhile: several
groups and processes may store what they have measured. It is not trusted: a file of another user, or one that others
may write to, is not read, and what it holds is validated.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triton_dist import environment
from triton_dist.decoding import DecodingError
from triton_dist.kernels.choice.tables import Entry, Table, decoded, encoded

__all__ = ["digest", "shipped", "store", "stored", "stored_path"]

_log = logging.getLogger("triton_dist")

_SHIPPED = Path(__file__).parent / "tables"
_TRUSTED = 0.3
"""What part of what a model errs counts beside the times of the package, by whose GPUs the models were made
(docs/decisions/0104)."""
_MOST_BYTES = 4 << 20
_LOCK_SECONDS = 30.0


def _file_name(gpu: str, n_pes: int) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')[:80]}-{n_pes}.json"


def shipped(gpu: str, n_pes: int) -> Table:
    """The table of the package; an empty one if it has none."""
    try:
        data = (_SHIPPED / _file_name(gpu, n_pes)).read_bytes()
    except FileNotFoundError:
        return Table(gpu, n_pes)
    return Table(gpu, n_pes, map(Entry._make, decoded(data).entries.items()), trusted=_TRUSTED)


def stored_path(gpu: str, n_pes: int) -> Path:
    """Where ``kernels.tune`` stores what it measures on this host."""
    folder = environment.get("TRITON_DIST_TUNING_DIR")
    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(cache, "triton_dist", "tuning")
    return Path(folder) / _file_name(gpu, n_pes)


def stored(gpu: str, n_pes: int) -> Table:
    """What was measured on this host; an empty table if nothing was. Why a file is not taken is logged."""
    path = stored_path(gpu, n_pes)
    try:
        data = _read(path)
    except FileNotFoundError:
        return Table(gpu, n_pes)
    except (OSError, ValueError) as error:
        _log.warning("%s is not used: %s", path, error)
        return Table(gpu, n_pes)
    try:
        table = decoded(data)
        if (table.gpu, table.n_pes) != (gpu, n_pes):
            raise DecodingError(f"it is of {table.n_pes} × {table.gpu}")
    except DecodingError as error:
        _log.warning("%s is not used: %s; kernels.tune() writes it anew", path, error)
        return Table(gpu, n_pes)
    return table


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
            raise ValueError(
                f"it belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}: it must be yours,"
                " and other users must not be able to write to it"
            )
        with open(fd, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES + 1)
    finally:
        os.close(fd)


def store(table: Table) -> Path:
    """Add what ``table`` holds to this host's file for such GPUs; where it is.

    Raises:
        OSError: it cannot be written, or another process keeps the folder locked.
    """
    path = stored_path(table.gpu, table.n_pes)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path.parent):
        known = stored(table.gpu, table.n_pes)
        merged = known.merged(Entry(case, times) for case, times in table.entries.items())
        fd, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for its owner only
        try:
            with open(fd, "w") as file:
                file.write(encoded(merged, "kernels.tune"))
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    return path


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """No other thread or process is in here with ``folder``."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OSError(f"another process has kept {folder} locked for {_LOCK_SECONDS:g} s") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)  # which ends the lock


def digest(table: Table) -> str:
    """The same for tables that hold the same, in any order."""
    return hashlib.sha256(encoded(table.in_order(), "").encode()).hexdigest()[:32]
