"""Who is still there: every PE is connected to PE 0, and the operating system tells when a connection ends.

PEs of PE 0's host use a Unix socket, whose other end the kernel names; those of other hosts use TCP, on one address of
PE 0's host that is opened only for them. Both ends prove that they have the key of the world.

A process that is killed or crashes cannot say so, but its kernel closes its connections at once, and a host that is
gone is noticed by keep-alive probes. PE 0 tells the others. So the loss of a PE is known everywhere in milliseconds, or
within ten seconds when a host dies; and watching costs no processor time: one thread a PE, which sleeps.

A thread that waits for a lost PE in Python asks :meth:`FailureDetector.raise_trouble`. A process that waits in a
kernel, or in a library, cannot raise: the detector leaves it some seconds to end by itself, then says which PE is lost
and where this one is, and ends it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from triton_dist.bootstrap import exit_report
from triton_dist.bootstrap import framing as wire
from triton_dist.bootstrap.authentication import AuthenticatedStore, Key
from triton_dist.bootstrap.forking import Children
from triton_dist.bootstrap.interrupts import Interrupts
from triton_dist.bootstrap.process import host_identity
from triton_dist.bootstrap.rendezvous import Member
from triton_dist.decoding import DecodingError, Schema, decode, integer, record, sequence, text
from triton_dist.process_state import of_process

__all__ = ["BrokenWorldError", "FailureDetector", "Trouble"]

GRACE_SECONDS = 4.0
"""Between the news that a PE is lost, or a Ctrl-C, and the end of a process that does not end by itself."""

_TRACEBACK_SECONDS = 0.5  # how long the word of a failure waits for its traceback to be printed first
_LONGEST_WAIT = 1000  # characters that tell what a PE waits for
_JOIN_SECONDS = 30.0  # for a PE that has checked in to connect
_GREETING_SECONDS = 10.0  # time limit for a new connection to authenticate
_CONNECT_SECONDS = 5.0
_ACCEPT_AGAIN_SECONDS = 0.02
_LEAVE_SECONDS = 10.0  # for a process that has closed its connections to be seen as ended
_TOLD = 8000  # characters of a reason that PEs tell each other

_PE = integer(0, (1 << 31) - 1)
_MESSAGES: dict[str, Schema] = {
    "welcome": record(),
    "bye": record(),
    "broken": record(_PE, text(_TOLD)),
    "waits": record(_PE, text(_LONGEST_WAIT)),
}
"""The messages: the fields after the first word, by the first word."""

_PLACE = record(integer(1, 65535), sequence(text(255), 8))
"""Port and addresses of PE 0, for PEs of other hosts."""


class BrokenWorldError(RuntimeError):
    """A PE has failed, so that nothing collective can be completed any more. Says which one, and why."""


@dataclass(frozen=True)
class Trouble:
    """Why the world cannot go on: the PE at whose fault, and what became of it."""

    pe: int
    what: str

    def __str__(self) -> str:
        return f"PE {self.pe} {self.what}"


class FailureDetector:
    """One PE's part. Make it before the check-in, :meth:`begin` after it, :meth:`end` it with the world."""

    trouble: Trouble | None = None

    def __init__(self, pe: int) -> None:
        self.pe = pe
        self._on_trouble: Callable[[Trouble], None] | None = None
        self._name = f"triton_dist_{secrets.token_hex(16)}"
        self._listeners: list[socket.socket] = []  # of PE 0
        if pe == 0:
            local = socket.socket(socket.AF_UNIX)
            local.bind(f"\0{self._name}")  # abstract: not in a file system, removed with this process
            local.listen(1024)
            self._listeners.append(local)
        self._greetings: dict[wire.Greeting, float] = {}  # unauthenticated connections, and when they are closed
        self._members: tuple[Member, ...] = ()
        self._peers: dict[int, wire.Channel] = {}  # of PE 0: all others; of the others: PE 0
        self._gone: set[int] = set()  # those who said good-bye
        self._lock = threading.RLock()
        self._gave_up = False
        self._failure: tuple[float, str] | None = None  # of this PE: when the others hear of it, and what
        self._deadline: float | None = None  # when this process is ended
        self._waits: dict[int, tuple[float, str]] = {}  # by PE: when it reported a long wait, and what it waits for
        self._ending = False
        self._ended = False
        self._process = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._interrupts = Interrupts()
        self._thread = threading.Thread(target=self._run, name="triton_dist detector", daemon=True)
        of_process(Children).add(self)  # a child must not keep its parent's connections open

    @property
    def address(self) -> str:
        """PE 0: the name of its Unix socket, for its :class:`Member`."""
        return self._name if self._listeners else ""

    def begin(self, members: tuple[Member, ...], key: Key, store: AuthenticatedStore) -> None:
        """Connect, and detector from now on. *Collective.*

        Raises:
            BrokenWorldError: PE 0 has ended, or cannot be reached.
        """
        self._members, self._key = members, key
        self._begun = time.monotonic()
        if self.pe != 0:
            self._add(0, *_join(members, self.pe, key, store))
        else:
            if any(member.host_identity != host_identity() for member in members):
                self._listeners.append(_open_outside(store))
            for listener in self._listeners:
                listener.setblocking(False)
                self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._previous_hook, sys.excepthook = sys.excepthook, self._on_uncaught
        self._interrupts.listen(self._wake_write)
        self._thread.start()

    def end(self) -> None:
        """This PE needs the others no more, nor they it. A second call does nothing."""
        self._tell_failure()
        with self._lock:
            if self._ending or os.getpid() != self._process:
                return
            self._ending = True
            for peer in self._peers.values():
                wire.say(peer, "bye")
        if sys.excepthook == self._on_uncaught:
            sys.excepthook = self._previous_hook
        self._interrupts.stop()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2.0)
        elif self._thread.ident is None:  # it never began
            self._close()

    # ---- what this PE asks and says

    def raise_trouble(self, doing: str) -> None:
        """BrokenWorldError when the world is broken."""
        if self.trouble is not None:
            raise BrokenWorldError(f"PE {self.pe} cannot {doing}: {self.trouble}")

    def on_trouble(self, tell: Callable[[Trouble], None]) -> None:
        """Have ``tell`` called once, from whichever thread, when the world is broken, by whomever, or is already."""
        with self._lock:
            self._on_trouble = tell
            trouble = self.trouble
        if trouble is not None:
            tell(trouble)

    def fail(self, what: str) -> None:
        """This PE gives up. The others hear of it a little later, so that its traceback is out before theirs."""
        what = what[:_TOLD]
        with self._lock:
            self._gave_up, self._deadline = True, None  # it is awake, and ends, or goes on without this world
            if self._failure is None and self.trouble is None and not self._ending:
                self._failure = (time.monotonic() + _TRACEBACK_SECONDS, what)
        self._wake()

    def _tell_failure(self) -> None:
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            self._learn(Trouble(self.pe, failure[1]))

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != self._process or self._ending:
            self._previous_hook(kind, error, trace)
        elif isinstance(error, KeyboardInterrupt):
            exit_report.say(f"PE {self.pe}: interrupted at {exit_report.place(trace)}")
            self.fail(exit_report.of(error))
        elif self.trouble is not None and self.trouble.what == exit_report.INTERRUPTED:
            exit_report.say(f"PE {self.pe}: ends at {exit_report.place(trace)}, because {self.trouble}")
        else:
            self.fail(exit_report.of(error))
            self._previous_hook(kind, error, trace)
        self._tell_failure()

    def give_up(self, what: str) -> None:
        """Break the world for the reason ``what``. Any thread may call this; it does not depend on the main thread."""
        self._learn(Trouble(self.pe, what))
        self._wake()

    # ---- what PEs wait for

    def tell_waits(self, what: str) -> None:
        """Send the other PEs a report of a long wait of this PE, in a kernel or in Python."""
        with self._lock:
            for peer in self._peers.values():
                wire.say(peer, "waits", self.pe, what[:_LONGEST_WAIT])

    def waits(self, n_pes: int) -> str:
        """What each other PE waits for, by its last report, and how long ago that came."""
        known, now = dict(self._waits), time.monotonic()
        told = [f"PE {pe} reported {now - at:.0f} s ago: {what}" for pe, (at, what) in sorted(known.items())]
        silent = [str(pe) for pe in range(n_pes) if pe != self.pe and pe not in known]
        if silent:
            told.append(f"no report from PE{'s' if len(silent) > 1 else ''} {', '.join(silent)}")
        return "; ".join(told)

    def _hear_waits(self, connection_of: int, pe: int, what: str) -> None:
        """A report of ``pe``. PE 0 forwards reports, so ``connection_of`` is PE 0 or ``pe``; others are ignored."""
        if pe >= len(self._members) or pe == self.pe or connection_of not in (0, pe):
            return
        self._waits[pe] = (time.monotonic(), "".join(c if c.isprintable() else "?" for c in what))
        if self.pe == 0:
            with self._lock:
                for other, peer in self._peers.items():
                    if other != pe:
                        wire.say(peer, "waits", pe, what)

    # ---- what it learns

    def _learn(self, trouble: Trouble) -> None:
        """The world is broken: remember it, and pass it on."""
        with self._lock:
            if self.trouble is not None or self._ending:
                return
            self.trouble = trouble
            if not self._gave_up:
                self._deadline = time.monotonic() + GRACE_SECONDS
            # The callback writes to shared memory, so it comes before the messages. Otherwise a PE that
            # receives the message could write there first; this PE, still writing, would be taken for one that left.
            if self._on_trouble is not None:
                self._on_trouble(trouble)
            for pe, peer in self._peers.items():
                if pe != trouble.pe:
                    wire.say(peer, "broken", trouble.pe, trouble.what)

    def _hear(self, pe: int, channel: wire.Channel, messages: Iterator[list[Any] | None]) -> None:
        invalid = ""
        try:
            for words in messages:
                if words is None:
                    return
                rest = _checked(words)
                if words[0] == "bye":
                    self._gone.add(pe)
                elif words[0] == "broken":
                    self._learn(Trouble(rest[0], rest[1]))
                elif words[0] == "waits":
                    self._hear_waits(pe, *rest)
        except (wire.ProtocolError, DecodingError) as error:
            invalid = f"is lost: its {self._members[pe]} sent an invalid message ({error})"
        self._selector.unregister(channel.connection)
        with self._lock:
            self._peers.pop(pe, None)
        channel.connection.close()
        if pe not in self._gone:
            self._learn(Trouble(pe, invalid) if invalid else _lost(self._members, pe))

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # gone, or this process has too many open files, and the connection waits
            time.sleep(_ACCEPT_AGAIN_SECONDS)
            return
        with contextlib.suppress(OSError):
            connection.setblocking(False)  # a connection that is idle or full must not block this thread
            if connection.family == socket.AF_UNIX:
                if wire.peer_of(connection)[1] not in (os.geteuid(), 0):
                    connection.close()
                    return
            else:
                wire.prepare(connection)
            if len(self._greetings) > 2 * len(self._members) + 16:
                self._dismiss(next(iter(self._greetings)))  # bounds the memory for unauthenticated connections
            greeting = wire.Greeting(connection, self._key)
            self._greetings[greeting] = time.monotonic() + _GREETING_SECONDS
            self._selector.register(connection, selectors.EVENT_READ, partial(self._greet, greeting))

    def _greet(self, greeting: wire.Greeting) -> None:
        try:
            data = greeting.connection.recv(wire.MAX_FRAME)
            channel = greeting.receive(data) if data else None
        except BlockingIOError:
            return
        except (OSError, wire.ProtocolError):
            data, channel = b"", None
        if channel is None or not 0 < greeting.pe < len(self._members) or greeting.pe in self._peers:
            if channel is not None or not data:
                self._dismiss(greeting)
            return
        del self._greetings[greeting]
        self._selector.unregister(greeting.connection)
        wire.say(channel, "welcome")
        self._add(greeting.pe, channel, wire.lines(channel))
        if self.trouble is not None:
            wire.say(channel, "broken", self.trouble.pe, self.trouble.what)

    def _dismiss(self, greeting: wire.Greeting) -> None:
        """Close a connection whose other end is not a PE of this world."""
        del self._greetings[greeting]
        self._selector.unregister(greeting.connection)
        greeting.connection.close()

    def _add(self, pe: int, channel: wire.Channel, messages: Iterator[list[Any] | None]) -> None:
        channel.connection.setblocking(False)  # a full connection must not block this thread
        with self._lock:
            self._peers[pe] = channel
        self._selector.register(channel.connection, selectors.EVENT_READ, lambda: self._hear(pe, channel, messages))

    # ---- the thread

    def _run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            now = time.monotonic()
            if self._failure is not None and now > self._failure[0]:
                self._tell_failure()
            if self._deadline is not None and now > self._deadline:
                exit_report.end_process(f"PE {self.pe}: {self.trouble}. So this process", 1)
            if self._interrupts.ignored_for() > GRACE_SECONDS:
                self._learn(Trouble(self.pe, exit_report.INTERRUPTED))
                exit_report.end_process(f"PE {self.pe}: interrupted (Ctrl-C). This process", 130)
            for greeting in [late for late, until in self._greetings.items() if now > until]:
                self._dismiss(greeting)
            for pe in self._not_joined():
                late = now - self._begun > _JOIN_SECONDS
                if self._members[pe].is_seen_dead or late:
                    self._learn(_lost(self._members, pe))
        self._close()

    def _patience(self) -> float | None:
        """How many seconds the thread may sleep, if nothing happens."""
        now = time.monotonic()
        times = [] if self._failure is None else [self._failure[0]]
        times += [] if self._deadline is None else [self._deadline]
        if self._interrupts.ignored_for() > 0:
            times.append(now + GRACE_SECONDS / 8)
        if self._not_joined() or self._greetings:
            times.append(now + 0.5)
        return max(0.0, min(times) - now) + 0.01 if times else None

    def _not_joined(self) -> list[int]:
        if self.pe != 0 or self.trouble is not None:
            return []
        joined = self._peers.keys() | self._gone | {0}
        return [pe for pe in range(len(self._members)) if pe not in joined] if len(joined) < len(self._members) else []

    def _woken(self) -> None:
        self._interrupts.heard(os.read(self._wake_read, 4096))

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not self._ended:
                os.write(self._wake_write, b"\0")

    def _close(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._selector.close()
            for connection in self._sockets():
                connection.close()
            if not self._interrupts.listening:
                os.close(self._wake_read)
                os.close(self._wake_write)

    def forget(self) -> None:
        """In a child of fork()."""
        if not self._ended:
            self._ended = self._ending = True
            self._interrupts.stop()
            for connection in self._sockets():
                with contextlib.suppress(OSError):
                    socket.close(connection.detach())

    def _sockets(self) -> list[socket.socket]:
        channels: list[wire.Channel | wire.Greeting] = [*self._peers.values(), *self._greetings]
        return [*(channel.connection for channel in channels), *self._listeners]


def _lost(members: tuple[Member, ...], pe: int) -> Trouble:
    what = f"is lost: its {members[pe]} was killed, crashed or just ended"
    if pe == 0:  # it may have ended because of another PE, before this one could hear so from it
        others = [str(_lost(members, member.pe)) for member in members[1:] if member.is_seen_dead]
        what = "; ".join([what, *others])[:_TOLD]
    return Trouble(pe, what)


def _checked(words: list[Any]) -> tuple[Any, ...]:
    """The fields after the first word of a message. DecodingError if they do not match that word's schema."""
    schema = _MESSAGES.get(words[0])
    if schema is None:
        raise DecodingError("an unknown word")
    rest: tuple[Any, ...] = schema(words[1:])
    return rest


def _open_outside(store: AuthenticatedStore) -> socket.socket:
    """Listen for PEs of other hosts on the address by which they find this host, and write it to the store."""
    failure: OSError | None = None
    for address in wire.own_addresses():
        try:
            listener = wire.listen(address)
        except OSError as error:  # MASTER_ADDR may be another host's
            failure = error
            continue
        own, port = listener.getsockname()[:2]
        if not ipaddress.ip_address(own.partition("%")[0]).is_loopback:  # as this host may call itself
            store.set("detector", json.dumps([port, [address, own] if address != own else [own]]))
            return listener
        listener.close()
    raise RuntimeError(
        f"PE 0's host has no address by which PEs of other hosts could reach it ({failure}): set MASTER_ADDR to one"
    )


def _join(
    members: tuple[Member, ...], pe: int, key: Key, store: AuthenticatedStore
) -> tuple[wire.Channel, Iterator[list[Any] | None]]:
    """Connect PE ``pe`` to PE 0."""
    server = members[0]
    near = server.host_identity == host_identity()
    failures, deadline = [], time.monotonic() + _JOIN_SECONDS
    for connection in _near(server) if near else _far(server, pe, store):
        try:
            channel = wire.greet(connection, key, pe, _JOIN_SECONDS)
            messages = wire.lines(channel)
            while (words := next(messages, [])) is None and time.monotonic() < deadline:
                pass
            if words == ["welcome"]:
                return channel, messages
            failures.append("it refuses this PE")
        except (OSError, wire.ProtocolError) as error:
            failures.append(str(error))
        connection.close()
    seen = time.monotonic() + _LEAVE_SECONDS
    while near and not server.is_seen_dead and time.monotonic() < seen:
        time.sleep(0.01)  # a process that ends closes its connections first
    if server.is_seen_dead:
        raise BrokenWorldError(f"PE {pe} cannot join the world: {_lost(members, 0)}")
    why = f" ({'; '.join(failures)})" if failures else ""
    hint = "has it ended?" if near else "has it ended, or is there a firewall between their hosts?"
    raise BrokenWorldError(f"PE {pe} cannot reach PE 0, {server}{why}: {hint}")


def _near(server: Member) -> Iterator[socket.socket]:
    """A connection to PE 0's Unix socket, if PE 0's process holds that socket."""
    connection = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(f"\0{server.detector}")
        if wire.peer_of(connection)[0] == server.pid:
            yield connection
    connection.close()


def _far(server: Member, pe: int, store: AuthenticatedStore) -> Iterator[socket.socket]:
    """Connections to PE 0 on another host, by each of its addresses that answers."""
    deadline = time.monotonic() + _JOIN_SECONDS
    while not store.check(["detector"]):
        if server.is_seen_dead or time.monotonic() > deadline:
            return
        time.sleep(0.02)
    port, addresses = decode(store.get("detector"), _PLACE)
    for address in addresses:
        with contextlib.suppress(OSError):
            yield wire.prepare(socket.create_connection((address, port), _CONNECT_SECONDS))
