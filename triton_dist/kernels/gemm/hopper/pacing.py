"""How fast a program may store to peers while it computes: the issue interval of TMA stores.

TMA stores to a peer share a queue with the program's TMA loads. What NVLink does not take at once stalls the loads, and
with them the computation. So a tile is sent in pieces of 2 KB, at intervals that spread it over a share of the time of
the next tile and keep all programs of a GPU within what NVLink takes. Figures are of an H200.
"""

from __future__ import annotations

from triton_dist.kernels.gemm.config import K_BYTES, Config
from triton_dist.kernels.gemm.hopper.store import Pacing
from triton_dist.kernels.rates import NVLINK_RATE

__all__ = ["FLOPS_PER_CYCLE", "PIECE", "pacing_of", "piece_of"]

PIECE = (16, 64)
"""Rows and columns of a piece: 2 KB in rows of 128 bytes."""

FLOPS_PER_CYCLE = 4096
"""Of a multiprocessor, with 16-bit floats."""


def piece_of(config: Config) -> tuple[int, int]:
    """Rows and columns of a piece of a tile of C; half of it, where a tile has so few columns."""
    return PIECE[0], min(PIECE[1], config.c_columns)


def pacing_of(config: Config, share: float, peers: int, programs: int) -> Pacing:
    """The intervals for tiles that each of ``programs`` sends to so many ``peers``.

    Args:
        share: of the time of the unit that is computed meanwhile.
    """
    rows, columns = piece_of(config)
    pieces = config.block_m * config.c_columns * max(1, peers) / (rows * columns)
    # (A block of 8-bit floats has twice as many elements along K, which are multiplied twice as fast.)
    cycles_per_step = 2 * config.block_m * config.block_n * (K_BYTES / 2) / FLOPS_PER_CYCLE
    interval = 1e9 * 2 * rows * columns * programs / NVLINK_RATE
    return Pacing(int(256 * share * cycles_per_step / pieces), int(interval))
