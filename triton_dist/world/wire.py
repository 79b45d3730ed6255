"""Lines of JSON over TCP, for the few small things that PEs tell each other directly: who I am, who is lost, bye."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

__all__ = ["connect", "lines", "listen", "own_addresses", "prepare", "say"]

_PROBES = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 8000}
"""A host that is gone is noticed after about eight seconds (the last value is in ms)."""

_SEND_SECONDS = 2.0  # a peer that takes nothing for so long is stopped or gone: its own news will come
_CONNECT_SECONDS = 5.0


def listen() -> socket.socket:
    """Listens on every address of this host, on a port that the system picks."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", 0), backlog=1024)


def prepare(connection: socket.socket) -> socket.socket:
    """Probed while idle, and never blocking for long."""
    connection.settimeout(_SEND_SECONDS)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def connect(addresses: list[str], port: int) -> Iterator[socket.socket]:
    """Connections to ``port`` by each of the addresses that answers; the caller takes the first that it likes."""
    for address in addresses:
        with contextlib.suppress(OSError):
            yield prepare(socket.create_connection((address, port), _CONNECT_SECONDS))


def say(connection: socket.socket, *words: Any) -> None:
    """Send one message. To a peer that is gone nothing is sent: that it is gone is known by other means."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(words).encode() + b"\n")


def lines(connection: socket.socket) -> Iterator[list[Any] | None]:
    """The messages that come in, one at each step. None: nothing whole came this time. Ends when the peer is gone."""
    rest = b""
    while True:
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            try:
                words = json.loads(line)
            except ValueError:
                return
            if not isinstance(words, list) or not words:
                return
            yield words
        if len(rest) > 1 << 20:
            return
        try:
            more = connection.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            yield None
            continue
        except OSError:
            return
        if not more:
            return
        rest += more
        if b"\n" not in rest:
            yield None


def own_addresses() -> list[str]:
    """Addresses by which other hosts may reach this one, the likeliest first."""
    found = [os.environ.get("MASTER_ADDR", "")]
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((somewhere, 9))  # sends nothing; only asks which of our addresses leads outside
            found.append(probe.getsockname()[0])
    found.append(socket.gethostname())
    with contextlib.suppress(OSError), open("/proc/net/fib_trie", encoding="ascii") as file:
        local = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", file.read())
        found += [address for address in local if not address.startswith("127.")]
    return list(dict.fromkeys(filter(None, found)))
