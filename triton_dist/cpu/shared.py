"""Words that the PEs of a CPU world share besides the heap."""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

__all__ = ["words"]


def words(fd: int, count: int) -> NDArray[np.int64]:
    """The ``count`` 64-bit words of a memfd, shared by all processes that map it.

    Raises:
        ValueError: the file has another size.
    """
    if os.fstat(fd).st_size != count * 8:
        raise ValueError(f"the shared file has {os.fstat(fd).st_size} bytes where {count * 8} are expected")
    return np.frombuffer(mmap.mmap(fd, count * 8), np.int64)
