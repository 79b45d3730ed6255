"""Which size of tiles a GEMM has, by what rounds and parts of them take (docs/decisions/0123)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import triton

from triton_dist.kernels.gemm.config import FLAT, FLAT_NARROW, LARGE, NARROW, WIDE, Config
from triton_dist.kernels.gemm.schedule import rounds
from triton_dist.kernels.rates import WIRE

__all__ = ["BY_ITSELF", "ROUNDS_OF_LARGE", "choose"]

ROUNDS_OF_LARGE = 5
"""Of how many rounds tiles of 128 columns may be, where PEs exchange data meanwhile."""

BY_ITSELF = 0.66
"""The share of its time in a full round that a tile takes by itself."""
_SPLITTING, _ADDING = 2e-6, 3.2e-6
"""The seconds that a round takes longer whose tiles, of 128 columns, are split, and for each step of the tree that adds
their parts (docs/decisions/0123)."""


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
    # Sizes that are chosen with shorter last parts take 0.7 % longer (docs/decisions/0143).
    for count, parts, _ in rounds(len(rows) * len(columns), config.k_steps(a), programs, equal=True):
        computed += tile / parts * (BY_ITSELF + (1 - BY_ITSELF) * count * parts / programs)
        if parts > 1:
            computed += (_SPLITTING + _ADDING * math.ceil(math.log2(parts))) * config.block_n / LARGE.block_n
        arrived = max(arrived, computed) + count * sent
    return arrived
