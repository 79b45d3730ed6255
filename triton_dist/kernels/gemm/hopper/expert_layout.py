"""The words that host and kernels of a fused layer of experts share."""

from __future__ import annotations

from triton.experimental.gluon import language as gl

__all__ = [
    "ARRIVED_ROWS",
    "BEGIN",
    "COPIED",
    "COUNT",
    "DRAWN",
    "FINISHED",
    "MESSAGE",
    "MOST_PARTS",
    "ROWS",
    "SOURCE",
    "TARGET",
    "TILE_END",
    "TILE_FIRST",
    "TURN",
    "UNIT",
]

# A unit: the rows of one expert that come from the PE at one distance. Rows are counted among those of this PE.
UNIT = gl.constexpr(8)
TILE_END = gl.constexpr(0)  # rows of tiles up to this unit's last
TILE_FIRST = gl.constexpr(1)  # the unit's first row of tiles, among those of its expert
ROWS = gl.constexpr(2)  # of the expert
BEGIN = gl.constexpr(3)  # the expert's first row
TURN = gl.constexpr(4)  # how many of the expert's rows come before this PE's own in the result
SOURCE = gl.constexpr(5)  # the unit's first row, among those of all PEs' experts, in the order of the result,
TARGET = gl.constexpr(6)  # in the order of arrival,
COUNT = gl.constexpr(7)  # and how many there are

# A message of the load warp to the multiply groups, for each tile.
MESSAGE = gl.constexpr(8)

# State of a launch, behind EPOCH and ARRIVED (``layout.py``); all zero between launches.
DRAWN = gl.constexpr(2)  # tiles that programs have taken
COPIED = gl.constexpr(4)  # from here on, for each distance and part: programs that have copied their rows
FINISHED = gl.constexpr(4)  # from here on, for each chunk of columns: groups that have finished it

MOST_PARTS = gl.constexpr(8)
"""Into how many parts, of whole experts, rows that arrive are divided at most: tiles wait for a part."""

# Symmetric flags (``layout.py``): behind those of entering.
ARRIVED_ROWS = gl.constexpr(16)  # programs of each PE that have sent all their tokens
