"""Which algorithm a fused norm takes. Nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

import triton_dist
from triton_dist.kernels.choice.choose import choose as fastest
from triton_dist.kernels.choice.tables import Case
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.norm.arguments import LONGEST, fits
from triton_dist.kernels.norm.model import estimates
from triton_dist.kernels.prepared import Launch, Step

__all__ = ["case_of", "choose"]


def case_of(function: str, x: torch.Tensor) -> Case:
    """The case of rows ``x``. Kinds of norms and quantisation are not told apart: what is exchanged takes the time."""
    return Case(function, str(x.dtype).removeprefix("torch."), (x.shape[0], x.shape[1]))


def choose(
    comm: Communicator,
    function: str,
    algorithm: str,
    x: torch.Tensor,
    ways: Mapping[str, Callable[[], Launch | Sequence[Step] | None]],
) -> Callable[[], Launch | Sequence[Step] | None]:
    """The one of ``ways`` that is called ``algorithm``; for ``auto`` the fastest, by measured times or the model.

    In the CPU world, where times mean nothing, that is the first.

    Raises:
        ValueError: rows are too long for ``algorithm``.
    """
    possible = dict(ways) if fits(x.shape[1]) else {"unfused": ways["unfused"]}
    if algorithm == "auto" and triton_dist.kind() == "cpu":
        algorithm = next(iter(possible))
    elif algorithm == "auto":
        seconds = estimates(function, x.shape[0], x.shape[1], x.element_size(), comm.n_pes, possible)
        algorithm = fastest(comm, case_of(function, x), seconds)
    if algorithm not in possible:
        raise ValueError(
            f"{function}: rows of {x.shape[1]} columns are too long for algorithm {algorithm}, which takes up to"
            f" {LONGEST}; use unfused"
        )
    return possible[algorithm]
