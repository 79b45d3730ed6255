"""Which algorithm ``auto`` takes for a GEMM. Nothing is timed."""

from __future__ import annotations

from collections.abc import Iterable

import torch

import triton_dist
from triton_dist.kernels.choice.choose import choose_by_model
from triton_dist.kernels.choice.tables import Case
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm.model import Gemm, estimates

__all__ = ["case_of", "choose_gemm"]


def case_of(operation: str, a: torch.Tensor, b: torch.Tensor, *, scales: str = "", rows: int | None = None) -> Case:
    """The case of a product of ``a`` [M, K] and ``b`` [K, N], as they are passed, or with so many ``rows``.

    With ``scales`` of blocks or rows it is another: cuBLAS is not used then, and our kernels compute those of blocks at
    another rate.
    """
    dtype = str(a.dtype).removeprefix("torch.") + (f"_{scales}" if scales else "")
    return Case(operation, dtype, (a.shape[0] if rows is None else rows, b.shape[1], b.shape[0]))


def choose_gemm(
    comm: Communicator,
    operation: str,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    algorithms: Iterable[str],
    *,
    scales: str = "",
    rows: int | None = None,
) -> str:
    """One of the available ``algorithms`` for ``operation``, in which this PE computes ``c``; the same on all PEs.

    Where PEs share the rows of A, each has ``rows``, but the last, which may have fewer.

    In the CPU world, where times mean nothing, the first.
    """
    from triton_dist.kernels.gemm.hopper.launch import fits

    names = tuple(algorithms)
    if triton_dist.kind() == "cpu" or len(names) == 1:
        return names[0]
    m = max(a.shape[0], c.shape[0])  # PEs that share rows of A compute all rows of C, and of A if they share those of C
    case = case_of(operation, a, b, scales=scales, rows=rows)
    shards = comm.n_pes if operation == "all_gather_gemm" else 1
    within = comm if comm.grid.hosts == 1 or operation == "local_gemm" else comm.within_host

    def model(sizes: tuple[int, ...]) -> dict[str, float]:
        first, n, k = sizes
        computed = m if first == case.sizes[0] else first * shards
        hopper = fits(within, a, b, c)
        gemm = Gemm(computed, n, k, a.dtype, c.dtype, comm.n_pes, hopper, scales, comm.grid.hosts)
        return estimates(operation, gemm, names)

    return choose_by_model(comm, case, names, model)
