"""Processes and hosts: which one, past reuse of its number, and does it still run."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass

__all__ = ["Process", "host_identity", "kernel_identity"]


@dataclass(frozen=True)
class Process:
    """One process of this machine: the kernel's start time belongs to its identity."""

    pid: int
    started: int
    """Clock ticks since boot."""

    @staticmethod
    def find(pid: int) -> Process | None:
        """The process that has this number now; None when none runs (one that was not reaped yet does not run)."""
        try:
            state, _, started = _stat(pid)
        except OSError:
            return None
        return None if state in "ZX" else Process(pid, started)

    @staticmethod
    def parent_of(pid: int) -> int:
        return _stat(pid)[1]

    def is_running(self) -> bool:
        return Process.find(self.pid) == self


def _stat(pid: int) -> tuple[str, int, int]:
    """State, parent and start time. The name before them may hold blanks and parentheses."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


@functools.cache
def kernel_identity() -> str:
    """Processes that have it in common see each other's numbers and memory."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"


@functools.cache
def host_identity() -> str:
    """Processes that have it in common are on one host: one kernel, one name, one set of network devices."""
    return f"{kernel_identity()} {os.stat('/proc/self/ns/net').st_ino} {platform.node()}"
