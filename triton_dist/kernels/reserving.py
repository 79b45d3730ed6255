"""``kernels.reserve``: make the workspaces of operations before the first call, as large as any call will need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton

from triton_dist.kernels.attention.flash_decode import reserve_slots as reserve_decode_slots
from triton_dist.kernels.collectives.exchange import reserve_exchange
from triton_dist.kernels.collectives.parts import part_of
from triton_dist.kernels.collectives.staging import staging, staging_barriers
from triton_dist.kernels.collectives.two_exchanges import MESSAGES
from triton_dist.kernels.collectives.two_level.memory import memory
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.device import is_hopper, sms
from triton_dist.kernels.functional import layout
from triton_dist.kernels.gemm.arguments import DTYPES
from triton_dist.kernels.gemm.between_hosts import columns_of_all, sums_of_rows
from triton_dist.kernels.gemm.config import ring_rows
from triton_dist.kernels.gemm.few_columns import FEW_BYTES, few_columns
from triton_dist.kernels.gemm.fp8 import FP8, SCALE_BLOCK
from triton_dist.kernels.gemm.small_m import reserve_slots
from triton_dist.kernels.gemm.two_level import shards_of_hosts, sums_of_hosts
from triton_dist.kernels.gemm.workspaces import gathered_rows, gathered_scales, local_result, partial_sums
from triton_dist.kernels.moe import reserving as of_experts
from triton_dist.kernels.moe.reserving import Experts
from triton_dist.kernels.norm.arguments import fits as fits_norm
from triton_dist.kernels.norm.arguments import slots_for
from triton_dist.kernels.protocols.host_exchange import exchange_signals
from triton_dist.kernels.protocols.ll import ll_slots
from triton_dist.kernels.protocols.workspace import barrier_state, symmetric_buffer
from triton_dist.kernels.shards import each_of

__all__ = ["OPERATIONS", "reserve"]


def _slots_and_barriers(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    ll_slots(comm)
    barrier_state(comm)


def _reduction(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    staging(comm, torch.int32)
    staging_barriers(comm)
    reserve_exchange(comm, -(-rows // comm.n_pes) * hidden * dtype.itemsize)


def _reduction_to_all(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _reduction(comm, rows, hidden, dtype)
    _exchanges_of_sums(comm, rows * hidden, dtype)


def _exchanges_of_sums(comm: Communicator, numel: int, dtype: torch.dtype) -> None:
    reserve_exchange(comm, numel * dtype.itemsize)
    reserve_exchange(comm, part_of(numel, comm.n_pes) * dtype.itemsize, MESSAGES.value)


def _gathered(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    _gathered_rows(comm, rows, hidden, dtype)
    _flags(comm, rows, 0)


def _gathered_rows(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    gathered_rows(comm, rows, hidden, dtype)
    reserve_exchange(comm, each_of(rows, comm.n_pes) * hidden * dtype.itemsize)
    if dtype in FP8:
        gathered_scales(comm, rows, -(-hidden // SCALE_BLOCK))


def _scattered(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _slots_and_barriers(comm, rows, hidden, dtype)
    few_columns(comm)
    reserve_exchange(comm, FEW_BYTES)
    _flags(comm, rows, 0)


def _partial_sums(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype, *, to_all: bool) -> None:
    result = torch.bfloat16 if dtype in FP8 else dtype
    (_reduction_to_all if to_all else _reduction)(comm, rows, hidden, result)
    local_result(comm, rows, hidden, result)
    if dtype == result:
        reserve_slots(comm, rows, hidden, dtype.itemsize, to_all=to_all)
    if is_hopper():
        from triton_dist.kernels.gemm.hopper.direct import each_by_rows, each_by_turns, most_staged

        shards = 1 if to_all else comm.n_pes
        padded = ring_rows(rows, shards)
        partial_sums(comm, padded, hidden, result)
        partial_sums(comm, *most_staged(padded, hidden, comm.n_pes, each_by_turns if to_all else each_by_rows), result)
        _flags(comm, rows, hidden, shards)


def _norm(
    comm: Communicator, rows: int, hidden: int, dtype: torch.dtype, *, name: str, messages: dict[str, int]
) -> None:
    dtype = torch.bfloat16 if dtype in FP8 else dtype
    row = torch.empty(0, hidden, dtype=dtype, device=comm.world.device)
    if fits_norm(hidden):
        for operation, count in messages.items():
            slots_for(comm, operation, count, row)
    if name == "all_reduce_norm":
        _exchanges_of_sums(comm, rows * hidden, dtype)
        symmetric_buffer(comm, "all_reduce_norm", rows * hidden * dtype.itemsize)
    if name == "norm_all_gather":
        _slots_and_barriers(comm, rows, hidden, dtype)
        symmetric_buffer(comm, "norm_all_gather, output", rows * hidden * dtype.itemsize)
        symmetric_buffer(comm, "norm_all_gather, scales", rows * -(-hidden // 128) * 4)
    else:
        _reduction(comm, rows, hidden, dtype)


def _flags(comm: Communicator, rows: int, columns: int, shards: int = 1) -> None:
    """Flags of a plan for each number of rows of tiles, with ``columns`` if tiles have some, for two shapes of B.

    A plan is for a number of rows of tiles of each of the ``shards``.
    """
    if is_hopper():
        from triton_dist.kernels.gemm.hopper.layout import TILES
        from triton_dist.kernels.gemm.hopper.memory import GemmMemory

        plans, across = triton.cdiv(triton.cdiv(rows, shards), 128), triton.cdiv(columns, 64)
        each = 256 + TILES.value  # with the tokens of copies
        comm.own(GemmMemory).reserve(2 * (plans * each + across * shards * plans * (plans + 1) // 2))


_COLLECTIVES = ("all_gather", "all_to_all", "broadcast", "reduce_scatter", "all_reduce")
_RESERVE: dict[str, Callable[[Communicator, int, int, torch.dtype], None]] = {
    **dict.fromkeys(_COLLECTIVES[:3], _slots_and_barriers),
    "reduce_scatter": _reduction,
    "all_reduce": _reduction_to_all,
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


def _gathered_between_hosts(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    _gathered_rows(comm, rows, hidden, dtype)
    shards_of_hosts(comm, rows // comm.n_pes, hidden, dtype, -(-hidden // SCALE_BLOCK) if dtype in FP8 else 0)
    _slices(comm, "all_gather_gemm", rows, hidden, dtype)


def _sums_between_hosts(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    result = torch.bfloat16 if dtype in FP8 else dtype
    local_result(comm, rows, hidden, result)
    sums_of_rows(comm, each_of(rows, comm.n_pes), hidden)
    sums_of_hosts(comm, rows // comm.n_pes, hidden, result)
    _slices(comm, "gemm_reduce_scatter", rows, hidden, dtype)


def _slices(comm: Communicator, name: str, rows: int, hidden: int, dtype: torch.dtype) -> None:
    """What exchanges need, and the fused GEMM of a host's rows, unless it has one PE."""
    exchange_signals(comm)
    if comm.grid.is_by_hosts and comm.grid.per_host > 1:
        _RESERVE[name](comm.within_host, rows // comm.grid.hosts, hidden, dtype)


def _columns_between_hosts(comm: Communicator, rows: int, hidden: int, dtype: torch.dtype) -> None:
    columns_of_all(comm, rows, -(-hidden // comm.n_pes), torch.bfloat16 if dtype in FP8 else dtype)


_GEMMS_BETWEEN_HOSTS: dict[str, Callable[[Communicator, int, int, torch.dtype], None]] = {
    "all_gather_gemm": _gathered_between_hosts,
    "gemm_all_scatter": _columns_between_hosts,
    "gemm_reduce_scatter": _sums_between_hosts,
    "gemm_all_reduce": _sums_between_hosts,
}
OPERATIONS = (*_RESERVE, "flash_decode", *of_experts.RESERVE)
"""What can be reserved."""

_FUNCTIONAL = ("all_gather", "all_reduce", "all_to_all", "gemm_all_reduce", "gemm_all_scatter")
"""Whose functional forms have workspace for a result that peers store to."""


_EXCHANGES_TOKENS = (*of_experts.BETWEEN_HOSTS, "all_gather_grouped_gemm")
"""Operations on experts whose tokens have ``hidden`` columns, and are moved by 16 bytes."""


class _Sizes(NamedTuple):
    """The arguments of :func:`reserve` that are numbers or a dtype."""

    max_tokens: int
    hidden: int
    dtype: torch.dtype
    num_experts: int
    top_k: int
    scales: int
    num_sms: int
    heads: int
    head_dim: int


def _lacking(name: str, sizes: _Sizes) -> str:
    """What an operation needs that is not given; empty if all is there."""
    needed: tuple[str, ...] = ("hidden",)
    if name == "flash_decode":
        needed = "heads", "head_dim"
    elif name == "gather_routing":
        needed = "num_experts", "top_k"
    elif name in of_experts.RESERVE:
        needed = "hidden", "num_experts", "top_k"
    return " and ".join(f"{size}=" for size in needed if not getattr(sizes, size))


def _check_experts(names: Sequence[str], sizes: _Sizes) -> None:
    """ValueError for sizes that no call of these operations on experts can have: their workspace would serve none."""
    if sizes.top_k > 64:
        raise ValueError(f"reserve: top_k of {names[0]} must be in [1, 64], got {sizes.top_k}")
    if sizes.num_sms > sms():
        raise ValueError(f"reserve: num_sms of {names[0]} must be in [0, {sms()}], got {sizes.num_sms}")
    for name in names:
        # What combine returns is of the dtype of the experts' results, which is not fp8.
        dtype = torch.bfloat16 if name.startswith("combine") and sizes.dtype in FP8 else sizes.dtype
        nbytes = sizes.hidden * dtype.itemsize
        if name in _EXCHANGES_TOKENS and nbytes % 16:
            raise ValueError(
                f"reserve: a row of {name} must be a multiple of 16 bytes, got hidden = {sizes.hidden} of {dtype},"
                f" {nbytes} bytes"
            )


def reserve(
    *operations: str,
    max_tokens: int,
    hidden: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    functional: bool = False,
    num_experts: int = 0,
    top_k: int = 0,
    scales: int = 0,
    num_sms: int = 0,
    heads: int = 0,
    head_dim: int = 0,
    group: Any = None,
) -> dict[str, int]:
    """Make the symmetric workspaces of ``operations`` now, so that calls within these limits make none.

    *Collective* over ``group``, whose communicator keeps them. What exists already, and what several operations share,
    is made once.

    Args:
        operations: names of collectives, norms, GEMMs, ``flash_decode`` and operations of ``kernels.moe``; by default
            all of those for which what they need is given. Of a group over several hosts: names of collectives,
            GEMMs, ``dispatch`` and ``combine``.
        max_tokens: the most rows of a call: of all PEs together where these have some each. Of operations on experts
            what they call ``max_tokens``: of each PE. Of ``flash_decode`` the most requests.
        hidden: the columns of rows that PEs exchange: of tokens, a norm or a collective; K of ``all_gather_gemm``; N of
            ``gemm_reduce_scatter`` and ``gemm_all_reduce``; the columns of the result of all PEs of
            ``gemm_all_scatter``. ``flash_decode`` needs none.
        dtype: of rows, of tokens that are dispatched, and of the operands of GEMMs; results of fp8 operands are of
            bfloat16.
        functional: also for the forms of ``kernels.functional``, whose results peers store to workspace.
        num_experts, top_k: for operations on experts: of all PEs together, and the choices of a token.
        scales: how many float32 scales a dispatched or gathered row has: with fp8 1, or one for 128 columns.
        num_sms: what dispatch, and slices of experts, are called with.
        heads: of queries, for ``flash_decode``: of those whose results a PE gets.
        head_dim: elements of a value there, at most.

    Returns:
        bytes of this PE's symmetric memory by operation, counted for the first that needs them. Their sum is what the
        communicator's ``workspace_bytes`` has grown by.

    Raises:
        ValueError: an operation is none of these or lacks a size, or a size is not possible. MemoryError: the symmetric
        memory is too small. RuntimeError: a CUDA graph is captured.
    """
    sizes = _Sizes(max_tokens, hidden, dtype, num_experts, top_k, scales, num_sms, heads, head_dim)
    for name, size in sizes._asdict().items():
        if name != "dtype" and (type(size) is not int or size < (name == "max_tokens")):
            raise ValueError(f"reserve: {name} must be a positive int, got {size!r}")
    if dtype not in DTYPES:
        raise ValueError(f"reserve: dtype must be {', '.join(map(str, DTYPES))}, got {dtype}")
    if unknown := [name for name in operations if name not in OPERATIONS]:
        raise ValueError(f"reserve: {unknown[0]!r} is none of {', '.join(OPERATIONS)}")
    for name in operations:
        if lacking := _lacking(name, sizes):
            raise ValueError(f"reserve: {name} needs {lacking}")
    chosen = tuple(dict.fromkeys(operations)) or tuple(name for name in OPERATIONS if not _lacking(name, sizes))
    if not chosen:
        raise ValueError("reserve: give hidden=, for collectives, norms and GEMMs, or heads= and head_dim=")
    with calling("reserve", group, between_hosts=True) as comm:
        if num_experts % comm.n_pes:
            raise ValueError(f"reserve: num_experts must be a multiple of the {comm.n_pes} PEs, got {num_experts}")
        if of_tokens := [name for name in chosen if name in of_experts.RESERVE]:
            _check_experts(of_tokens, sizes)
        comm.compare("reserve", chosen, functional, *sizes)
        if comm.grid.hosts > 1:
            return {name: _made_between_hosts(comm, name, sizes, functional) for name in chosen}
        return {name: _made(comm, name, sizes, functional) for name in chosen}


def _made_between_hosts(comm: Communicator, name: str, sizes: _Sizes, functional: bool) -> int:
    if name in of_experts.BETWEEN_HOSTS:
        return _made(comm, name, sizes, functional)
    if name not in (*_COLLECTIVES, *_GEMMS_BETWEEN_HOSTS):
        comm.check_one_host(name)
    before = comm.workspace_bytes
    memory(comm, torch.int32)
    if name in _GEMMS_BETWEEN_HOSTS:
        rows, result = _rows(comm, sizes.max_tokens), torch.bfloat16 if sizes.dtype in FP8 else sizes.dtype
        _GEMMS_BETWEEN_HOSTS[name](comm, rows, sizes.hidden, sizes.dtype)
        if functional and name in _FUNCTIONAL:
            layout.workspace(comm, name, (rows, sizes.hidden), result)
    return comm.workspace_bytes - before


def _rows(comm: Communicator, tokens: int) -> int:
    """Rows of all PEs, which have equally many."""
    return -(-tokens // comm.n_pes) * comm.n_pes


def _made(comm: Communicator, name: str, sizes: _Sizes, functional: bool) -> int:
    before = comm.workspace_bytes
    tokens, hidden, dtype = sizes.max_tokens, sizes.hidden, sizes.dtype
    if name == "flash_decode":
        reserve_decode_slots(comm, tokens, sizes.heads, sizes.head_dim)
    elif name in of_experts.RESERVE:
        if name == "gather_routing":
            _slots_and_barriers(comm, tokens, hidden, dtype)
        of = Experts(tokens, hidden, dtype, sizes.num_experts, sizes.top_k, sizes.scales, sizes.num_sms)
        of_experts.RESERVE[name](comm, of)
    else:
        rows = _rows(comm, tokens)
        _RESERVE[name](comm, rows, hidden, dtype)
        if functional and name in _FUNCTIONAL:
            result = torch.bfloat16 if dtype in FP8 and "gemm" in name else dtype
            layout.workspace(comm, name, (rows, hidden), result)
    return comm.workspace_bytes - before
