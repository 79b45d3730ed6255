"""What kernels linked with our own device library must know of their world, as the bytes that they take.

The layout is the device library's: its build prints its header (``runtime/device/State.h``) as JSON, and nothing here
knows an offset.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import _triton_dist_loader

__all__ = [
    "layout_version",
    "max_pes",
    "max_teams",
    "state",
    "state_layout",
    "state_symbol",
    "sync_bytes",
    "team_of",
    "wait_record",
    "wait_records",
    "wait_state",
    "wait_symbol",
    "wait_tick",
]


def state(
    pe: int,
    distances: Sequence[int],
    sync: int,
    teams: Mapping[int, range] = MappingProxyType({}),
    unreachable: Sequence[int] = (),
) -> bytes:
    """The state of PE ``pe``.

    Args:
        distances: bytes from this PE's symmetric heap to each PE's, as both are mapped in this process.
        sync: address of this PE's symmetric ``sync_bytes()`` bytes, of which those of a team were zero when it began.
        teams: the PEs of this PE's teams, by handle; that of all need not be among them.
        unreachable: PEs that kernels may not load from and store to, though they are mapped.
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
    words = -(-layout["max_pes"] // 32)
    put(offsets["unreachable"], sum(1 << other for other in set(unreachable)), 4 * words)
    for handle, pes in {0: range(n_pes), **teams}.items():
        assert 0 <= handle < max_teams(), f"team {handle}"
        at = offsets["teams"] + handle * layout["team_bytes"]
        for name, value in (("start", pes.start), ("stride", pes.step), ("size", len(pes))):
            put(at + team[name], value, 4)
    return bytes(data)


def state_symbol() -> str:
    """The global of a module that takes the state."""
    return str(_layout()["symbol"])


def state_layout() -> dict[str, int]:
    """Sizes, limits and offsets in bytes of the state, as a C program takes them: what it does not fill is zero."""
    layout = _layout()
    filled = {name: offset for name, offset in layout["offsets"].items() if name != "unreachable"}
    numbers = {name: layout[name] for name in ("state_bytes", "sync_bytes", "max_pes", "team_bytes")}
    numbers |= {f"{name}_offset": offset for name, offset in filled.items()}
    return numbers | {f"team_{name}_offset": offset for name, offset in layout["team_offsets"].items()}


def layout_version() -> str:
    """Tells a layout from others: kernels that were linked with another one cannot be given a state."""
    return hashlib.sha256(json.dumps(_layout(), sort_keys=True).encode()).hexdigest()[:16]


def max_pes() -> int:
    """How many PEs a world of this transport may have."""
    return int(_layout()["max_pes"])


def max_teams() -> int:
    """How many teams a PE may have, with that of all."""
    return int(_layout()["max_teams"])


def sync_bytes() -> int:
    """How much symmetric memory PEs need to meet in."""
    return int(_layout()["sync_bytes"])


def team_of(offset: int) -> int:
    """The handle of the team whose barrier flags are at byte ``offset`` in the flags of all teams."""
    return offset // int(_layout()["sync_area_bytes"])


# ---- wait reports


def wait_symbol() -> str:
    """The name of a module's ``WaitState``."""
    return str(_layout()["wait_symbol"])


def wait_state(timeout: float, records: int, count: int, kernel: int) -> bytes:
    """The bytes of a ``WaitState``.

    Args:
        timeout: seconds after which a wait is reported, at most two hours; infinite: never.
        records: address of :func:`wait_records` records in memory of the host that the GPU may write to.
        count: address of 4 bytes of the GPU's memory, zero at first.
        kernel: the kernel's number in reports.
    """
    layout = _layout()
    data = bytearray(layout["wait_state_bytes"])
    most = 1 << (layout["wait_tick_bits"] - 1)
    ticks = 0 if math.isinf(timeout) else min(max(1, math.ceil(timeout / wait_tick())), most)
    values = {"timeout": (ticks, 4), "records": (records, 8), "count": (count, 8), "kernel": (kernel, 4)}
    for name, (value, nbytes) in values.items():
        at = layout["wait_state_offsets"][name]
        data[at : at + nbytes] = value.to_bytes(nbytes, "little")
    return bytes(data)


def wait_tick() -> float:
    """Seconds of a tick, the unit in which kernels time their waits."""
    return float(2 ** int(_layout()["wait_tick_shift"])) / 1e9


def wait_records() -> int:
    """How many records there are."""
    return int(_layout()["wait_records"])


def wait_record() -> np.dtype[np.void]:
    """The dtype of a record, with the members of ``WaitRecord`` in ``State.h``."""
    formats = {
        "address": "<u8",
        "expected": "<i8",
        "seen": "<i8",
        "program": ("<u4", 3),
        "kernel": "<i4",
        "site": "<i4",
        "pe": "<i4",
        "cmp": "<i4",
        "ticks": "<u4",
        "programs": "<u4",
        "number": "<u4",
    }
    layout = _layout()
    return np.dtype(
        {
            "names": list(formats),
            "formats": list(formats.values()),
            "offsets": [layout["wait_record_offsets"][name] for name in formats],
            "itemsize": layout["wait_record_bytes"],
        }
    )


@cache
def _layout() -> dict[str, Any]:
    file = Path(_triton_dist_loader.plugin_path()).parent / "p2p_state.json"
    layout: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return layout
