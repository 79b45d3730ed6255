"""Who is still there: every PE is connected to PE 0 by TCP, and the operating system tells when a connection ends.

A process that is killed or crashes cannot say so, but its kernel closes its connections at once, and a host that is
gone is noticed by keep-alive probes. PE 0 tells the others. So the loss of a PE is known everywhere in milliseconds, or
within ten seconds when a host dies; and watching costs no processor time: one thread a PE, which sleeps.

Whoever waits for a lost PE in Python asks :meth:`Watch.raise_trouble`. Whoever waits in a kernel, or in a library,
cannot raise: the watch leaves the process some seconds to end by itself, then says which PE is lost and where this one
is, and ends it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from triton_dist.world import last_words, wire
from triton_dist.world.base import BrokenWorldError
from triton_dist.world.check_in import Member
from triton_dist.world.interrupts import Interrupts
from triton_dist.world.process import host_identity

__all__ = ["Trouble", "Watch"]

GRACE_SECONDS = 4.0
"""Between the news that a PE is lost, or a Ctrl-C, and the end of a process that does not end by itself."""

_TRACEBACK_SECONDS = 0.5  # how long the word of a failure waits for its traceback to be printed first
_JOIN_SECONDS = 30.0  # for a PE that has checked in to connect


@dataclass(frozen=True)
class Trouble:
    """Why the world cannot go on: the PE at whose fault, and what became of it."""

    pe: int
    what: str

    def __str__(self) -> str:
        return f"PE {self.pe} {self.what}"


class Watch:
    """One PE's part. Make it before the check-in, :meth:`begin` after it, :meth:`end` it with the world."""

    trouble: Trouble | None = None

    def __init__(self, pe: int) -> None:
        self.pe = pe
        self._on_trouble: Callable[[Trouble], None] | None = None
        self._token = secrets.token_hex(16)
        self._listener = wire.listen() if pe == 0 else None
        self._members: tuple[Member, ...] = ()
        self._peers: dict[int, socket.socket] = {}  # of PE 0: all others; of the others: PE 0
        self._gone: set[int] = set()  # those who said good-bye
        self._lock = threading.RLock()
        self._gave_up = False
        self._failure: tuple[float, str] | None = None  # of this PE: when the others hear of it, and what
        self._deadline: float | None = None  # when this process is ended
        self._ending = False
        self._ended = False
        self._process = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._interrupts = Interrupts()
        self._thread = threading.Thread(target=self._run, name="triton_dist watch", daemon=True)
        os.register_at_fork(after_in_child=self._forget)  # a child must not keep its parent's connections open

    @property
    def address(self) -> tuple[str, ...]:
        """PE 0: the word that lets in, the port, and this host's addresses. For its :class:`Member`."""
        if self._listener is None:
            return ()
        return (self._token, str(self._listener.getsockname()[1]), *wire.own_addresses())

    def begin(self, members: tuple[Member, ...]) -> None:
        """Connect, and watch from now on. *Collective.*

        Raises:
            BrokenWorldError: PE 0 has ended, or cannot be reached.
        """
        self._members = members
        self._begun = time.monotonic()
        if self._listener is None:
            connection, messages = _join(members[0], self.pe)
            self._add(0, connection, messages)
        else:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
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
            last_words.say(f"PE {self.pe}: interrupted at {last_words.place(trace)}")
            self.fail(last_words.of(error))
        elif self.trouble is not None and self.trouble.what == last_words.INTERRUPTED:
            last_words.say(f"PE {self.pe}: ends at {last_words.place(trace)}, because {self.trouble}")
        else:
            self.fail(last_words.of(error))
            self._previous_hook(kind, error, trace)
        self._tell_failure()

    # ---- what it learns

    def _learn(self, trouble: Trouble) -> None:
        """The world is broken: remember it, and pass it on."""
        with self._lock:
            if self.trouble is not None or self._ending:
                return
            self.trouble = trouble
            if not self._gave_up:
                self._deadline = time.monotonic() + GRACE_SECONDS
            for pe, peer in self._peers.items():
                if pe != trouble.pe:
                    wire.say(peer, "broken", trouble.pe, trouble.what)
            tell = self._on_trouble
        if tell is not None:
            tell(trouble)

    def _hear(self, pe: int, connection: socket.socket, messages: Iterator[list[Any] | None]) -> None:
        for words in messages:
            if words is None:
                return
            if words[0] == "bye":
                self._gone.add(pe)
            elif words[0] == "broken":
                self._learn(Trouble(int(words[1]), str(words[2])))
        self._selector.unregister(connection)
        with self._lock:
            self._peers.pop(pe, None)
        connection.close()
        if pe not in self._gone:
            self._learn(_lost(self._members[pe]))

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError, StopIteration, TypeError, ValueError, IndexError):
            connection = wire.prepare(self._listener.accept()[0])
            messages = wire.lines(connection)
            word, pe = next(messages) or ("", 0)
            if not secrets.compare_digest(str(word), self._token) or not 0 < int(pe) < len(self._members):
                connection.close()
                return
            wire.say(connection, "welcome")
            self._add(int(pe), connection, messages)
            if self.trouble is not None:
                wire.say(connection, "broken", self.trouble.pe, self.trouble.what)

    def _add(self, pe: int, connection: socket.socket, messages: Iterator[list[Any] | None]) -> None:
        connection.setblocking(False)  # one that takes nothing must not hold us
        with self._lock:
            self._peers[pe] = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(pe, connection, messages))

    # ---- the thread

    def _run(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            now = time.monotonic()
            if self._failure is not None and now > self._failure[0]:
                self._tell_failure()
            if self._deadline is not None and now > self._deadline:
                last_words.end_process(f"PE {self.pe}: {self.trouble}. So this process", 1)
            if self._interrupts.ignored_for() > GRACE_SECONDS:
                self._learn(Trouble(self.pe, last_words.INTERRUPTED))
                last_words.end_process(f"PE {self.pe}: interrupted (Ctrl-C). This process", 130)
            for pe in self._not_joined():
                late = now - self._begun > _JOIN_SECONDS
                if self._members[pe].is_seen_dead or late:
                    self._learn(_lost(self._members[pe]))
        self._close()

    def _patience(self) -> float | None:
        """How many seconds the thread may sleep, if nothing happens."""
        now = time.monotonic()
        times = [] if self._failure is None else [self._failure[0]]
        times += [] if self._deadline is None else [self._deadline]
        if self._interrupts.ignored_for() > 0:
            times.append(now + GRACE_SECONDS / 8)
        if self._not_joined():
            times.append(now + 0.5)
        return max(0.0, min(times) - now) + 0.01 if times else None

    def _not_joined(self) -> list[int]:
        if self._listener is None or self.trouble is not None:
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
            for peer in self._peers.values():
                peer.close()
            if self._listener is not None:
                self._listener.close()
            if not self._interrupts.listening:
                os.close(self._wake_read)
                os.close(self._wake_write)

    def _forget(self) -> None:
        """In a child of fork()."""
        if not self._ended:
            self._ended = self._ending = True
            self._interrupts.stop()
            for peer in (*self._peers.values(), *filter(None, [self._listener])):
                with contextlib.suppress(OSError):
                    socket.close(peer.detach())


def _lost(member: Member) -> Trouble:
    return Trouble(member.pe, f"is lost: its {member} was killed, crashed or just ended")


def _join(server: Member, pe: int) -> tuple[socket.socket, Iterator[list[Any] | None]]:
    """Connect PE ``pe`` to PE 0."""
    token, port, *addresses = server.watch
    if server.host_identity == host_identity():
        addresses = ["127.0.0.1"]
    for connection in wire.connect(addresses, int(port)):
        connection.settimeout(_JOIN_SECONDS)
        wire.say(connection, token, pe)
        messages = wire.lines(connection)
        if next(messages, None) == ["welcome"]:
            return connection, messages
        connection.close()
    if server.is_seen_dead:
        raise BrokenWorldError(f"PE {pe} cannot join the world: {_lost(server)}")
    raise BrokenWorldError(
        f"PE {pe} cannot reach PE 0, {server}, at port {port} of {' or '.join(addresses)}: has it ended, or is there a"
        " firewall between their hosts?"
    )
