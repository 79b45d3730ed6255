"""A store behind an address that every PE knows beforehand. It listens on that address alone."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from triton_dist.world.deadline import within

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["open_store", "store"]

_MARK = "triton_dist/PE 0"
"""By this key a store is known to be one that a PE 0 has opened."""

_MARK_SECONDS = 1.0
_SECOND_SECONDS = 5.0  # for a store that is there already to answer
_SLACK_SECONDS = 2.0  # torch's own limit comes first where it works, since it says more


def store(host: str, port: int, seconds: float, *, serves: bool) -> Store:
    """The store at ``host:port``; with ``serves``, this process opens it there.

    If another PE 0 has opened it before, this is that one's: the rendezvous then finds out that there are two.

    Raises:
        RuntimeError: it cannot be opened, or does not answer within ``seconds``.
    """
    if serves:
        return _serve(host, port, seconds)
    try:
        return _connect(host, port, seconds)
    except TimeoutError:
        raise RuntimeError(
            f"{host}:{port}, where the PEs meet, takes connections and does not answer within {seconds:g} s"
            " (TRITON_DIST_INIT_TIMEOUT): another program listens there, or PE 0 is stopped. Set MASTER_ADDR to the"
            " host of PE 0 and MASTER_PORT to a port that is free there, the same on all PEs"
        ) from None
    except RuntimeError as error:
        raise RuntimeError(
            f"nobody answers within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT) at {host}:{port}, where the PEs meet: is"
            f" PE 0 running, and is that an address of its host? ({str(error).splitlines()[0]})"
        ) from None


def open_store(host: str, seconds: float) -> tuple[Store, int]:
    """A new store at ``host``, on a port that the system picks.

    Raises:
        RuntimeError: it cannot be opened. OSError: ``host`` is none of this host's addresses.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = _listen(host, 0)
    port = listener.getsockname()[1]
    limit = timedelta(seconds=seconds)
    fd = listener.detach()  # the store's own from now on
    return TCPStore(host, port, None, True, limit, wait_for_workers=False, master_listen_fd=fd), port


def _connect(host: str, port: int, seconds: float) -> Store:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    return within(seconds + _SLACK_SECONDS, lambda: TCPStore(host, port, None, False, limit, wait_for_workers=False))


def _serve(host: str, port: int, seconds: float) -> Store:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    try:
        fd = _listen(host, port).detach()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise _cannot_open(host, port, str(error)) from None
        fd = None
    try:
        # Multi-tenant: init_process_group() may open "its own" at the same place in this process, and gets this one; or
        # it has, and we get that.
        opened: Store = within(
            seconds + _SLACK_SECONDS,
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
    """The store there, if another PE 0 has opened it."""
    try:
        found = _connect(host, port, _SECOND_SECONDS)
        until = time.monotonic() + _MARK_SECONDS
        while not within(_SECOND_SECONDS, lambda: found.check([_MARK])):
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
    except (RuntimeError, TimeoutError):
        return None
    return found


def _cannot_open(host: str, port: int, reason: str) -> RuntimeError:
    return RuntimeError(
        f"PE 0, process {os.getpid()}, cannot open the meeting point of the PEs at {host}:{port} ({reason}): set"
        " MASTER_ADDR to an address of PE 0's host and MASTER_PORT to a port that is free there, the same on all PEs"
    )


def _listen(host: str, port: int) -> socket.socket:
    """Listens on the address that ``host`` stands for: on all only if other hosts know it by another one."""
    failure = OSError(f"{host} stands for no address")
    for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(place[0])
        named = ipaddress.ip_address(address.partition("%")[0]).is_loopback and not _means_loopback(host)
        try:
            return socket.create_server(("", port) if named else place[:2], family=family, backlog=1024)
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:  # not one of its other addresses, which would hide that there are two
                break
    raise failure


def _means_loopback(host: str) -> bool:
    """Whether every host understands it so. (A host's own name may stand for 127.0.1.1 on that host alone.)"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
