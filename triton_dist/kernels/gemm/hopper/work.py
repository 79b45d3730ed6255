"""What a program has to do: its list of work units, which the host computes (``gemm/schedule.py``)."""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.layout import SLOT, TILE_COLUMN, TILE_ROW, UNIT

__all__ = ["Work", "block_origin", "field", "finishes_tile", "sums_origin", "tile_of", "units_of_program"]


class Work(NamedTuple):
    """The work units of all programs, in memory of this GPU.

    Attributes:
        units: int32 words, ``UNIT`` of each unit (``layout.py``).
        starts: int32 words; program p has units ``starts[p]`` to ``starts[p + 1]``.
    """

    units: Any
    starts: Any


@gluon.jit
def units_of_program(work):
    """The first work unit of this program and the one behind its last."""
    program = gl.program_id(0)
    return gl.load(work.starts + program), gl.load(work.starts + program + 1)


@gluon.jit
def field(work, unit, FIELD: gl.constexpr):
    """A field of a work unit."""
    return gl.load(work.units + unit * UNIT + FIELD)


@gluon.jit
def finishes_tile(work, unit):
    """Whether the sums of a unit are a whole tile, and not a part along K that goes to a slot."""
    return field(work, unit, SLOT) < 0


@gluon.jit
def tile_of(work, unit):
    """Row and column of a unit's tile, in tiles."""
    return field(work, unit, TILE_ROW), field(work, unit, TILE_COLUMN)


@gluon.jit
def block_origin(tile_row, tile_column, GROUP: gl.constexpr, CONFIG: gl.constexpr):
    """Row and column of the first element of a group's block of a tile of C."""
    return tile_row * CONFIG.block_m + GROUP * CONFIG.group_m, tile_column * CONFIG.c_columns


@gluon.jit
def sums_origin(tile_row, tile_column, GROUP: gl.constexpr, CONFIG: gl.constexpr):
    """Row of A and column of B of the first element of a group's sums of a tile."""
    return tile_row * CONFIG.block_m + GROUP * CONFIG.group_m, tile_column * CONFIG.block_n
