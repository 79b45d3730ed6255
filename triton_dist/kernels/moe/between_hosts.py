"""Dispatch and combine of a group on several hosts: an exchange between hosts, and one inside each host.

Dispatch: each PE sends its tokens to the PEs of its number on the other hosts (``host_exchange.py``), each token once
to every host that has one of its experts. It then has the tokens of its column: a source for each host. The PEs of a
host dispatch these to each other as those of one host do, and count them source by source, so that rows are in the
order of PEs, tokens and choices, as on one host.

Combine: the PEs of a host combine, so that a PE has one row of sums for each token that it had dispatched, rounded to
the dtype. It returns those of other hosts' tokens, and adds what it gets for its own, in the order of hosts.

Exchanges inside a host work on :func:`inside_host`, a routing of the column's tokens. It can be made from the result of
a dispatch alone, so a combine needs no more than on one host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.moe.arguments import CHUNK, Routing
from triton_dist.kernels.moe.dispatch_counts import TokenSources
from triton_dist.kernels.moe.host_exchange import (
    HostExchange,
    moe_combine_between_hosts,
    moe_dispatch_between_hosts,
    moe_dispatch_between_hosts_receive,
    moe_dispatch_between_hosts_send,
    open_host_exchange,
    options_of,
    words_of_message,
)
from triton_dist.kernels.moe.results import Dispatched, begin_of
from triton_dist.kernels.prepared import Launch, Step, launch, steps
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = [
    "ColumnRows",
    "add_hosts",
    "column_rows",
    "dispatch_slots",
    "exchange_with_hosts",
    "host_ids_of",
    "inside_host",
    "receive_from_hosts",
    "send_to_hosts",
    "sums_of_host",
    "sums_slots",
]


class ColumnRows(NamedTuple):
    """The rows of a column's tokens, by host and token, on their way: those that this host's experts get.

    Attributes:
        x: [tokens_of_hosts, hidden]. scales: [tokens_of_hosts, S] float32, or ``x`` if there are none.
        weights: [tokens_of_hosts, top_k] float32.
    """

    x: torch.Tensor
    scales: torch.Tensor
    weights: torch.Tensor


def column_rows(routing: Routing, dtype: torch.dtype, hidden: int, n_scales: int) -> ColumnRows:
    """Memory for them."""
    rows, new = routing.tokens_of_hosts, routing.ids.new_empty
    x = new(rows, hidden, dtype=dtype)
    scales = new(rows, n_scales, dtype=torch.float32) if n_scales else x
    return ColumnRows(x, scales, new(rows, routing.top_k, dtype=torch.float32))


def inside_host(routing: Routing, memory: torch.Tensor | None, weights: torch.Tensor | None = None) -> Routing:
    """The routing of the column's tokens inside this host. Without ``memory``, of a dispatch's result, of no tokens."""
    comm = routing.comm
    assert comm is not None
    grid = comm.grid
    find = host_ids_of(routing)
    ids = routing.ids.new_empty(0, routing.top_k, dtype=torch.int32) if memory is None else find(memory)
    unit = min(grid.row.stride, grid.column.stride)  # ranks' distances: of hosts, and of PEs of a host
    return routing._replace(
        ids=ids,
        weights=routing.weights if weights is None else weights,
        members=grid.row,
        max_tokens=routing.tokens_of_hosts,
        hosts=1,
        sources=TokenSources(grid.hosts, routing.chunks * CHUNK, grid.column.stride // unit, grid.row.stride // unit),
    )


def host_ids_of(routing: Routing) -> Callable[[torch.Tensor], torch.Tensor]:
    """What finds the ids of :func:`inside_host` in the memory of results of such sizes. It holds no tensor."""
    begin, shape = begin_of(routing, "host_ids"), (routing.tokens_of_hosts, routing.top_k)

    def find(memory: torch.Tensor) -> torch.Tensor:
        return memory[begin : begin + shape[0] * shape[1]].view(shape)

    return find


# ---- dispatch


def exchange_with_hosts(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    result: Dispatched,
    rows: ColumnRows,
    buffer: int,
    sm_margin: int,
    dispatch: Callable[[torch.Tensor, torch.Tensor | None, Routing, Dispatched], Launch | None],
) -> tuple[HostExchange, tuple[Step, ...] | None]:
    """Dispatch into ``result``.

    Args:
        dispatch: dispatches rows inside a host.

    Returns:
        The exchange between hosts, and the steps, which take ``x``, scales (or ``x``), ids, weights, the tensors of
        ``rows``, the result's ``x`` and scales (or ``x``), and its memory.
    """
    n_scales = 0 if scales is None else scales.shape[1]
    exchange, constants = _opened(function, x, n_scales, routing, buffer, sm_margin)
    of_rows = x if scales is None else scales
    given = *map(in_int32, (x, of_rows)), routing.ids, routing.weights
    tensors = *given, *map(in_int32, rows[:2]), rows.weights, result.memory
    crossed = launch(
        moe_dispatch_between_hosts, (exchange.programs,), tensors, routing.n_tokens, exchange.outbox, exchange.inbox,
        exchange.signals, exchange.sent, exchange.received, **constants, **_places(routing), debug=True,
        sanitize_overflow=False,
    )  # fmt: skip
    local = inside_host(routing, result.memory, rows.weights)
    dispatched = dispatch(rows.x, None if scales is None else rows.scales, local, result)
    find = host_ids_of(routing)
    return exchange, steps(
        (crossed, lambda *given: (*given[:7], given[9])),
        (dispatched, lambda *given: (*given[4:6], find(given[9]), *given[6:])),
    )


def send_to_hosts(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    rows: ColumnRows,
    buffer: int,
    sm_margin: int,
) -> tuple[HostExchange, Launch | None]:
    """The first half of a dispatch: send to the other hosts, and copy what stays to ``rows``."""
    exchange, constants = _opened(function, x, 0 if scales is None else scales.shape[1], routing, buffer, sm_margin)
    of_rows = x if scales is None else scales
    tensors = *map(in_int32, (x, of_rows)), routing.ids, routing.weights, *map(in_int32, rows[:2]), rows.weights
    return exchange, launch(
        moe_dispatch_between_hosts_send, (exchange.programs,), tensors, routing.n_tokens, exchange.outbox,
        exchange.inbox, exchange.signals, exchange.sent, **constants, debug=True, sanitize_overflow=False,
    )  # fmt: skip


def receive_from_hosts(
    exchange: HostExchange,
    routing: Routing,
    rows: ColumnRows,
    n_scales: int,
    result: Dispatched,
    dispatch: Callable[[torch.Tensor, torch.Tensor | None, Routing, Dispatched], Launch | None],
) -> tuple[Step, ...] | None:
    """The second half, into ``result``. The steps take ids, the tensors of ``rows``, and those of the result."""
    constants = _constants(routing, rows.x.shape[1] * rows.x.element_size() // 4, n_scales)
    received = launch(
        moe_dispatch_between_hosts_receive, (exchange.programs,),
        (routing.ids, *map(in_int32, rows[:2]), rows.weights, result.memory),
        routing.n_tokens, exchange.inbox, exchange.signals, exchange.received, **constants, **_places(routing),
    )  # fmt: skip
    local = inside_host(routing, result.memory, rows.weights)
    dispatched = dispatch(rows.x, rows.scales if n_scales else None, local, result)
    find = host_ids_of(routing)
    return steps(
        (received, lambda *given: (*given[:4], given[6])),
        (dispatched, lambda *given: (*given[1:3], find(given[6]), *given[3:])),
    )


def dispatch_slots(comm: Communicator, function: str, x: torch.Tensor, n_scales: int, routing: Routing) -> None:
    """Make the slots between hosts for dispatches of rows like those of ``x``. *Collective.*"""
    _opened(function, x, n_scales, routing, 0, 0)


def _opened(
    function: str, x: torch.Tensor, n_scales: int, routing: Routing, buffer: int, sm_margin: int
) -> tuple[HostExchange, dict[str, Any]]:
    constants = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)
    assert routing.comm is not None
    words = constants["MESSAGE"]
    exchange = open_host_exchange(
        routing.comm, function, routing, f"dispatch of {words} words", words, buffer, sm_margin, packed=True
    )
    return exchange, constants


def _constants(routing: Routing, data: int, n_scales: int) -> dict[str, Any]:
    """Of kernels of a dispatch; and how many warps they have."""
    return _grid(routing) | {
        "DATA": data, "SCALES": n_scales, "MESSAGE": words_of_message(routing, data, n_scales), **options_of(data),
    }  # fmt: skip


def _grid(routing: Routing) -> dict[str, Any]:
    assert routing.comm is not None
    return {
        "ROW": routing.comm.grid.row, "COLUMN": routing.comm.grid.column, "K": routing.top_k,
        "KP": int(triton.next_power_of_2(routing.top_k)), "L": routing.local_experts, "CHUNKS": routing.chunks,
    }  # fmt: skip


def _places(routing: Routing) -> dict[str, int]:
    """Where ids and counts are in the memory of a result."""
    return {"AT_IDS": begin_of(routing, "host_ids"), "AT_COUNTS": begin_of(routing, "host_counts")}


# ---- combine


def sums_of_host(comm: Communicator, routing: Routing, dtype: torch.dtype, hidden: int, buffer: int) -> torch.Tensor:
    """Symmetric memory for the sums of this host for the column's tokens. *Collective* the first time."""
    rows, words = routing.tokens_of_hosts, hidden * dtype.itemsize // 4
    name = f"moe between hosts: sums of {words} words, {routing.max_tokens} tokens, buffer {buffer}"
    return symmetric_workspace(comm, name, rows * words)[: rows * words].view(dtype).view(rows, hidden)


