"""A store at an address that every PE knows beforehand. It listens on that address only."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import resource
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from triton_dist.bootstrap.deadline import within

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["client", "listen", "means_loopback", "open_store", "serve", "store"]

_MARK = "triton_dist/PE 0"
"""The key that marks a store as opened by a PE 0."""

_MARK_SECONDS = 1.0
_CONNECT_SECONDS = 1.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.01, 0.25  # between two attempts to connect, doubled each time
_GREETING_SECONDS = 0.01  # within which a server on a near host has said something, if it speaks first
_GREETING_BYTES = 60
_NO_DESCRIPTORS = errno.EMFILE, errno.ENFILE
_STORES_DESCRIPTORS = 12  # a store and its client take fewer
_SECOND_SECONDS = 5.0  # time limit for the answer of a store that exists already
_SLACK_SECONDS = 2.0  # torch's own time limit, if it works, comes first: its error says more


def store(host: str, port: int, seconds: float, *, serves: bool) -> Store:
    """The store at ``host:port``; with ``serves``, this process opens it there.

    If another PE 0 has opened it before, this is its store: the rendezvous then detects that there are two.

    Raises:
        RuntimeError: the store cannot be opened, or does not answer within ``seconds``.
    """
    if serves:
        return _serve(host, port, seconds)
    until = time.monotonic() + seconds
    # Asked before torch's client: this one goes on for longer than it was told, and it prints a page of C++ frames for
    # each connection that is refused.
    if why := _why_no_connection(host, port, until):
        raise _no_answer(host, port, seconds, why)
    try:
        return client(host, port, max(until - time.monotonic(), _CONNECT_SECONDS))
    except TimeoutError:
        if why := _why_no_connection(host, port, 0.0):  # it was there, and has ended
            raise _no_answer(host, port, seconds, why) from None
        raise RuntimeError(
            f"the rendezvous store at {host}:{port} accepts connections, but does not answer within {seconds:g} s"
            " (TRITON_DIST_INIT_TIMEOUT): another program listens there, or PE 0 is stopped. Set MASTER_ADDR to the"
            " host of PE 0 and MASTER_PORT to a port that is free there, the same on all PEs"
        ) from None
    except RuntimeError as error:
        raise _no_answer(host, port, seconds, str(error).splitlines()[0]) from None


def _no_answer(host: str, port: int, seconds: float, why: str) -> RuntimeError:
    return RuntimeError(
        f"no rendezvous store answers at {host}:{port} within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT): is"
        f" PE 0 running, and is that an address of its host? ({why})"
    )


def _why_no_connection(host: str, port: int, until: float) -> str:
    """Why nothing listens at ``host:port``, asked until then, by the monotonic clock; empty once something does."""
    try:
        left = max(until - time.monotonic(), 0.0)
        return within(left + _SLACK_SECONDS, lambda: _ask(host, port, until))
    except TimeoutError:
        return "its name takes too long to resolve"


def _ask(host: str, port: int, until: float) -> str:
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
                _refuse_greeting(connection, host, port)
            return ""
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                raise RuntimeError(
                    f"cannot connect to the rendezvous store at {host}:{port}: too many files are open (ulimit -n)"
                ) from None
            why = str(error)
        if time.monotonic() + pause > until:
            return why
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_SECONDS)


def _refuse_greeting(connection: socket.socket, host: str, port: int) -> None:
    """RuntimeError if the other side speaks first, as many servers do, and no store does."""
    connection.settimeout(_GREETING_SECONDS)
    try:
        said = connection.recv(_GREETING_BYTES)
    except TimeoutError:
        return
    if said:
        raise RuntimeError(
            f"another program listens at {host}:{port}, which says {said.decode(errors='replace').strip()!r}: set"
            " MASTER_PORT to a port that is free on the host of PE 0, the same on all PEs"
        )


def open_store(host: str, seconds: float) -> tuple[Store, int]:
    """A new store at ``host``, on a port that the system picks.

    Raises:
        RuntimeError: the store cannot be opened. OSError: ``host`` is not an address of this host.
    """
    listener = listen(host)
    port = listener.getsockname()[1]
    return serve(listener, host, seconds), port


def listen(host: str) -> socket.socket:
    """A socket at ``host``, on a port that the system picks. PEs may connect from now on; :func:`serve` answers them.

    Raises:
        OSError: ``host`` is not an address of this host.
    """
    return _listen(host, 0)


def serve(listener: socket.socket, host: str, seconds: float) -> Store:
    """A new store that owns ``listener``, of :func:`listen`. It starts a thread.

    Raises:
        RuntimeError: the store cannot be opened.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port, limit = listener.getsockname()[1], timedelta(seconds=seconds)
    fd = listener.detach()  # now owned by the store
    return TCPStore(host, port, None, True, limit, wait_for_workers=False, master_listen_fd=fd)


