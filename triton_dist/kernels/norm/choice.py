"""Which algorithm a fused norm takes: the one that was fastest when such rows were first normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.measure import fastest
from triton_dist.kernels.norm.arguments import LONGEST, Norm, fits

__all__ = ["choose"]

_MEASURED_BYTES = 1 << 20
_MOST_TIMES = 16


def choose(
    comm: Communicator,
    function: str,
    algorithm: str,
    x: torch.Tensor,
    norm: Norm,
    ways: Mapping[str, Callable[[], None]],
) -> Callable[[], None]:
    """The one of ``ways`` that is called ``algorithm``; for ``auto`` the fastest. *Collective* when it is measured.

    Unfused is among those that are measured, so no fused kernel is taken where it is slower. A few rows take a few
    microseconds, and are measured many times over. Similar numbers of rows, which differ by less than an eighth, are
    measured once.

    Raises:
        ValueError: rows are too long for ``algorithm``.
    """
    possible = dict(ways) if fits(x.shape[1]) else {"unfused": ways["unfused"]}
    if algorithm == "auto":
        step = max(1, (1 << (x.shape[0] - 1).bit_length()) // 16)
        like = x.new_empty(-(-x.shape[0] // step) * step, x.shape[1], device="meta")
        times = max(1, _MEASURED_BYTES // x.nbytes)
        measured = {name: partial(_repeat, way, min(times, _MOST_TIMES)) for name, way in possible.items()}
        algorithm = fastest(comm, f"{function}, {norm.form}", like, like, like, measured)
    if algorithm not in possible:
        raise ValueError(
            f"{function}: rows of {x.shape[1]} columns are too long for algorithm {algorithm}, which takes up to"
            f" {LONGEST}; use unfused"
        )
    return possible[algorithm]


def _repeat(way: Callable[[], None], times: int) -> None:
    for _ in range(times):
        way()
