"""``triton-dist-opt`` for lit: forks of one process run it, since importing Triton takes ten times as long as a test.

As a program, ``opt_forks.py SOCKET ARGUMENTS…`` does what ``opt.py ARGUMENTS…`` does. It hands its standard files and
its arguments to the process that listens, ``opt_forks.py --listen SOCKET``, and ends with the status of the fork.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def ask(path: str, arguments: list[str]) -> int:
    """The exit status of a fork that runs with ``arguments`` and with the files of this process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, ["\0".join([os.getcwd(), *arguments]).encode()], [0, 1, 2])
        answer = connection.recv(16)
    return int(answer) if answer else 1  # a fork that was killed says nothing


def listen(path: str) -> None:
    """Answer until this process is ended."""
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../triton_dist/triton_api/opt.py")
    main = runpy.run_path(tool)["main"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{path}.new")
        listener.listen()
        os.rename(f"{path}.new", path)  # where it is found, it listens
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection, main)


def _answer(connection: socket.socket, main: Callable[[list[str]], int]) -> NoReturn:
    message, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    directory, *arguments = message.decode().split("\0")
    os.chdir(directory)
    status: object = 1
    try:
        status = main(arguments)
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(str(status or 0).encode())
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "--listen":
        listen(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
