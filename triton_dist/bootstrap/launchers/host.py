"""A rendezvous on one host that needs no port known beforehand, no file, and nothing to clean up.

PE 0 opens a store on a port that the system picks, and tells it to each PE that asks at a socket in Linux's abstract
namespace, whose name all PEs can work out: it holds the launching process, so two launches on one host do not meet, and
it is gone when PE 0 is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from triton_dist.bootstrap.framing import peer_of
from triton_dist.bootstrap.launchers import tcp
from triton_dist.bootstrap.process import Process

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["launching_process", "store"]


def store(name: str, pe: int, seconds: float) -> Store:
    """The store of the launch ``name`` on this host.

    Raises:
        RuntimeError: PE 0 does not open it within ``seconds``.
    """
    # A digest, since a launcher's name may exceed the length of an address.
    address = f"\0triton_dist/{os.geteuid()}/{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()}"
    if pe == 0:
        server_socket = _bind(address)
        opened, port = tcp.open_store("127.0.0.1", seconds)
        _tell(server_socket, port)
        return opened
    server, port = _ask(address, seconds)
    while True:
        try:
            opened = tcp.client("127.0.0.1", port, 2.0)
        except (RuntimeError, TimeoutError):
            if not server.is_running():
                raise RuntimeError(f"PE 0 is lost: its process {server.pid} ended before all PEs had arrived") from None
        else:
            opened.set_timeout(timedelta(seconds=seconds))
            return opened


def launching_process(variable: str) -> Process:
    """The process that started this launch: the nearest ancestor without the launcher's ``variable``."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if not any(entry.startswith(variable.encode() + b"=") for entry in file.read().split(b"\0")):
                    break
            pid = Process.parent_of(pid)
        except OSError:  # not ours: a daemon of another user
            break
    return Process.find(pid) or Process(pid, 0)


def _bind(address: str) -> socket.socket:
    """PE 0's socket of this name. Only one process at a time can bind it."""
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(address)
    except OSError as error:
        server.close()
        raise RuntimeError(_who_is_there(address, error)) from None
    server.listen(128)
    return server


def _who_is_there(address: str, error: OSError) -> str:
    """Why PE 0 cannot bind the name."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(address)
            pid, user = peer_of(client)
        except OSError:
            return f"PE 0, process {os.getpid()}, cannot open the rendezvous socket of this launch ({error})"
    if user != os.geteuid():
        return (
            f"process {pid} of user {user} has bound the rendezvous socket of this launch: until that process ends, set"
            " MASTER_ADDR and MASTER_PORT, and start the PEs with torchrun or by hand"
        )
    return f"two processes are PE 0: process {pid} and process {os.getpid()}. Each PE needs a number of its own"


def _tell(server: socket.socket, port: int) -> None:
    os.register_at_fork(after_in_child=lambda: socket.close(server.detach()) if server.fileno() >= 0 else None)

    def answer() -> None:
        while server.fileno() >= 0:
            try:
                client, _ = server.accept()
            except OSError:  # closed, or this process has too many open files for the moment
                time.sleep(0.02)
                continue
            # The PE that asked may have been killed meanwhile; the others' questions are still to be answered.
            with client, contextlib.suppress(OSError):
                if peer_of(client)[1] in (os.geteuid(), 0):
                    client.sendall(struct.pack("!H", port))

    threading.Thread(target=answer, name="triton_dist rendezvous", daemon=True).start()


def _ask(address: str, seconds: float) -> tuple[Process, int]:
    """PE 0's process, and the port of its store."""
    deadline = time.monotonic() + seconds
    stranger = ""
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                client.connect(address)
                pid, user = peer_of(client)
                if user not in (os.geteuid(), 0):
                    stranger = f" (process {pid} of user {user} has bound its rendezvous socket)"
                elif len(answer := client.recv(2, socket.MSG_WAITALL)) == 2:
                    return Process.find(pid) or Process(pid, 0), int(struct.unpack("!H", answer)[0])
            except OSError:
                pass  # PE 0 does not listen yet
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"PE 0 did not arrive within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT){stranger}: was it started on"
                " this host, and did it fail?"
            )
        time.sleep(0.02)
