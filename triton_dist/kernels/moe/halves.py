"""What the halves of dispatch and combine hand over, and what a call of a send half that C++ makes again returns."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.between_hosts import ColumnRows
from triton_dist.kernels.moe.exchange import Exchange
from triton_dist.kernels.moe.host_exchange import HostExchange
from triton_dist.kernels.new_tensors import NewTensors

__all__ = ["Combining", "Sent", "new_sent", "new_sums", "of_routing", "rows_and_memory"]


class Sent(NamedTuple):
    """A dispatch whose receive half is to come, which takes it once: its exchange, sizes and dtypes."""

    exchange: Exchange | HostExchange
    routing: Routing
    dtype: torch.dtype
    hidden: int
    n_scales: int
    rows: ColumnRows | None = None
    """Of a group on several hosts: what this host's experts get of this PE's tokens."""
    options: tuple[int, int] = (0, 0)
    """``buffer`` and ``sm_margin``."""
    number: int = 0
    """Of the exchange, among all of the communicator."""


class Combining(NamedTuple):
    """A combine whose receive half is to come, which takes it once."""

    exchange: Exchange
    routing: Routing
    dtype: torch.dtype
    hidden: int
    memory: torch.Tensor
    options: tuple[int, int]
    """``buffer`` and ``sm_margin``."""
    number: int
    """Of the exchange, among all of the communicator."""


# ---- Calls of send halves make no tensor, and their results hold some of the call's. The exchange's number is that of
#      the next one: the plan's last step notes that it is sent (``Slots.sending``).


def new_sent(sent: Sent) -> NewTensors:
    """Of a ``dispatch_send`` of rows, scales, ids and weights."""
    again = partial(_sent_again, sent.exchange, sent.routing[2:], sent.dtype, sent.hidden, sent.n_scales, sent.options)
    return NewTensors((), (), ((2,), (3,)), again, _parts_of_sent)


def _sent_again(
    exchange: Exchange | HostExchange,
    rest: tuple[Any, ...],
    dtype: torch.dtype,
    hidden: int,
    n_scales: int,
    options: tuple[int, int],
    parts: tuple[Any, ...],
) -> Sent:
    return Sent(exchange, Routing(*parts, *rest), dtype, hidden, n_scales, None, options, exchange.next_number)


def _parts_of_sent(sent: Sent) -> tuple[Any, ...]:
    return sent.routing[:2]


def new_sums(exchange: Exchange, routing: Routing, y: torch.Tensor, options: tuple[int, int]) -> NewTensors:
    """Of a ``combine_send`` of rows, memory, ids and weights."""
    again = partial(_sums_again, exchange, routing[2:], y.dtype, y.shape[1], options)
    return NewTensors((), (), ((1,), (2,), (3,)), again, _parts_of_sums)


def _sums_again(
    exchange: Exchange, rest: tuple[Any, ...], dtype: torch.dtype, hidden: int, options: tuple[int, int], parts: Any
) -> Combining:
    memory, *ids_and_weights = parts
    return Combining(exchange, Routing(*ids_and_weights, *rest), dtype, hidden, memory, options, exchange.next_number)


def _parts_of_sums(sent: Combining) -> tuple[Any, ...]:
    return sent.memory, *sent.routing[:2]


def rows_and_memory(y: Any, memory: Any, *of_routing: Any) -> tuple[Any, Any]:
    """What the launch of a ``combine_send`` takes."""
    return y, memory


def of_routing(y: Any, memory: Any, *of_routing: Any) -> tuple[Any, ...]:
    """What its result holds besides."""
    return of_routing
