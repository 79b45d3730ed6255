"""A job of Open MPI for processes that its launcher did not start, such as torchrun's.

The PMIx server of ``oshrun`` knows the processes of a job. PE 0 starts an ``oshrun`` of placeholders, one for each PE.
A placeholder never calls Open MPI: it hands over the variables by which PMIx knows its place, and waits until the PE
that took this place has ended. All of this is on one host: over several, ``oshrun`` itself starts the program.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from triton_dist import environment
from triton_dist.bootstrap.framing import peer_of
from triton_dist.bootstrap.launch import Launch
from triton_dist.decoding import DecodingError, decode, mapping, matching, sequence, text

__all__ = ["enter"]

_OURS = r"(OMPI|OPAL|ORTE|PMIX)_[A-Za-z0-9_]{1,120}"
_PLACE = mapping(matching(_OURS, "a variable of Open MPI"), text(4096), 256)
_PLACE_BYTES = 1 << 18
_PLACEHOLDER = Path(__file__).with_name("placeholder.py")


def enter(launch: Launch) -> None:
    """Give this process a place in a job of Open MPI, if its launcher has not. *Collective*; before the library starts.

    Raises:
        RuntimeError: only some PEs have a place; PEs are on several hosts; ``oshrun`` is missing or fails.
    """
    has_place = [text == "True" for text in launch.exchange("has a place", str("PMIX_NAMESPACE" in os.environ))]
    if all(has_place):
        return
    if any(has_place):
        without = has_place.index(False)
        raise RuntimeError(
            f"PE {has_place.index(True)} was started by a launcher with PMIx, and PE {without} was not: start all PEs"
            " with oshrun or mpirun, or all with torchrun"
        )
    for member in launch.members:
        first = launch.members[0]
        if member.host_identity != first.host_identity:
            raise RuntimeError(
                f"PE 0 is on {first.host} and PE {member.pe} on {member.host}: over several hosts"
                " TRITON_DIST_CPU_TRANSPORT=oshmem needs Open MPI's launcher; start the program with oshrun or mpirun"
            )
    all_places: list[dict[str, str]] = _start(launch) if launch.pe == 0 else []
    said = launch.exchange("places", json.dumps(all_places))[0]
    try:
        places = decode(said, sequence(_PLACE, launch.n_pes), limit=launch.n_pes * _PLACE_BYTES)
    except DecodingError as error:
        raise RuntimeError(f"the places that PE 0 has got from oshrun are invalid: {error}") from None
    os.environ.update(places[launch.pe])


def _start(launch: Launch) -> list[dict[str, str]]:
    """Start an ``oshrun``; the variables of each place, by rank. PE 0 alone."""
    command = shutil.which("oshrun")
    if command is None:
        raise RuntimeError(
            "TRITON_DIST_CPU_TRANSPORT=oshmem needs Open MPI's oshrun in PATH: install Debian's or Ubuntu's openmpi-bin"
        )
    seconds = environment.get("TRITON_DIST_INIT_TIMEOUT")
    name = f"triton_dist/{os.geteuid()}/oshmem/{secrets.token_hex(16)}"
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    local = ["--host", f"localhost:{launch.n_pes}", "--bind-to", "none", "-n", str(launch.n_pes)]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_"))}
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryFile() as output:
        server.bind("\0" + name)
        server.listen(launch.n_pes)
        oshrun = subprocess.Popen(
            [command, *as_root, *local, sys.executable, "-I", "-S", str(_PLACEHOLDER), name],
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C is for the PEs, whose end it awaits
        )
        found: dict[int, tuple[dict[str, str], socket.socket]] = {}
        try:
            deadline = time.monotonic() + seconds
            while len(found) < launch.n_pes:
                connection = _next(server, oshrun, deadline)
                if connection is None:
                    output.seek(0)
                    said = output.read(2000).decode(errors="replace").strip()
                    raise RuntimeError(
                        f"oshrun has not started {launch.n_pes} processes within {seconds:g} s"
                        f" (TRITON_DIST_INIT_TIMEOUT), status {oshrun.poll()}: {said or 'it says nothing'}"
                    )
                rank, place = _place_of(connection, deadline)
                if not 0 <= rank < launch.n_pes or rank in found:
                    raise RuntimeError(f"oshrun has started rank {rank} of {launch.n_pes} in vain")
                found[rank] = place, connection
        except BaseException:
            oshrun.kill()
            raise
        for rank, (_, connection) in found.items():
            member = launch.members[rank]
            with connection:
                connection.sendall(f"{member.pid} {member.started}\n".encode())
        return [found[rank][0] for rank in range(launch.n_pes)]


def _next(server: socket.socket, oshrun: subprocess.Popen[bytes], deadline: float) -> socket.socket | None:
    """The next placeholder's connection; None when there will be none."""
    server.settimeout(0.1)
    while time.monotonic() < deadline and oshrun.poll() is None:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        if peer_of(connection)[1] == os.geteuid():
            return connection
        connection.close()
    return None


def _place_of(connection: socket.socket, deadline: float) -> tuple[int, dict[str, str]]:
    """A placeholder's rank and variables."""
    connection.settimeout(max(0.1, deadline - time.monotonic()))
    with connection.makefile("rb") as file:
        line = file.readline(_PLACE_BYTES)
    try:
        place: dict[str, str] = decode(line, _PLACE, limit=_PLACE_BYTES)
        return int(place["OMPI_COMM_WORLD_RANK"]), place
    except (DecodingError, KeyError, ValueError) as error:
        raise RuntimeError(f"a process of oshrun has no place in its job: {error}") from None
