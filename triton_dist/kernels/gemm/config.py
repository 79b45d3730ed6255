"""Tile sizes, chosen by shape, from measurements on an H100, with rates of an H200."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import triton

from triton_dist.kernels.gemm.schedule import rounds
from triton_dist.kernels.tile_order import chip, group_rows

__all__ = [
    "K_BYTES",
    "LARGE",
    "NVLINK_RATE",
    "ROUNDS_OF_LARGE",
    "WIDE",
    "WIRE",
    "Config",
    "block_k",
    "choose",
    "flops",
    "ring_rows",
]

K_BYTES = 128
"""Of a row of A in a block along K: as many as the lines of shared memory that TMA and the tensor cores share."""


@dataclass(frozen=True)
class Config:
    """A tile of C, how many blocks along K are in flight, and how many groups of four warps share its rows."""

    block_m: int
    block_n: int
    stages: int
    groups: int
    rate: float = 1.0
    """What it computes in a second, relative to the others, when the GPU's power is what limits it."""
    fold: int = 1
    """How many columns of sums, and of B, make one of C; ``block_n`` are the sums'."""
    of_blocks: bool = False
    """Whether scales are of blocks: of one step along K, which is 128 elements of fp8."""
    of_rows: bool = False
    """Whether scales are of rows of A and columns of B. Plans leave it open (``Plan.config_of``)."""

    @property
    def group_m(self) -> int:
        """Rows of a tile that one group computes."""
        return self.block_m // self.groups

    @property
    def scales_rows(self) -> bool:
        """Whether rows of A have scales of their own, for all of a row or for blocks of it."""
        return self.of_blocks or self.of_rows

    @property
    def c_columns(self) -> int:
        """Columns of a tile of C."""
        return self.block_n // self.fold

    def tiles(self, c: torch.Tensor) -> tuple[range, range]:
        """Numbers of the rows and of the columns of tiles that ``c`` has."""
        return range(triton.cdiv(c.shape[0], self.block_m)), range(triton.cdiv(c.shape[1], self.c_columns))

    def order(self, a: torch.Tensor, rows: int, columns: int, programs: int) -> int:
        """How many rows of tiles a group has, of so many rows and columns of tiles of a GEMM with ``a``."""
        row = a.shape[1] * a.element_size()
        return group_rows(rows, columns, self.block_m * row, self.block_n * row, chip(programs))

    def round_seconds(self, k: int, dtype: torch.dtype, programs: int) -> float:
        """How long a full round of so many programs computes tiles of a GEMM with operands of this dtype."""
        return 2 * self.block_m * self.block_n * k * programs / (flops(dtype) * self.rate)

    def k_steps(self, a: torch.Tensor) -> int:
        """How many blocks along K a tile of a GEMM with ``a`` has."""
        return int(triton.cdiv(a.shape[1], block_k(a.dtype)))


LARGE = Config(128, 128, 5, 2, rate=0.97)
WIDE = Config(128, 256, 3, 2)
NARROW = Config(128, 64, 6, 2, rate=0.78)
FLAT = Config(64, 128, 6, 1)
FLAT_NARROW = Config(64, 64, 8, 1)

NVLINK_RATE = 320e9
"""Bytes a second that NVLink takes of programs that also compute without slowing their loads by more than a few
percent, on an H200. Programs that only send reach 10 to 15 % more."""
WIRE = 365e9
FLOPS = 700e12
"""What an H200's processors send (bytes) and compute (with 16-bit floats) in a second: from measurements. They decide
only which way is taken, or tried, for a shape."""

ROUNDS_OF_LARGE = 5
"""Of how many rounds tiles of 128 columns may be, where PEs exchange data meanwhile."""

_BY_ITSELF = 0.66
_SPLITTING, _ADDING = 2e-6, 3.2e-6
"""The share of its time in a full round that a tile takes by itself; and the seconds that a round takes longer whose
tiles, of 128 columns, are split, and for each step of the tree that adds their parts (docs/decisions/0123)."""


def ring_rows(rows: int, shards: int) -> int:
    """Rows that a ring computes for so many of C, of which each of as many ``shards`` is padded to whole tiles.

    Its tiles are those that two groups compute.
    """
    return int(triton.cdiv(triton.cdiv(rows, shards), LARGE.block_m) * LARGE.block_m * shards)


def block_k(dtype: torch.dtype) -> int:
    """Elements along K in a block."""
    return K_BYTES // dtype.itemsize


def flops(dtype: torch.dtype) -> float:
    """What is computed with operands of this dtype in a second, if it is twice as much for half as many bits."""
    return FLOPS * 2 / dtype.itemsize


def choose(
    a: torch.Tensor,
    c: torch.Tensor,
    programs: int,
    *,
    peers: int = 0,
    fold: int = 1,
    of_blocks: bool = False,
    rounds_of_large: float = ROUNDS_OF_LARGE,
) -> Config:
    """The configuration for a GEMM with ``a`` in ``c`` with so many programs at a time.

    Where all tiles fit into one round, the GEMM waits for B to come from memory, and what counts is that all
    programs fetch some of it. Else larger tiles compute a little more with the same power; and smaller ones leave
    fewer programs idle, and less to be sent, in the end.

    Args:
        peers: to how many PEs C is sent, tile by tile.
        fold: how many columns of B make one of C.
        of_blocks: whether scales are of blocks. Then a step's sums take registers, too, and a wide tile's do not fit.
        rounds_of_large: of how many rounds tiles of 128 columns may be. They load 1.5 times as much as wide ones from
            the L2 cache, and of many rounds what arrives from peers and is sent to them is in the way of these loads.
    """
    rows, columns = c.shape[0], c.shape[1] * fold
    tall = rows > 64
    wide = LARGE if tall else FLAT
    tiles = triton.cdiv(rows, wide.block_m) * triton.cdiv(columns, wide.block_n)
    few = tiles * 2 <= programs
    if few and (rows <= LARGE.block_m or tiles * 3 <= programs):
        return replace(NARROW if tall else FLAT_NARROW, fold=fold, of_blocks=of_blocks)
    if not tall:
        return replace(FLAT, fold=fold, of_blocks=of_blocks)
    sizes: tuple[Config, ...]
    if few:
        sizes = NARROW, LARGE
    elif of_blocks:
        sizes = (LARGE,)
    else:
        sizes = (WIDE,) if tiles > rounds_of_large * programs else (LARGE, WIDE)
    possible = [replace(config, fold=fold, of_blocks=of_blocks) for config in sizes]
    return min(possible, key=lambda config: _seconds(a, c, programs, config, peers))


def _seconds(a: torch.Tensor, c: torch.Tensor, programs: int, config: Config, peers: int) -> float:
    """About how long ``programs`` compute c = a · b and send it to ``peers``."""
    rows, columns = config.tiles(c)
    area = config.block_m * config.block_n
    tile = config.round_seconds(a.shape[1], a.dtype, programs)
    sent = area / config.fold * c.element_size() * peers / WIRE
    computed = arrived = 0.0
    for count, parts in rounds(len(rows) * len(columns), config.k_steps(a), programs):
        computed += tile / parts * (_BY_ITSELF + (1 - _BY_ITSELF) * count * parts / programs)
        if parts > 1:
            computed += (_SPLITTING + _ADDING * math.ceil(math.log2(parts))) * config.block_n / LARGE.block_n
        arrived = max(arrived, computed) + count * sent
    return arrived
