"""What processes leave on a machine on which other tests run at the same time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import psutil
from limits import until

SHARED = Path("/dev/shm")


def shared_files() -> set[Path]:
    return set(SHARED.iterdir())


def assert_nothing_shared_is_left(before: set[Path]) -> None:
    """No file in shared memory that is not in ``before`` stays. Those of tests beside this one end with their test."""
    until(lambda: not shared_files() - before)


def assert_processes_end(mark: str) -> None:
    """No process stays that has ``mark`` in its environment. A killed one may take a moment to go."""
    until(lambda: not [process for process in psutil.process_iter() if _has(process, mark)])


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return mark in process.environ().values()
    except psutil.Error:  # it ended meanwhile, or is not ours
        return False


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
