"""The launch parameters that a launcher passes to a process, and the validation of its variables."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["MAX_PES", "Start", "check_range", "host_name", "integer", "master", "pes", "shown"]

MAX_PES = 1 << 20

_PORTS = (1, 65535)


@dataclass(frozen=True)
class Start:
    """Which PE this process is, by whose word, and how it meets the others."""

    launcher: str
    pe: int
    n_pes: int
    meet: Callable[[float], Store] | None = None
    """Gives, within so many seconds, a store that all PEs of the launch share. None in a launch of one."""

    local: tuple[int, int] | None = None
    """Which of how many PEs of this host, if the launcher tells."""

    holder: str = "PE 0"
    """Whose process holds that store, for messages."""

    key: str = ""
    """Tells apart the users of a store that serves several worlds, the same on all PEs. Empty: one store, one world."""


def integer(name: str, low: int, high: int) -> int:
    """The value of a launcher's variable: a whole number from ``low`` to ``high``, in decimal digits.

    Raises:
        RuntimeError: the value is not such a number.
    """
    text = os.environ[name]
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise RuntimeError(f"{shown(name)} is not a number: a whole number from {low} to {high} is expected")
    if not low <= int(text) <= high:
        raise RuntimeError(f"{shown(name)} is out of range: a whole number from {low} to {high} is expected")
    return int(text)


def pes(rank: str, size: str) -> tuple[int, int]:
    """This PE's number and the number of PEs, from the launcher's two variables.

    Raises:
        RuntimeError: they are not numbers, or the PE is out of range.
    """
    pe, n_pes = integer(rank, 0, MAX_PES - 1), integer(size, 1, MAX_PES)
    check_range(rank, pe, size, n_pes)
    return pe, n_pes


def check_range(rank: str, pe: int, size: str, n_pes: int) -> None:
    """Raises RuntimeError unless ``pe`` is in [0, ``n_pes``)."""
    if not 0 <= pe < n_pes:
        raise RuntimeError(f"{rank}={pe} is out of range [0, {n_pes}), which {size}={n_pes} allows")


def master() -> tuple[str, int]:
    """The host MASTER_ADDR and the port MASTER_PORT.

    Raises:
        RuntimeError: they are not a host and a port.
    """
    return host_name("MASTER_ADDR"), integer("MASTER_PORT", *_PORTS)


def host_name(name: str) -> str:
    """The value of a variable that names a host.

    Raises:
        RuntimeError: the value is neither a host name nor an IP address.
    """
    text = os.environ[name]
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not re.fullmatch(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?", text):
            raise RuntimeError(
                f"{shown(name)} is not a host: a name or an IP address is expected, without a port"
            ) from None
    return text


def shown(name: str) -> str:
    """``name=value`` for a message, shortened if long."""
    text = os.environ[name]
    return f"{name}={text!r}" if len(text) <= 60 else f"{name}={text[:60]!r}…"
