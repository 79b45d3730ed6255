"""Which algorithm a fused norm takes. Nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

import triton_dist
from triton_dist.kernels.choice.choose import choose_by_model
from triton_dist.kernels.choice.tables import Case
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.norm.arguments import LONGEST, fits
from triton_dist.kernels.norm.model import estimates
from triton_dist.kernels.prepared import Launch, Step

__all__ = ["case_of", "choose"]


def case_of(function: str, x: torch.Tensor, *, rows: int | None = None) -> Case:
    """The case of rows ``x``, or of so many ``rows`` like them.

    Kinds of norms and quantisation are not told apart: what is exchanged takes the time."""
    return Case(function, str(x.dtype).removeprefix("torch."), (x.shape[0] if rows is None else rows, x.shape[1]))


def choose(
    comm: Communicator,
    function: str,
    algorithm: str,
    x: torch.Tensor,
    ways: Mapping[str, Callable[[], Launch | Sequence[Step] | None]],
    *,
    rows: int | None = None,
) -> Callable[[], Launch | Sequence[Step] | None]:
    """The one of ``ways`` that is called ``algorithm``; for ``auto`` the fastest, by measured times or the model.

    Where PEs have shards of the rows, each has ``rows``, but the last, which may have fewer. In the CPU world, where
    times mean nothing, it is the first.

    Raises:
        ValueError: rows are too long for ``algorithm``.
    """
    possible = dict(ways) if fits(x.shape[1]) else {"unfused": ways["unfused"]}
    if algorithm == "auto" and triton_dist.kind() == "cpu":
        algorithm = next(iter(possible))
    elif algorithm == "auto":
        case = case_of(function, x, rows=rows)

        def model(sizes: tuple[int, ...]) -> dict[str, float]:
            count, columns = sizes
            return estimates(function, count, columns, x.element_size(), comm.n_pes, possible)

        algorithm = choose_by_model(comm, case, tuple(possible), model)
    if algorithm not in possible:
        raise ValueError(
            f"{function}: rows of {x.shape[1]} columns are too long for algorithm {algorithm}, which takes up to"
            f" {LONGEST}; use unfused"
        )
    return possible[algorithm]
