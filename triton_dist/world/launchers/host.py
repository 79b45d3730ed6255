"""A meeting point on one host that needs no port known beforehand, no file, and nothing to clean up.

PE 0 opens a store on a port that the system picks, and tells it to whoever asks at a socket in Linux's abstract
namespace, whose name all PEs can work out: it holds the launching process, so two launches on one host do not meet, and
it is gone when PE 0 is.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from triton_dist.world.process import Process

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["launching_process", "store"]


def store(name: str, pe: int, seconds: float) -> Store:
    """The store of the launch ``name`` on this host.

    Raises:
        RuntimeError: PE 0 does not open it within ``seconds``.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address = f"\0triton_dist/{os.getuid()}/{name}"
    if pe == 0:
        opened = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=seconds), wait_for_workers=False)
        _tell(address, opened.port)
        return opened
    server, port = _ask(address, seconds)
    while True:
        try:
            opened = TCPStore("127.0.0.1", port, None, False, timedelta(seconds=2), wait_for_workers=False)
        except RuntimeError:
            if not server.is_running():
                raise RuntimeError(f"PE 0 is lost: its process {server.pid} ended before all PEs had come") from None
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


def _tell(address: str, port: int) -> None:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(address)
    except OSError:
        raise RuntimeError(
            "another process of this launch says that it is PE 0: two PEs were given the same number"
        ) from None
    server.listen(128)

    def answer() -> None:
        while True:
            client, _ = server.accept()
            with client:
                if _process_and_user(client)[1] in (os.getuid(), 0):
                    client.sendall(struct.pack("!I", port))

    threading.Thread(target=answer, name="triton_dist meeting point", daemon=True).start()


def _ask(address: str, seconds: float) -> tuple[Process, int]:
    """PE 0's process, and the port of its store."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                client.connect(address)
                pid, user = _process_and_user(client)
                if user in (os.getuid(), 0) and len(answer := client.recv(4, socket.MSG_WAITALL)) == 4:
                    return Process.find(pid) or Process(pid, 0), int(struct.unpack("!I", answer)[0])
            except OSError:
                pass  # nobody is there yet
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"PE 0 did not come within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT): was it started, on this host, and"
                " did it fail?"
            )
        time.sleep(0.02)


def _process_and_user(peer: socket.socket) -> tuple[int, int]:
    """Who is at the other end of a Unix socket: anyone may bind an abstract name."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _ = struct.unpack("3i", credentials)
    return int(pid), int(user)
