"""``kernels.reserve``: make the workspaces of operations before the first call, as large as any call will need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton

import triton_dist
from triton_dist.kernels.collectives.staging import staging, staging_barriers
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import gpu
from triton_dist.kernels.functional import layout
from triton_dist.kernels.gemm.arguments import DTYPES
from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.fp8 import FP8
from triton_dist.kernels.gemm.plan_cache import symmetric_matrix
from triton_dist.kernels.gemm.small_m import reserve_slots
from triton_dist.kernels.norm.arguments import fits as fits_norm
from triton_dist.kernels.norm.arguments import slots_for
from triton_dist.kernels.protocols.ll import ll_slots
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_buffer

__all__ = ["OPERATIONS", "reserve"]


def _slots_and_barriers(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    ll_slots(comm)
    barrier_state(comm)


def _reduction(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    staging(comm, torch.int32)
    staging_barriers(comm)


def _gathered(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    symmetric_matrix(comm, "gathered", rows, hidden, dtype)
    _flags(comm, rows, 0)


def _scattered(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    _flags(comm, rows, 0)


def _partial_sums(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype, *, to_all: bool) -> None:
    result = torch.bfloat16 if dtype in FP8 else dtype
    _reduction(comm, rows, hidden, result)
    symmetric_matrix(comm, "product", rows, hidden, result)
    if dtype == result:
        reserve_slots(comm, rows, hidden, dtype.itemsize, to_all=to_all)
    if _on_hopper():
        shards = 1 if to_all else comm.n_pes
        symmetric_matrix(comm, "ring", ring_rows(rows, shards), hidden, result)
        _flags(comm, rows, hidden, shards)


def _norm(
    comm: Communicator, rows: int, hidden: int, dtype: torch.dtype, *, name: str, messages: dict[str, int]
) -> None:
    dtype = torch.bfloat16 if dtype in FP8 else dtype
    row = torch.empty(0, hidden, dtype=dtype)
    if fits_norm(hidden):
        for operation, count in messages.items():
            slots_for(comm, operation, count, row)
    if name == "all_reduce_norm":
        symmetric_buffer(comm, "all_reduce_norm", rows * hidden * dtype.itemsize)
    if name == "norm_all_gather":
        _slots_and_barriers(comm, rows, hidden, dtype)
        symmetric_buffer(comm, "norm_all_gather, output", rows * hidden * dtype.itemsize)
        symmetric_buffer(comm, "norm_all_gather, scales", rows * -(-hidden // 128) * 4)
    else:
        _reduction(comm, rows, hidden, dtype)


def _on_hopper() -> bool:
    return triton_dist.kind() == "gpu" and gpu().capability == (9, 0)


def _flags(comm: Communicator, rows: int, columns: int, shards: int = 1) -> None:
    """Flags of a plan for each number of rows of tiles, with ``columns`` if tiles have some, for two shapes of B.

    A plan is for a number of rows of tiles of each of the ``shards``.
    """
    if _on_hopper():
        from triton_dist.kernels.gemm.hopper.layout import TILES
        from triton_dist.kernels.gemm.hopper.memory import GemmMemory

        plans, across = triton.cdiv(triton.cdiv(rows, shards), 128), triton.cdiv(columns, 64)
        each = 256 + TILES.value  # with the tokens of copies
        comm.own(GemmMemory).reserve(2 * (plans * each + across * shards * plans * (plans + 1) // 2))


_RESERVE: dict[str, Callable[[Communicator, int, int, torch.dtype], None]] = {
    **dict.fromkeys(("all_gather", "all_to_all", "broadcast"), _slots_and_barriers),
    **dict.fromkeys(("reduce_scatter", "all_reduce"), _reduction),
    "all_reduce_norm": lambda *given: _norm(
        *given, name="all_reduce_norm", messages={"all_reduce_norm, one_shot": 1, "all_reduce_norm, two_shot": 2}
    ),
    "reduce_scatter_norm": lambda *given: _norm(
        *given, name="reduce_scatter_norm", messages={"reduce_scatter_norm": 1}
    ),
    "norm_all_gather": lambda *given: _norm(*given, name="norm_all_gather", messages={"norm_all_gather": 1}),
    "all_gather_gemm": _gathered,
    "gemm_all_scatter": _scattered,
    "gemm_reduce_scatter": lambda *given: _partial_sums(*given, to_all=False),
    "gemm_all_reduce": lambda *given: _partial_sums(*given, to_all=True),
}
OPERATIONS = tuple(_RESERVE)
"""What can be reserved."""

_FUNCTIONAL = ("all_gather", "all_reduce", "all_to_all", "gemm_all_reduce", "gemm_all_scatter")
"""Whose functional forms have workspace for a result that peers store to."""


def reserve(
    *operations: str,
    max_tokens: int,
    hidden: int,
    dtype: torch.dtype = torch.bfloat16,
    functional: bool = False,
    group: Any = None,
) -> dict[str, int]:
    """Make the symmetric workspaces of ``operations`` now, so that calls within these limits make none.

    *Collective* over ``group``, whose communicator keeps them. What exists already, and what several operations share,
    is made once.

    Args:
        operations: names of collectives, norms and GEMMs of this package; by default all of them.
        max_tokens: the most rows of a call: of all PEs together where these have some each.
        hidden: the columns of rows that PEs exchange: of a norm or a collective; K of ``all_gather_gemm``; N of
            ``gemm_reduce_scatter`` and ``gemm_all_reduce``; the columns of the result of all PEs of
            ``gemm_all_scatter``.
        dtype: of rows and of the operands of GEMMs; results of fp8 operands are of bfloat16.
        functional: also for the forms of ``kernels.functional``, whose results peers store to workspace.

    Returns:
        bytes of this PE's symmetric memory by operation, counted for the first that needs them. Their sum is what the
        communicator's ``workspace_bytes`` has grown by.

    Raises:
        ValueError: an operation is none of these, or a size is not positive. MemoryError: the symmetric memory is too
        small. RuntimeError: a CUDA graph is captured.
    """
    for name, size in (("max_tokens", max_tokens), ("hidden", hidden)):
        if type(size) is not int or size < 1:
            raise ValueError(f"reserve: {name} must be a positive int, got {size!r}")
    if dtype not in DTYPES:
        raise ValueError(f"reserve: dtype must be {', '.join(map(str, DTYPES))}, got {dtype}")
    if unknown := [name for name in operations if name not in OPERATIONS]:
        raise ValueError(f"reserve: {unknown[0]!r} is none of {', '.join(OPERATIONS)}")
    with calling("reserve", group) as comm:
        comm.compare("reserve", operations, max_tokens, hidden, dtype, functional)
        rows = -(-max_tokens // comm.n_pes) * comm.n_pes
        return {name: _made(comm, name, rows, hidden, dtype, functional) for name in operations or OPERATIONS}


def _made(comm: Communicator, name: str, rows: int, hidden: int, dtype: torch.dtype, functional: bool) -> int:
    before = comm.workspace_bytes
    _RESERVE[name](comm, rows, hidden, dtype)
    if functional and name in _FUNCTIONAL:
        result = torch.bfloat16 if dtype in FP8 and "gemm" in name else dtype
        layout.workspace(comm, name, (rows, hidden), result)
    return comm.workspace_bytes - before
