"""Sizes of tiles: a choice by shape, from what measurements on an H200 say of each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

__all__ = ["Config", "choose"]


@dataclass(frozen=True)
class Config:
    """A tile of C, how many blocks along K are on their way, and how many groups of four warps share its rows."""

    block_m: int
    block_n: int
    block_k: int
    stages: int
    groups: int

    def tiles(self, c: torch.Tensor) -> tuple[range, range]:
        """Numbers of the rows and of the columns of tiles that ``c`` has."""
        return range(triton.cdiv(c.shape[0], self.block_m)), range(triton.cdiv(c.shape[1], self.block_n))

    def k_steps(self, a: torch.Tensor) -> int:
        """How many blocks along K a tile of a product with ``a`` has."""
        return int(triton.cdiv(a.shape[1], self.block_k))


LARGE = Config(128, 128, 64, 5, 2)
NARROW = Config(128, 64, 64, 6, 2)
FLAT = Config(64, 128, 64, 6, 1)
FLAT_NARROW = Config(64, 64, 64, 8, 1)


def choose(rows: int, columns: int, programs: int) -> Config:
    """The configuration for a product of this shape on a GPU that runs ``programs`` at a time.

    128 × 128 is as fast as any larger tile (their sums leave registers in smaller portions, and fewer programs idle in
    the last round). Where all tiles fit into one round, the product waits for B to come from memory, and what counts is
    that all programs fetch some of it.
    """
    tall = rows > 64
    wide = LARGE if tall else FLAT
    tiles = triton.cdiv(rows, wide.block_m) * triton.cdiv(columns, wide.block_n)
    if tiles * 2 <= programs:
        return NARROW if tall else FLAT_NARROW
    return wide
