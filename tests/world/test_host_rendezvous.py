"""Where PEs that mpirun or srun has started find PE 0's store on one host."""

from __future__ import annotations

import os
import socket
import uuid

from limits import HANG_SECONDS

from triton_dist.bootstrap.launchers import host


def test_pes_that_end_while_they_ask_leave_the_others_an_answer() -> None:
    address = f"\0triton_dist test {uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(128)
        gone = []
        for _ in range(20):  # all have hung up before the first is answered
            client = socket.socket(socket.AF_UNIX)
            client.connect(address)
            gone.append(client)
        for client in gone:
            client.close()
        host._tell(server, 4321)
        process, port = host._ask(address, HANG_SECONDS)
        assert (process.pid, port) == (os.getpid(), 4321)
