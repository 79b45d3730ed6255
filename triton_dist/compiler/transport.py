"""Which device library kernels are compiled for, and for how many PEs.

``TRITON_DIST_TRANSPORT`` says so, or the world, which knows what its PEs can reach (``auto``). Before there is a world,
``auto`` is the transport that works in every world of the GPU's vendor. The name is part of Triton's cache key, so a
kernel that was compiled for one transport is compiled again when the world chose another.

The world's choice holds for the process. :func:`using` holds for the context that calls it (a thread, or an asyncio
task), and for the compilations that Triton makes elsewhere on its behalf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType

from triton_dist import environment
from triton_dist.process_state import of_process

__all__ = ["choose", "current", "n_pes", "override", "pin", "pretends_hosts", "using"]

_BEFORE_A_WORLD = {"cuda": "nvshmem", "hip": "p2p"}


@dataclass(frozen=True)
class _Choice:
    transport: str | None
    n_pes: int
    pretends_hosts: bool


class Chosen:
    """The world's choice. One for each process: it holds for compilations in all threads, of whatever kernel."""

    by_world = _Choice(None, 0, False)  # replaced as a whole, so that another thread never sees half of a change


_override: ContextVar[Mapping[str, str]] = ContextVar("triton_dist.transport", default=MappingProxyType({}))
"""By Triton's backend; empty when nothing but the world decides."""


def choose(name: str | None, n_pes: int = 0, *, pretends_hosts: bool = False) -> None:
    """The world's choice, how many PEs it has, and whether its hosts are pretended; None when the world ends."""
    of_process(Chosen).by_world = _Choice(name, n_pes, pretends_hosts)


def n_pes() -> int:
    """How many PEs the present world has; 0 when there is none."""
    return of_process(Chosen).by_world.n_pes


def pretends_hosts() -> bool:
    """Whether kernels ask which PEs are reached by load and store: where the world's hosts are pretended."""
    return of_process(Chosen).by_world.pretends_hosts


@contextmanager
def using(name: str) -> Iterator[None]:
    """Launches and compilations inside use transport ``name``, whatever else was chosen (to compare transports).

    Other threads keep what they have, also those that are started inside.
    """
    token = _override.set(dict.fromkeys(_BEFORE_A_WORLD, name))
    try:
        yield
    finally:
        _override.reset(token)


def pin() -> None:
    """In this context :func:`current` keeps its present answers, whatever a world chooses later."""
    _override.set({backend: current(backend) for backend in _BEFORE_A_WORLD})


override = _override.get
"""What decides in this context instead of the world and ``TRITON_DIST_TRANSPORT``; empty: nothing."""


def current(backend: str = "cuda") -> str:
    """A choice of ``TRITON_DIST_TRANSPORT`` but auto, for kernels of Triton's backend ``"cuda"`` or ``"hip"``.

    Raises:
        ValueError: ``TRITON_DIST_TRANSPORT`` is none of them.
    """
    override = _override.get()
    asked: str = environment.get("TRITON_DIST_TRANSPORT")
    if override:
        return override[backend]
    if asked != "auto":
        return asked
    return of_process(Chosen).by_world.transport or _BEFORE_A_WORLD[backend]