def client(host: str, port: int, seconds: float) -> Store:
    """A client of the store at ``host:port``.

    Raises:
        RuntimeError: nothing listens there. TimeoutError: it does not answer within ``seconds`` and two more.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    return _within(seconds, port, lambda: TCPStore(host, port, None, False, limit, wait_for_workers=False))


def _within(seconds: float, port: int, call: Callable[[], Store]) -> Store:
    """A call of torch's that connects to ``port``, with its own time limit of ``seconds``, which may not work."""
    before = set(os.listdir("/proc/self/fd"))

    def cut() -> None:
        for descriptor in set(os.listdir("/proc/self/fd")) - before:
            with contextlib.suppress(OSError):  # it is no socket, or closed
                connection = socket.socket(fileno=int(descriptor))
                try:
                    if connection.getpeername()[1] == port:
                        connection.shutdown(socket.SHUT_RDWR)
                finally:
                    connection.detach()  # it is torch's

    return within(seconds + _SLACK_SECONDS, call, cut)


def _serve(host: str, port: int, seconds: float) -> Store:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    if _few_descriptors():
        raise _cannot_open(host, port, "")
    try:
        fd = _listen(host, port).detach()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise _cannot_open(host, port, str(error), error) from None
        fd = None
    try:
        # Multi-tenant: if init_process_group() opens a store at the same address in this process, before or after this
        # one, both get the same store.
        opened: Store = _within(
            seconds,
            port,
            lambda: TCPStore(
                host, port, None, True, limit, wait_for_workers=False, multi_tenant=True, master_listen_fd=fd
            ),
        )
    except (RuntimeError, TimeoutError) as error:
        if fd is None and (others := _of_another(host, port)) is not None:
            return others
        reason = "another program listens there" if fd is None else str(error).splitlines()[0]
        raise _cannot_open(host, port, reason) from None
    opened.set(_MARK, str(os.getpid()))
    return opened


def _of_another(host: str, port: int) -> Store | None:
    """The store at ``host:port`` if another PE 0 has opened it; else None."""
    try:
        found = client(host, port, _SECOND_SECONDS)
        until = time.monotonic() + _MARK_SECONDS
        while not within(_SECOND_SECONDS, lambda: found.check([_MARK])):
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
    except (RuntimeError, TimeoutError):
        return None
    return found


def _cannot_open(host: str, port: int, reason: str, error: OSError | None = None) -> RuntimeError:
    if _few_descriptors() or (error is not None and error.errno in _NO_DESCRIPTORS):
        return RuntimeError(
            f"PE 0, process {os.getpid()}, cannot open the rendezvous store at {host}:{port}: too many files are open"
            " (ulimit -n)"
        )
    return RuntimeError(
        f"PE 0, process {os.getpid()}, cannot open the rendezvous store at {host}:{port} ({reason}): set"
        " MASTER_ADDR to an address of PE 0's host and MASTER_PORT to a port that is free there, the same on all PEs"
    )


def _few_descriptors() -> bool:
    """Whether a store may find too few: torch says so in other words, or ends the process."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return most != resource.RLIM_INFINITY and most - len(os.listdir("/proc/self/fd")) < _STORES_DESCRIPTORS
    except OSError:
        return True


def _listen(host: str, port: int) -> socket.socket:
    """A socket on the address of ``host``; on all interfaces if only this host resolves ``host`` to loopback."""
    failure = OSError(f"{host} has no address")
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(place[0])
        named = ipaddress.ip_address(address.partition("%")[0]).is_loopback and not means_loopback(host)
        try:
            return socket.create_server(("", port) if named else place[:2], family=family, backlog=1024)
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:  # trying its next address would hide that two processes are PE 0
                break
    raise failure


def means_loopback(host: str) -> bool:
    """Whether ``host`` is loopback on every host. (A host's own name may be 127.0.1.1 on that host only.)"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    with contextlib.suppress(OSError):  # the other spellings of numbers, as 127.1
        return ipaddress.IPv4Address(socket.inet_aton(host)).is_loopback
    name = host.lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost")
