"""The tables that the members of a communicator share: that of their host's file and that of the package."""

from __future__ import annotations

import logging
from collections.abc import Callable

from triton_dist.kernels.choice import files
from triton_dist.kernels.choice.tables import Table
from triton_dist.kernels.device import gpu

__all__ = ["agreed_tables"]

_log = logging.getLogger("triton_dist")


def agreed_tables(n_pes: int, exchange: Callable[[str, str], list[str]]) -> tuple[Table, Table]:
    """The stored and the shipped table for ``n_pes`` GPUs like this PE's, the same on all of them. *Collective.*

    Members on other hosts may have other files, or other GPUs. Then that is logged, and no such table is used.

    Args:
        exchange: as of a communicator; for a world of GPUs.
    """
    name = gpu().name
    tuned = files.stored(name, n_pes)
    said = exchange("the tables of algorithm='auto'", f"{files.digest(tuned)} {name}")
    names = sorted({text.partition(" ")[2] for text in said})
    if len(names) > 1:
        _log.warning("%d PEs have different GPUs (%s): no measured times are used", n_pes, ", ".join(names))
        return Table(names[0], n_pes), Table(names[0], n_pes)
    if len(set(said)) > 1:
        _log.warning(
            "hosts of %d PEs have different files %s, which therefore are not used: call kernels.tune() on all of them,"
            " or copy one",
            n_pes,
            files.stored_path(name, n_pes),
        )
        tuned = Table(name, n_pes)
    return tuned, files.shipped(name, n_pes)
