"""What the stress test calls with ``--large``: GEMMs and layers of experts of the sizes of models, on GPUs.

Of matrices with long sums only a share of the elements is not zero, so that all sums are exact (``stress_cases``).
"""

from __future__ import annotations

import itertools

import stress_experts
import stress_library
import stress_shards
import torch
from stress_cases import GEMMS, Recipe, gemm

__all__ = ["groups"]

SHAPES = (
    *((1750, 9216, 7168), (333, 5120, 12800), (4097, 3584, 5120), (61, 8192, 14336), (1100, 12288, 6144)),
    *((519, 14336, 8192), (1, 7168, 9216), (128, 4096, 14336), (2001, 6144, 10752)),
)
"""Rows of each PE, columns of each PE, and K of each PE."""
SHARDS = (3499, 9216, 7168), (777, 5120, 12800), (4095, 7168, 1024), (129, 8192, 14336)
"""Rows of all PEs, columns of each PE, and K of each PE."""
TYPES = torch.bfloat16, torch.float16, torch.float8_e4m3fn
BOTH = True, False

EXPERTS = (4096, 7168, 8, 128, 24), (1023, 2048, 8, 64, 16), (128, 7168, 8, 128, 0)
ONCE = (4096, 7168, 8, 128, 24), (8191, 2048, 8, 64, 20), (3001, 4096, 6, 32, 132)
SLICES = (4096, 2048, 384, 8, 128, 32), (1001, 7168, 1024, 8, 16, 32), (128, 4096, 768, 8, 64, 0)
WHOLE = (4096, 2048, 768, 8, 64, 32), (129, 7168, 2048, 8, 16, 0), (2047, 4096, 1536, 8, 16, 32)
"""Their numbers: ``stress_experts``."""


def gemms() -> list[list[Recipe]]:
    found = []
    for function, algorithms in GEMMS.items():
        for algorithm in algorithms:
            found.append([gemm(function, algorithm, *each) for each in itertools.product(TYPES, SHAPES, BOTH)])
            blocks = itertools.product(TYPES[-1:], SHAPES, BOTH, (True,))
            found.append([gemm(function, algorithm, *each) for each in blocks])
            if function != "gemm_all_scatter":
                biased = itertools.product(TYPES[:2], SHAPES, (function != "gemm_all_reduce",))
                found.append([stress_library.with_bias(function, algorithm, *each) for each in biased])
            if function in ("all_gather_gemm", "gemm_reduce_scatter"):
                uneven = itertools.product(TYPES[:2], SHARDS, BOTH)
                found.append([stress_shards.gemm(function, algorithm, *each) for each in uneven])
    return found


def groups() -> list[list[Recipe]]:
    """The calls of every function."""
    ways = [(how, hopper) for how in ("plain", "gated", "layer") for hopper in BOTH]
    return [
        *gemms(),
        [stress_experts.experts(*each, columns) for each in EXPERTS for columns in (0, 128)],
        [stress_experts.experts(*each, once=True, direct=direct) for each in ONCE for direct in BOTH],
        [stress_experts.slices(*each) for each in SLICES],
        *([stress_experts.whole(*each, *way) for each in WHOLE] for way in ways),
    ]
