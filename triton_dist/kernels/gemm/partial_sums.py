"""What GEMM + reduce-scatter and GEMM + all-reduce share: C = the sum over PEs of A · B, with K split over the PEs.

Partial sums are sent in C's dtype and added in float32, in the order of the PEs or of the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from triton_dist.kernels.gemm.between_hosts import reduce_between_hosts
from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.epilogue import EMPTY
from triton_dist.kernels.gemm.local_gemm import local_gemm
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.gemm.operation import Computation
from triton_dist.kernels.gemm.plan_cache import cached
from triton_dist.kernels.gemm.reduce_partials import reduce_partials
from triton_dist.kernels.gemm.small_m import MAX_BANDS, MAX_ROWS, fits_bands, fits_small_m, small_m_gemm
from triton_dist.kernels.gemm.two_level import reduce_two_level, why_not_two_level
from triton_dist.kernels.gemm.workspaces import local_result, partial_sums
from triton_dist.kernels.prepared import Launch, Nested, Step, Work, steps

__all__ = ["ALGORITHMS", "by_owners", "by_ring", "computation"]

ALGORITHMS = ("bulk_synchronous", "fused", "ring", "direct")


def computation(
    gemm: Operands,
    reduce: Callable[[torch.Tensor, torch.Tensor], object],
    on_hopper: Mapping[str, Callable[[Operands], Launch | Sequence[Step] | None]],
    within_host: Callable[..., torch.Tensor],
    *,
    to_all: bool,
) -> Computation:
    """What computes ``gemm.c``.

    Args:
        reduce: adds up a local result, [M, N], symmetric, of all PEs into a tensor like ``gemm.c``, without the
            epilogue, by one call. It is kept for later calls, and so may hold no operand.
        on_hopper: the algorithms of Hopper GPUs, by name.
        within_host: ``gemm_reduce_scatter``.
        to_all: ``gemm.c`` is symmetric, and all of the sum; otherwise this PE's rows of it.
    """
    needs_of_fused, needs_of_hopper = _needs_of_fused(gemm, to_all=to_all), _needs_of_hopper(gemm)
    return Computation(
        gemm.c,
        gemm.c,
        {
            "two_level": why_not_two_level(gemm) or partial(reduce_two_level, gemm, within_host, to_all=to_all),
            "bulk_synchronous": partial(_bulk_synchronous, gemm, reduce, to_all=to_all),
            "fused": needs_of_fused or partial(small_m_gemm, gemm, to_all=to_all),
            **{name: needs_of_hopper or partial(run, gemm) for name, run in on_hopper.items()},
        },
        # Fused, or a GEMM in front of an exchange of few bytes, loads B as fast as memory gives it.
        passed_over=tuple(on_hopper) if _is_small_m(gemm) else (),
    )


def by_ring(gemm: Operands, hopper: ModuleType, name: str, rows: int, *, shards: int) -> Launch | Sequence[Step] | None:
    """Compute ``gemm.c`` by the ring of the module ``hopper``, of so many rows, each of as many ``shards`` padded to
    whole tiles."""
    staging = partial_sums(gemm.comm, ring_rows(rows, shards), gemm.b.shape[1], gemm.c.dtype)
    return _by_plan(gemm, hopper, f"ring, {name}", staging, lambda plan: staging)


def by_owners(
    gemm: Operands, hopper: ModuleType, name: str, rows: int, *, shards: int
) -> Launch | Sequence[Step] | None:
    """Compute ``gemm.c`` by the module ``hopper``, which sends partial sums to owners; for the rows see
    :func:`by_ring`."""
    comm = gemm.comm
    padded = gemm.c.new_empty(ring_rows(rows, shards), gemm.b.shape[1], device="meta")

    def staging_of(made: Any) -> torch.Tensor:
        height, width = made.shares.staging_shape(comm.n_pes)
        return partial_sums(comm, height, width, gemm.c.dtype)

    return _by_plan(gemm, hopper, f"direct, {name}", padded, staging_of)


def _by_plan(
    gemm: Operands, hopper: ModuleType, name: str, padded: torch.Tensor, staging_of: Callable[[Any], torch.Tensor]
) -> Launch | Sequence[Step] | None:
    """Compute ``gemm.c`` by the plan for a C like ``padded``, with the symmetric memory that it needs."""

    def make() -> Any:
        return hopper.make_plan(gemm.comm, gemm.a, padded, gemm.sm_margin, gemm.of_blocks)

    plan = cached(gemm.comm, gemm.key(name, rows=padded.shape[0]), make)
    made: Launch | Sequence[Step] | None = hopper.run(plan, gemm, staging_of(plan))
    return made


def _is_small_m(gemm: Operands) -> bool:
    n_pes = gemm.comm.n_pes
    return fits_small_m(gemm.each * n_pes, n_pes)


def _needs_of_hopper(gemm: Operands) -> str:
    """What the algorithms of Hopper GPUs need that is not there; empty if they are available."""
    from triton_dist.kernels.gemm.hopper.launch import takes

    if takes(gemm):
        return ""
    return (
        "needs a Hopper GPU, up to 8 PEs, operands of 16-bit floats, or of fp8 with b by columns, a result of 16-bit"
        " floats, and rows that begin at multiples of 16 bytes"
    )


def _needs_of_fused(gemm: Operands, *, to_all: bool) -> str:
    """What the algorithm ``fused`` needs that is not there; empty if it is available."""
    rows, n_pes = gemm.a.shape[0], gemm.comm.n_pes
    fits = _is_small_m(gemm) or (fits_bands(rows, n_pes) and (to_all or rows == gemm.each * n_pes))
    if gemm.a.dtype == gemm.c.dtype and fits:
        return ""
    more = f", {MAX_BANDS * MAX_ROWS} if there are 2, 4 or 8 PEs" + ("" if to_all else " with as many each")
    return (
        f"takes up to {MAX_ROWS} rows{more}, counting as many for each PE as the next power of two, and operands of the"
        " result's dtype"
    )


def _bulk_synchronous(
    gemm: Operands, reduce: Callable[[torch.Tensor, torch.Tensor], object], *, to_all: bool
) -> Sequence[Step] | None:
    summand, multiplied = _summand(gemm)
    multiply = multiplied, lambda call: call._replace(out=summand, bias=None, residual=None)
    if not gemm.epilogue.is_empty:
        reduce_finished = reduce_partials if gemm.comm.grid.hosts == 1 else reduce_between_hosts
        return steps(multiply, *reduce_finished(gemm, summand, to_all=to_all))
    reduce(summand, gemm.c)
    return steps(multiply, (Nested(partial(reduce, summand), (summand,)), lambda call: (call.out,)))


def _summand(gemm: Operands) -> tuple[torch.Tensor, Work | None]:
    """a · b, this PE's partial sum of all of C, in symmetric memory that the next call overwrites; and what computes it
    again."""
    summand = local_result(gemm.comm, gemm.a.shape[0], gemm.b.shape[1], gemm.c.dtype)
    return summand, local_gemm(gemm._replace(c=summand, epilogue=EMPTY))
