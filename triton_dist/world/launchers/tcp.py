"""A store behind an address that every PE knows beforehand."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

__all__ = ["store"]


def store(host: str, port: int, seconds: float, *, serves: bool) -> Store:
    """The store at ``host:port``; with ``serves``, this process opens it there.

    Raises:
        RuntimeError: it cannot be opened, or does not answer within ``seconds``.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    try:
        # Multi-tenant: init_process_group() may open "its own" at the same place in this process, and gets this one.
        return TCPStore(host, port, None, serves, limit, wait_for_workers=False, multi_tenant=True)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        if serves:
            raise RuntimeError(
                f"PE 0 cannot open the meeting point of the PEs at {host}:{port} ({reason}): set MASTER_PORT to a port"
                " that is free, the same on all PEs"
            ) from None
        raise RuntimeError(
            f"nobody answers within {seconds:g} s (TRITON_DIST_INIT_TIMEOUT) at {host}:{port}, where the PEs meet: is"
            f" PE 0 running, and is that an address of its host? ({reason})"
        ) from None
