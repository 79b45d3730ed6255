"""What kernels linked with our own device library must know of their world, as the bytes that they take.

The layout is the device library's: its build prints its header (``runtime/device/State.h``) as JSON, and nothing here
knows an offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import _triton_dist_loader

__all__ = ["max_pes", "max_teams", "state", "state_symbol", "sync_bytes"]


def state(pe: int, distances: Sequence[int], sync: int, teams: Mapping[int, range] = MappingProxyType({})) -> bytes:
    """The state of PE ``pe``.

    Args:
        distances: bytes from this PE's symmetric heap to each PE's, as both are mapped in this process.
        sync: address of this PE's symmetric ``sync_bytes()`` bytes, of which those of a team were zero when it began.
        teams: the PEs of this PE's teams, by handle; that of all need not be among them.
    """
    layout = _layout()
    n_pes = len(distances)
    assert n_pes <= layout["max_pes"], f"{n_pes} PEs are more than {layout['max_pes']}"
    assert not any(distance % 4096 for distance in distances), "heaps lie at pages' boundaries, as copies suppose"
    data = bytearray(layout["state_bytes"])

    def put(offset: int, value: int, nbytes: int) -> None:
        data[offset : offset + nbytes] = value.to_bytes(nbytes, "little", signed=value < 0)

    offsets, team = layout["offsets"], layout["team_offsets"]
    put(offsets["pe"], pe, 4)
    put(offsets["n_pes"], n_pes, 4)
    put(offsets["sync"], sync, 8)
    for other, distance in enumerate(distances):
        put(offsets["distance"] + 8 * other, distance, 8)
    for handle, pes in {0: range(n_pes), **teams}.items():
        assert 0 <= handle < max_teams(), f"team {handle}"
        at = offsets["teams"] + handle * layout["team_bytes"]
        for name, value in (("start", pes.start), ("stride", pes.step), ("size", len(pes))):
            put(at + team[name], value, 4)
    return bytes(data)


def state_symbol() -> str:
    """The global of a module that takes the state."""
    return str(_layout()["symbol"])


def max_pes() -> int:
    """How many PEs a world of this transport may have."""
    return int(_layout()["max_pes"])


def max_teams() -> int:
    """How many teams a PE may have, with that of all."""
    return int(_layout()["max_teams"])


def sync_bytes() -> int:
    """How much symmetric memory PEs need to meet in."""
    return int(_layout()["sync_bytes"])


@cache
def _layout() -> dict[str, Any]:
    file = Path(_triton_dist_loader.plugin_path()).parent / "p2p_state.json"
    layout: dict[str, Any] = json.loads(file.read_text())
    return layout
