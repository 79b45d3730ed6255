"""Memory and files that the PEs of a CPU world share besides the heap: nothing that outlives their processes."""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

__all__ = ["create_file", "open_file", "words"]


def create_file(name: str) -> int:
    """A file descriptor of a new file in memory, which other processes of this user may :func:`open_file`."""
    return os.memfd_create(f"triton_dist_{name}", os.MFD_CLOEXEC)


def open_file(pid: int, fd: int) -> int:
    """A file descriptor of another process's file, which from then on lives as long as either of them."""
    return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def words(fd: int, count: int) -> NDArray[np.int64]:
    """The first ``count`` 64-bit words of a file, shared with all who map it; zero at first."""
    if os.fstat(fd).st_size < count * 8:
        os.ftruncate(fd, count * 8)
    return np.frombuffer(mmap.mmap(fd, count * 8), np.int64)
