"""Which device library kernels are compiled for, and for how many PEs.

``TRITON_DIST_TRANSPORT`` says so, or the world, which knows what its PEs can reach (``auto``). Before there is a world,
``auto`` is the transport that works in every world of the GPU's vendor. The name is part of Triton's cache key, so a
kernel that was compiled for one transport is compiled again when the world chose another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from triton_dist import environment

__all__ = ["choose", "current", "n_pes", "using"]

_BEFORE_A_WORLD = {"cuda": "nvshmem", "hip": "p2p"}

_of_world: str | None = None
_n_pes = 0
_override: str | None = None


def choose(name: str | None, n_pes: int = 0) -> None:
    """The world's choice, and how many PEs it has; None when the world ends."""
    global _of_world, _n_pes
    _of_world, _n_pes = name, n_pes


def n_pes() -> int:
    """How many PEs the present world has; 0 when there is none."""
    return _n_pes


@contextmanager
def using(name: str) -> Iterator[None]:
    """Launches and compilations inside use transport ``name``, whatever else was chosen (to compare transports)."""
    global _override
    earlier, _override = _override, name
    try:
        yield
    finally:
        _override = earlier


def current(backend: str = "cuda") -> str:
    """A choice of ``TRITON_DIST_TRANSPORT`` but auto, for kernels of Triton's backend ``"cuda"`` or ``"hip"``.

    Raises:
        ValueError: ``TRITON_DIST_TRANSPORT`` is none of them.
    """
    asked: str = environment.get("TRITON_DIST_TRANSPORT")
    if _override is not None:
        return _override
    if asked != "auto":
        return asked
    return _of_world or _BEFORE_A_WORLD[backend]
