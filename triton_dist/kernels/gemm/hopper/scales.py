"""Scales of parts of operands in the multiply groups: which rows a tile has, and scales of rows.

Of these a row of A and a column of B have one each, as of ``torch._scaled_mm``: a sum over K is multiplied by
both, once. Of a ring that is this PE's sum, before it is added to what was received.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_dist.kernels.gemm.hopper.layout import PE
from triton_dist.kernels.gemm.hopper.work import field, sums_origin, tile_of

__all__ = ["RowFactors", "scale_rows", "scaled_origin", "scales_of"]


class RowFactors(NamedTuple):
    """Scales of rows, float32 in this GPU's memory.

    Attributes:
        a: of each row of A. b: of each of so many ``columns`` of B.
    """

    a: Any
    b: Any
    columns: Any


class TileFactors(NamedTuple):
    """Scales of rows or blocks, and how many ``rows`` A has; tiles are of shards, each with ``padding`` rows more."""

    of: Any
    rows: Any
    padding: Any


@gluon.jit
def scales_of(scale, a, padding=None):
    """What the multiply groups are given of scales of rows or blocks: with the rows of A's descriptor."""
    return TileFactors(scale, a.shape[0], padding)


@gluon.jit
def scaled_origin(GROUP: gl.constexpr, work, unit, scale, CONFIG: gl.constexpr):
    """The first row of A and column of B of a group's sums of a unit, as scales are numbered."""
    row, column = sums_origin(*tile_of(work, unit), GROUP, CONFIG)
    if scale.padding is not None:
        row -= field(work, unit, PE) * scale.padding
    return row, column


@gluon.jit
def scale_rows(GROUP: gl.constexpr, sums, scale, work, unit, CONFIG: gl.constexpr):
    """A group's sums of a unit that finishes its tile, times the scales of their rows and columns.

    Rows that A lacks are its last one: they have its scales, and their products are zero.
    """
    LAYOUT: gl.constexpr = sums.type.layout
    row, column = scaled_origin(GROUP, work, unit, scale, CONFIG)
    rows = gl.minimum(row + gl.arange(0, CONFIG.group_m, gl.SliceLayout(1, LAYOUT)), scale.rows - 1)
    columns = gl.minimum(column + gl.arange(0, CONFIG.block_n, gl.SliceLayout(0, LAYOUT)), scale.of.columns - 1)
    # Past the L1 cache, whose lines may hold rows of peers that have arrived since. The load warp has waited for them.
    of_a = gl.load(scale.of.a + rows, cache_modifier=".cg")
    return sums * of_a[:, None] * gl.load(scale.of.b + columns)[None, :]
