"""Sizes of tiles, and what follows from one; tile_sizes.py chooses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from triton_dist.kernels.rates import flops
from triton_dist.kernels.tile_order import chip, group_rows

__all__ = ["FLAT", "FLAT_NARROW", "K_BYTES", "LARGE", "NARROW", "WIDE", "Config", "block_k", "ring_rows"]

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


def ring_rows(rows: int, shards: int) -> int:
    """Rows that a ring computes for so many of C, of which each of as many ``shards`` is padded to whole tiles.

    Its tiles are those that two groups compute.
    """
    return int(triton.cdiv(triton.cdiv(rows, shards), LARGE.block_m) * LARGE.block_m * shards)


def block_k(dtype: torch.dtype) -> int:
    """Elements along K in a block."""
    return K_BYTES // dtype.itemsize
