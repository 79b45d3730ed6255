"""Settings of a CPU world that its PEs must have alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_dist import environment
from triton_dist.bootstrap.launch import Launch
from triton_dist.decoding import mapping, text

__all__ = ["equal_settings"]

_TOLD = mapping(text(100), text(1000), 100)


def equal_settings(launch: Launch, names: Sequence[str]) -> list[Any]:
    """The values of these environment variables. *Collective.*

    Raises:
        ValueError: one cannot be read. RuntimeError: PEs have different ones; the message has both.
    """
    values = {name: environment.get(name) for name in names}
    shown = {name: "not set" if value is None else str(value) for name, value in values.items()}
    told = launch.exchange_values("settings of the CPU world", shown, _TOLD)
    for name in names:
        of_all = [theirs.get(name) for theirs in told]
        for pe, theirs in enumerate(of_all):
            if theirs != of_all[0]:
                raise RuntimeError(f"{name} is {of_all[0]} on PE 0 and {theirs} on PE {pe}: set it alike on all PEs")
    return list(values.values())
