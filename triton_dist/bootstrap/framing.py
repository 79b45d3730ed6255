"""Message framing between PEs: authenticated frames over a socket, for small and rare messages.

A frame is its length, 32 bits, and its payload. A connection begins with mutual challenge and response:

    PE → PE 0   [pe, nonce]
    PE 0 → PE   [nonce, code]    the code of both nonces, with the key of the world
    PE → PE 0   [code]           the code of both nonces, for the other direction

Every later frame is a code and a JSON list. The code covers the frame's sequence number and the list, with a key of
this connection and direction. So frames cannot be forged, replayed or dropped unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from triton_dist.bootstrap.authentication import Key
from triton_dist.decoding import DecodingError, decode, integer, record, text

__all__ = [
    "Channel",
    "Greeting",
    "ProtocolError",
    "greet",
    "lines",
    "listen",
    "own_addresses",
    "peer_of",
    "prepare",
    "say",
]

MAX_FRAME = 1 << 16
"""Bytes of a payload at most."""

_LENGTH = struct.Struct("!I")
_CODE_BYTES = 32
_PROBES = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 8000}
"""A host that is gone is noticed after about eight seconds (the last value is in ms)."""


class ProtocolError(RuntimeError):
    """The received data is not a message of a PE of this world."""


# ---- frames


def frame(payload: bytes) -> bytes:
    """The frame of ``payload``."""
    assert 0 < len(payload) <= MAX_FRAME
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Splits received data into frames. Buffers one frame at most."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are complete after ``data``, up to 64 KiB.

        Raises:
            ProtocolError: a frame is empty or too long.
        """
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._rest)
            if not 0 < size <= MAX_FRAME:
                raise ProtocolError(f"a frame of {size} bytes")
            if len(self._rest) < _LENGTH.size + size:
                return
            payload, self._rest = self._rest[_LENGTH.size : _LENGTH.size + size], self._rest[_LENGTH.size + size :]
            yield payload


# ---- messages on an authenticated connection


class Channel:
    """One end of a connection. ``sends`` and ``receives`` are the keys of the two directions."""

    def __init__(self, connection: socket.socket, sends: Key, receives: Key, frames: Frames | None = None) -> None:
        self.connection = connection
        self._sends, self._receives = sends, receives
        self._sent = self._received = 0
        self._frames = frames or Frames()
        self._lock = threading.Lock()
        self._stuck = False

    def send(self, words: tuple[Any, ...]) -> None:
        payload = json.dumps(words).encode()
        with self._lock:
            if self._stuck:
                return
            self._sent += 1
            code = self._sends.code(self._sent.to_bytes(8, "big"), payload)
            try:
                self.connection.sendall(frame(code + payload))
            except OSError:
                self._stuck = True  # the other end cannot tell where the next frame would begin

    def receive(self, data: bytes) -> Iterator[list[Any]]:
        """The messages that are complete after ``data``.

        Raises:
            ProtocolError: a message does not come from the other end.
        """
        for payload in self._frames.feed(data):
            code, message = payload[:_CODE_BYTES], payload[_CODE_BYTES:]
            self._received += 1
            if not self._receives.verify(code, self._received.to_bytes(8, "big"), message):
                raise ProtocolError("a message whose code is wrong")
            yield _decode(message, _words)


def say(channel: Channel, *words: Any) -> None:
    """Send one message. Errors of a closed connection are ignored; the reader of the connection detects them."""
    channel.send(words)


def lines(channel: Channel) -> Iterator[list[Any] | None]:
    """Received messages, one at each step; None if no message is complete. Ends when the peer is gone.

    Raises:
        ProtocolError: the received data is not a message of the peer.
    """
    yield from channel.receive(b"")
    while True:
        try:
            more = channel.connection.recv(MAX_FRAME)
        except (TimeoutError, BlockingIOError):
            yield None
            continue
        except OSError:
            return
        if not more:
            return
        yield from channel.receive(more)
        yield None


