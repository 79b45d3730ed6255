"""Work-unit fields and flag layout: the words of a schedule, and of the memory that programs and PEs share.

One table for host and kernel: plain integers here, and as ``gl.constexpr`` where kernels read them.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl

__all__ = [
    "ARRIVED",
    "CHUNKS",
    "DONE",
    "ENTERED",
    "EPOCH",
    "FIRST_INPUT",
    "GATHERED",
    "INPUTS",
    "K_BEGIN",
    "K_END",
    "MAX_PES",
    "PE",
    "SLOT",
    "TILES",
    "TILE_COLUMN",
    "TILE_ROW",
    "UNIT",
]

MAX_PES = gl.constexpr(8)
"""PEs of a launch: each has a TMA descriptor among its arguments."""

# A unit of work: a tile of C, or some of its steps along K. Eight int32 words.
UNIT = gl.constexpr(8)
TILE_ROW = gl.constexpr(0)
TILE_COLUMN = gl.constexpr(1)
K_BEGIN = gl.constexpr(2)  # in steps of BLOCK_K
K_END = gl.constexpr(3)
SLOT = gl.constexpr(4)  # of this partial sum; -1: the unit finishes its tile
INPUTS = gl.constexpr(5)  # how many partial sums of other parts the unit adds,
FIRST_INPUT = gl.constexpr(6)  # and the first one's slot: they follow each other
PE = gl.constexpr(7)  # the owner of these rows of A or of the tile, or the tile's chunk of C or flag

# State of a PE that the programs of one launch share, int32 words on its own GPU.
EPOCH = gl.constexpr(0)  # how many launches there have been
ARRIVED = gl.constexpr(1)  # programs of this launch that have finished
CHUNKS = gl.constexpr(2)  # from here on: finished tiles of each chunk

# Symmetric int32 words: a flag of each PE, then one for each tile.
ENTERED = gl.constexpr(0)  # the PE's launch has begun: its memory may be stored to
DONE = gl.constexpr(8)  # all that it stores to this PE has arrived
GATHERED = gl.constexpr(16)  # its rows of A have arrived: 1, until the launch ends
TILES = gl.constexpr(24)
