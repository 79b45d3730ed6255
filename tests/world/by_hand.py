"""PEs that a test starts one by one, at a store of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from limits import INIT_SECONDS
from started import Started

from triton_dist.testing.launch import pe_environment

PROGRAM = "import triton_dist\nwith triton_dist.init() as world: print(world)"
ENVIRONMENT = {
    "TRITON_DIST_WORLD": "cpu",
    "TRITON_DIST_SYMMETRIC_SIZE": "16M",
    "TRITON_DIST_INIT_TIMEOUT": INIT_SECONDS,
}


@contextmanager
def by_hand(
    ranks: Sequence[int],
    n_pes: int,
    port: int,
    program: str = PROGRAM,
    arguments: Sequence[Sequence[str]] = (),
    *,
    agent: bool = False,
    **env: str,
) -> Iterator[list[Started]]:
    """PEs that are told to meet at ``port``; with ``agent`` as torchrun's agent tells them, whose store is there.

    Each of them runs the program with its own ones of the ``arguments``, if there are some.
    """
    pes: list[Started] = []
    try:
        for i, rank in enumerate(ranks):
            launch = pe_environment(rank, n_pes, port)
            if not agent:
                launch = {name: value for name, value in launch.items() if not re.match("LOCAL_|TORCHELASTIC", name)}
            pes.append(Started(program, arguments[i] if arguments else (), launch | ENVIRONMENT | env))
        yield pes
    finally:
        for pe in pes:
            pe.close()