def add_hosts(
    function: str,
    sums: torch.Tensor,
    dtype: Any,
    dispatched: Dispatched,
    out: torch.Tensor,
    buffer: int,
    sm_margin: int,
) -> Launch | None:
    """``out`` = the sums of all hosts of this PE's tokens. The launch takes the result's memory, ids and ``out``.

    Args:
        dtype: that of ``sums`` in kernels.
    """
    routing = dispatched.routing
    exchange, words = _opened_for_sums(function, sums, routing, buffer, sm_margin)
    constants = _grid(routing) | {"WORDS": words, "DTYPE": dtype, "AT_COUNTS": _places(routing)["AT_COUNTS"]}
    return launch(
        moe_combine_between_hosts, (exchange.programs,), (dispatched.memory, routing.ids, in_int32(out)),
        routing.n_tokens,
        in_int32(sums), exchange.inbox, exchange.signals, exchange.sent, **constants, **options_of(words),
    )  # fmt: skip


def sums_slots(comm: Communicator, function: str, y: torch.Tensor, routing: Routing) -> None:
    """Make the slots between hosts, and the sums' memory, for combines of rows like those of ``y``. *Collective.*"""
    sums = sums_of_host(comm, routing, y.dtype, y.shape[1], 0)
    _opened_for_sums(function, sums, routing, 0, 0)


def _opened_for_sums(
    function: str, sums: torch.Tensor, routing: Routing, buffer: int, sm_margin: int
) -> tuple[HostExchange, int]:
    words = sums.shape[1] * sums.element_size() // 4
    assert routing.comm is not None
    exchange = open_host_exchange(
        routing.comm, function, routing, f"combine of {words} words", words, buffer, sm_margin, packed=False
    )
    return exchange, words
