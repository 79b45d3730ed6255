"""The host's side of tokens by TMA (``tokens_hopper.py``, ``token_sums_hopper.py``): launches, and the memory that
programs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.dependent_launch import launch_options
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.rounds_by_tma import RoundsMemory, map_of, slots_of_lanes
from triton_dist.kernels.moe.rounds_plan import (
    LINE_BYTES,
    TokensPlan,
    depth_for,
    early_rounds_for,
    lines_in_memory,
    row_time_for,
    unit_for,
)
from triton_dist.kernels.moe.token_batches import (
    BATCH,
    batch_slots,
    begins_early,
    exchange_batches,
    header_words,
    tables_of,
)
from triton_dist.kernels.prepared import Launch, Step, launch, steps
from triton_dist.kernels.protocols.workspace import peer_distances, symmetric_workspace

__all__ = [
    *("Beside", "combine_by_tma", "configuration", "configuration_of_sums", "dispatch_by_tma", "make_slots"),
    *("make_slots_of_sums", "move_directly", "move_tokens"),
]

_PEERS = 7
"""Of which the kernel takes slots."""
_OF_EARLY = 3
"""Rows of the ring of what comes in early rounds, where others go to results."""


class Beside(NamedTuple):
    """What goes with tokens, or has come with them; None: nothing of the kind. Without ids there are no weights."""

    ids: torch.Tensor | None
    weights: torch.Tensor | None
    scales: torch.Tensor | None

    @property
    def n_scales(self) -> int:
        return 0 if self.scales is None else int(self.scales.shape[1])


class _Lanes(NamedTuple):
    """The memory of all programs for rows of one kind.

    Attributes:
        slots: symmetric int32, [depth, n_pes, programs, 8] rows. flags: symmetric int32 [n_pes, programs].
        distances: int64 [n_pes], bytes from the flags to those of a peer.
        rounds: int32 [2, programs], the last round, and the newest that has arrived at the peers.
    """

    slots: torch.Tensor
    flags: torch.Tensor
    distances: torch.Tensor
    rounds: torch.Tensor


class _Early(NamedTuple):
    """The memory of early tokens of dispatches to results, which may have headers of several kinds in turn.

    Attributes:
        slots: symmetric int32, [2, n_pes, programs, rounds, 8] rows. flags: symmetric int32 [n_pes, programs].
        distances: int64 [n_pes], bytes from the flags to those of a peer. calls: int32 [programs], the last call.
    """

    slots: torch.Tensor
    flags: torch.Tensor
    distances: torch.Tensor
    calls: torch.Tensor


class _Headers(NamedTuple):
    """The memory of what goes beside rows.

    Attributes:
        calls: int32 [programs], the last call.
        slots: symmetric int32, [2, n_pes, max_tokens] headers. flags: symmetric int32 [n_pes, programs].
        distances, flag_distances: int64 [n_pes], bytes from there to those of a peer.
    """

    calls: torch.Tensor
    slots: torch.Tensor
    flags: torch.Tensor
    distances: torch.Tensor
    flag_distances: torch.Tensor


def configuration(
    plan: TokensPlan, routing: Routing, lines: int, n_scales: int, with_ids: bool, *, early: bool = False
) -> Any:
    """The constants of a launch for rows of so many lines; ``early`` if the kernel in front makes the tables."""
    from triton_dist.kernels.moe.token_ring import TokensConfig

    tables, sizes = tables_of(routing), _sizes(routing, lines)
    return TokensConfig(
        routing.members.size, tables.batches, lines_in_memory(lines), plan.sent, plan.received, tables[:4],
        depth_for(*sizes), routing.top_k, routing.local_experts, routing.max_tokens, n_scales, with_ids,
        early_rounds_for(*sizes) if early else 0,
    )  # fmt: skip


def configuration_of_sums(plan: TokensPlan, routing: Routing, lines: int, dtype: torch.dtype) -> Any:
    """As :func:`configuration`, of a combine."""
    return replace(
        configuration(plan, routing, lines, 0, False), row_time=row_time_for(*_sizes(routing, lines)), row_lines=lines,
        dtype=str(dtype).removeprefix("torch."),
    )  # fmt: skip


def _sizes(routing: Routing, lines: int) -> tuple[int, int, int, int]:
    """PEs, lanes, tokens of a round, and bytes of a row."""
    return routing.members.size, routing.num_sms, BATCH, lines * LINE_BYTES


def _lanes(routing: Routing, what: str, lines: int, buffer: int) -> _Lanes:
    """*Collective* the first time."""
    comm, lanes = routing.comm, routing.num_sms
    assert comm is not None
    depth = depth_for(*_sizes(routing, lines))
    name = f"moe {what} by TMA: {lines} lines, {lanes} programs, {depth} rounds, buffer {buffer}"
    slots, flags = slots_of_lanes(comm, name, lanes, BATCH * lines, depth)
    memory = comm.own(RoundsMemory)
    return _Lanes(slots, flags, peer_distances(comm, flags), memory.rounds(name, 2 * lanes))


def _headers(routing: Routing, header: int, buffer: int) -> _Headers:
    """*Collective* the first time."""
    comm, lanes, most = routing.comm, routing.num_sms, routing.max_tokens
    assert comm is not None
    name = f"moe beside tokens: {header} words, {most} tokens, {lanes} programs, buffer {buffer}"
    slots = symmetric_workspace(comm, name, max(1, 2 * comm.n_pes * most * header))
    flags = symmetric_workspace(comm, f"{name}, flags", comm.n_pes * lanes)
    memory = comm.own(RoundsMemory)
    return _Headers(memory.rounds(name, lanes), slots, flags, peer_distances(comm, slots), peer_distances(comm, flags))


def _flags_of_results(routing: Routing, header: int, buffer: int) -> torch.Tensor:
    """Symmetric int32 [n_pes, programs], numbers of calls, which those of :func:`_headers` are. *Collective* the first
    time."""
    comm, lanes = routing.comm, routing.num_sms
    assert comm is not None
    name = f"moe tokens to results: {header} words, {routing.max_tokens} tokens, {lanes} programs, buffer {buffer}"
    return symmetric_workspace(comm, name, comm.n_pes * lanes)


def _early_tokens(routing: Routing, lines: int, early: int, buffer: int) -> _Early:
    """The memory for so many early rounds. *Collective* the first time."""
    comm, lanes = routing.comm, routing.num_sms
    assert comm is not None
    name = f"moe early tokens by TMA: {lines} lines, {lanes} programs, {early} rounds, buffer {buffer}"
    slots, flags = slots_of_lanes(comm, name, lanes, BATCH * early * lines, 2)
    memory = comm.own(RoundsMemory)
    return _Early(slots, flags, peer_distances(comm, flags), memory.rounds(f"{name}, calls", lanes))


def _claims(routing: Routing, lines: int, early: int, buffer: int) -> torch.Tensor:
    """int32 [1 + programs], of ``token_claims.py``."""
    comm, lanes = routing.comm, routing.num_sms
    assert comm is not None
    name = f"moe claims of tokens: {lines} lines, {lanes} programs, {early} rounds, buffer {buffer}"
    return comm.own(RoundsMemory).rounds(name, 1 + lanes)


def _maps_of_all(routing: Routing, rows: torch.Tensor, lines: int) -> list[Any]:
    """The descriptors of symmetric rows, of this PE's and of its peers', and None in place of further ones."""
    comm = routing.comm
    assert comm is not None
    peers = [map_of(comm.peer(rows, (comm.my_rank + i) % comm.n_pes), lines) for i in range(1, comm.n_pes)]
    return [map_of(rows, lines), *peers, *[None] * (_PEERS - len(peers))]


def _words(beside: Beside, memory: torch.Tensor) -> list[torch.Tensor]:
    """As the kernel takes them; ``memory`` stands for what there is not."""
    ids, weights, scales = beside
    return [
        memory if ids is None else ids,
        memory if weights is None else in_int32(weights),
        memory if scales is None else in_int32(scales),
    ]


def move_tokens(
    plan: TokensPlan, x: torch.Tensor, routing: Routing, given: Beside, out: torch.Tensor, found: Beside,
    memory: torch.Tensor, buffer: int, *, early: bool = False,
) -> Launch | None:  # fmt: skip
    """Move tokens, and what goes with them, by the tables in ``memory``. With ``early`` the kernel in front makes them,
    and tokens go by their ids meanwhile. *Collective* the first time."""
    from triton_dist.kernels.moe.tokens_hopper import moe_dispatch_tokens_by_tma

    assert routing.comm is not None
    lines = x.shape[1] * x.element_size() // LINE_BYTES
    config = configuration(plan, routing, lines, given.n_scales, given.ids is not None, early=early)
    of, headers = _lanes(routing, "tokens", lines, buffer), _headers(routing, config.header, buffer)
    rows = x if len(x) else out  # nothing is loaded of a PE without tokens, but TMA needs an address
    beside = [*_words(given, memory), *_words(found, memory)]
    if early:
        beside[0] = routing.ids
    return launch(
        moe_dispatch_tokens_by_tma, (routing.num_sms,), (map_of(rows, lines), map_of(out, lines), *beside, memory),
        *_maps_of_all(routing, of.slots, lines), routing.n_tokens, of.flags, of.distances, of.rounds, *headers,
        routing.capacity, routing.comm.my_rank, config, num_warps=4, **launch_options(dependent=begins_early()),
    )  # fmt: skip


def move_directly(
    plan: TokensPlan, x: torch.Tensor, routing: Routing, given: Beside, out: torch.Tensor, found: Beside,
    memory: torch.Tensor, buffer: int,
) -> Launch | None:  # fmt: skip
    """As :func:`move_tokens`, to ``out`` of all PEs, which is symmetric. The kernel in front makes the tables."""
    from triton_dist.kernels.moe.tokens_direct_hopper import moe_dispatch_tokens_directly

    comm = routing.comm
    assert comm is not None
    lines = x.shape[1] * x.element_size() // LINE_BYTES
    received = min(_OF_EARLY, plan.received)
    rings = TokensPlan(plan.sent + plan.received - received, received)
    config = configuration(rings, routing, lines, given.n_scales, given.ids is not None, early=True)
    config = replace(config, sends=tables_of(routing).sends, unit=unit_for(lines * LINE_BYTES))
    flags = _flags_of_results(routing, config.header, buffer)
    distances, early = peer_distances(comm, flags), _early_tokens(routing, lines, config.early, buffer)
    claims, headers = _claims(routing, lines, config.early, buffer), _headers(routing, config.header, buffer)
    beside = [*_words(given, memory), *_words(found, memory)]
    beside[0] = routing.ids
    result, *results = _maps_of_all(routing, out, lines)
    tensors = map_of(x, lines) if len(x) else result, result  # as in move_tokens
    return launch(
        moe_dispatch_tokens_directly, (routing.num_sms,), (*tensors, *beside, memory), *results,
        *_maps_of_all(routing, early.slots, lines), routing.n_tokens, flags, distances, *early[1:], claims, *headers,
        routing.capacity, comm.my_rank, config, num_warps=4, **launch_options(dependent=begins_early()),
    )  # fmt: skip


def dispatch_by_tma(
    plan: TokensPlan, x: torch.Tensor, routing: Routing, given: Beside, out: torch.Tensor, found: Beside,
    memory: torch.Tensor, buffer: int, *, direct: bool = False,
) -> Sequence[Step] | None:  # fmt: skip
    """Dispatch into ``out`` and ``found``: the tables by one kernel, then rows by another; ``direct`` if ``out`` is
    symmetric, to be stored to by all PEs.

    The steps take the tensors of ``tokens.py``: x, ids, weights, scales, out, out_ids, out_weights,
    out_scales, memory; x, ids or memory where there is none of the kind.
    """
    has_tokens, with_ids, with_scales = len(x) > 0, given.ids is not None, given.scales is not None

    def of_tables(x: Any, ids: Any, *others: Any) -> Any:
        return ids, others[-1]

    def of_rows(x: Any, ids: Any, weights: Any, scales: Any, out: Any, out_ids: Any, out_weights: Any,
                out_scales: Any, memory: Any) -> Any:  # fmt: skip
        beside = ids, weights if with_ids else memory
        found = (out_ids, out_weights) if with_ids else (memory, memory)
        one, other = (scales, out_scales) if with_scales else (memory, memory)
        return (x if has_tokens else out), out, *beside, one, *found, other, memory

    tables = exchange_batches(routing, memory, buffer, direct=direct)
    move = move_directly if direct else partial(move_tokens, early=True)
    rows = move(plan, x, routing, given, out, found, memory, buffer)
    return steps((tables, of_tables), (rows, of_rows))


def combine_by_tma(
    plan: TokensPlan, y: torch.Tensor, routing: Routing, memory: torch.Tensor, out: torch.Tensor, buffer: int
) -> Launch | None:
    """Combine into ``out`` by the tables of a dispatch, which are in ``memory``. *Collective* the first time."""
    from triton_dist.kernels.moe.token_sums_hopper import moe_combine_tokens_by_tma

    assert routing.comm is not None
    lines = y.shape[1] * y.element_size() // LINE_BYTES
    of = _lanes(routing, "sums of tokens", lines, buffer)
    rows = y if len(y) else of.slots  # as in move_tokens
    return launch(
        moe_combine_tokens_by_tma, (routing.num_sms,), (map_of(rows, lines), in_int32(out), memory),
        *_maps_of_all(routing, of.slots, lines), routing.n_tokens, *of[1:], routing.comm.my_rank,
        configuration_of_sums(plan, routing, lines, y.dtype), num_warps=4,
    )  # fmt: skip


def make_slots(routing: Routing, row_bytes: int, n_scales: int) -> None:
    """Make the memory of dispatches of rows of so many bytes. *Collective.*"""
    header, lines = header_words(routing.top_k, n_scales, True), row_bytes // LINE_BYTES
    for direct in (False, True):
        batch_slots(routing, 0, direct=direct)
    _lanes(routing, "tokens", lines, 0)
    _headers(routing, header, 0)
    comm, early = routing.comm, early_rounds_for(*_sizes(routing, lines))
    assert comm is not None
    peer_distances(comm, _flags_of_results(routing, header, 0))
    _early_tokens(routing, lines, early, 0)
    _claims(routing, lines, early, 0)


def make_slots_of_sums(routing: Routing, row_bytes: int) -> None:
    """Make the memory of combines of rows of so many bytes. *Collective.*"""
    _lanes(routing, "sums of tokens", row_bytes // LINE_BYTES, 0)
