"""A process of an ``oshrun`` that keeps the place of a PE: a program of its own, which imports nothing of the package.

Arguments: an abstract Unix socket, where PE 0 listens.
"""

import json
import os
import select
import socket
import sys


def main() -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + sys.argv[1])
        place = {name: value for name, value in os.environ.items() if name[:5] in ("OMPI_", "OPAL_", "ORTE_", "PMIX_")}
        connection.sendall(json.dumps(place).encode() + b"\n")
        answer = connection.makefile().readline().split()
    if len(answer) != 2:  # PE 0 has ended
        return 1
    pid, started = map(int, answer)
    try:
        process = os.pidfd_open(pid)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            if int(file.read().rpartition(")")[2].split()[19]) == started:
                select.select([process], [], [])
    except (ProcessLookupError, FileNotFoundError):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
