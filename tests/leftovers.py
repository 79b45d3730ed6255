"""What processes leave on a machine on which other tests run at the same time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

SHARED = Path("/dev/shm")


def shared_files() -> set[Path]:
    return set(SHARED.iterdir())


def new_shared_files(before: set[Path], seconds: float = 20) -> set[Path]:
    """Files in shared memory that are not in ``before`` and last ``seconds``. Those of other tests end sooner."""
    deadline = time.monotonic() + seconds
    while (found := shared_files() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def abstract_sockets(pids: Iterable[int]) -> set[str]:
    """The names of abstract Unix sockets that processes have open, without the leading null byte."""
    inodes = set()
    for pid in pids:
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor.path)):
                inodes.add(found[1])
    return {name for inode, name in _abstract() if inode in inodes}


def all_abstract_sockets() -> set[str]:
    return {name for _, name in _abstract()}


def _abstract() -> list[tuple[str, str]]:
    fields = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [(line[6], line[7].removeprefix("@")) for line in fields if len(line) > 7 and line[7].startswith("@")]