def _words(value: Any) -> list[Any]:
    if type(value) is not list or not value or type(value[0]) is not str:
        raise DecodingError("not a list that begins with a word")
    return value


# ---- authentication of a new connection

_NONCE_BYTES = 32
_HEX = text(2 * _NONCE_BYTES)
_HELLO = record(integer(1, (1 << 31) - 1), _HEX)
_ANSWER = record(_HEX, _HEX)
_PROOF = record(_HEX)


class Greeting:
    """PE 0's side of the handshake. It never blocks: it handles one frame at a time."""

    def __init__(self, connection: socket.socket, key: Key) -> None:
        self.connection = connection
        self.pe = 0
        self._key = key
        self._frames = Frames()
        self._nonces: tuple[bytes, bytes] | None = None

    def receive(self, data: bytes) -> Channel | None:
        """Handle received data. The channel, once the other end has proved that it has the key; else None.

        Raises:
            ProtocolError: the proof is wrong, or the data is not of this protocol.
        """
        for payload in self._frames.feed(data):
            if self._nonces is None:
                self.pe, theirs = _decode(payload, _HELLO)
                self._nonces = _bytes(theirs), secrets.token_bytes(_NONCE_BYTES)
                code = self._key.code(b"PE 0", *_said(self.pe, self._nonces))
                with contextlib.suppress(OSError):
                    self.connection.sendall(frame(json.dumps([self._nonces[1].hex(), code.hex()]).encode()))
            else:
                (proof,) = _decode(payload, _PROOF)
                said = _said(self.pe, self._nonces)
                if not self._key.verify(_bytes(proof), b"PE", *said):
                    raise ProtocolError("a wrong proof")
                sends, receives = self._key.derive(b"from PE 0", *said), self._key.derive(b"to PE 0", *said)
                return Channel(self.connection, sends, receives, self._frames)
        return None


def greet(connection: socket.socket, key: Key, pe: int, seconds: float) -> Channel:
    """The handshake's other side, of PE ``pe``. Blocks until PE 0 has answered.

    Raises:
        ProtocolError: the other end does not have the key. OSError: no answer within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    mine = secrets.token_bytes(_NONCE_BYTES)
    connection.sendall(frame(json.dumps([pe, mine.hex()]).encode()))
    frames = Frames()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {seconds:g} s")
        connection.settimeout(left)
        data = connection.recv(MAX_FRAME)
        if not data:
            raise ProtocolError("no answer")
        for payload in frames.feed(data):
            theirs, code = _decode(payload, _ANSWER)
            said = _said(pe, (mine, _bytes(theirs)))
            if not key.verify(_bytes(code), b"PE 0", *said):
                raise ProtocolError("a wrong answer")
            connection.sendall(frame(json.dumps([key.code(b"PE", *said).hex()]).encode()))
            sends, receives = key.derive(b"to PE 0", *said), key.derive(b"from PE 0", *said)
            return Channel(connection, sends, receives, frames)


def _said(pe: int, nonces: tuple[bytes, bytes]) -> tuple[bytes, bytes, bytes]:
    return pe.to_bytes(4, "big"), *nonces


def _bytes(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ProtocolError("a text where hexadecimal digits are expected") from None


def _decode(payload: bytes, schema: Any) -> Any:
    try:
        return decode(payload, schema, limit=MAX_FRAME)
    except DecodingError as error:
        raise ProtocolError(str(error)) from None


# ---- sockets


def listen(address: str) -> socket.socket:
    """A socket that listens on ``address`` only, on a port that the system picks.

    Raises:
        OSError: ``address`` is not an address of this host.
    """
    family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, 0), family=family, backlog=1024)


def prepare(connection: socket.socket) -> socket.socket:
    """Enable keep-alive probes on a TCP connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket, from the kernel: every user may bind an abstract name."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _ = struct.unpack("3i", credentials)
    return int(pid), int(user)


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
