"""What a dispatch returns: rows, and one tensor with all that says which rows they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.seen import is_as_seen, values_of
from triton_dist.torch_api import version_of

__all__ = ["Dispatched", "begin_of", "check_ids", "part_of", "parts_of", "remember_ids", "result_of"]


class Dispatched(NamedTuple):
    """What a PE receives. R is the capacity; rows that no token fills hold anything.

    Attributes:
        x: [R, hidden], the rows, grouped by this PE's experts.
        scales: [R, S] float32, or None.
        memory: int32, of which the properties are views.
        routing: the sizes of the call, and the ids by which it was routed.
    """

    x: torch.Tensor
    scales: torch.Tensor | None
    memory: torch.Tensor
    routing: Routing

    @property
    def counts(self) -> torch.Tensor:
        """[L] int32, how many rows each expert has."""
        return part_of(self.memory, self.routing, "counts")

    @property
    def offsets(self) -> torch.Tensor:
        """[L + 1] int32, where the rows of each expert begin, multiples of ``align``; and the end of the last."""
        return part_of(self.memory, self.routing, "offsets")

    @property
    def weights(self) -> torch.Tensor:
        """[R] float32, what each row's result is multiplied by in :func:`combine`."""
        return part_of(self.memory, self.routing, "weights").view(torch.float32)

    @property
    def choices(self) -> torch.Tensor:
        """[R] int32, which of its token's choices a row is, in [0, top_k)."""
        return part_of(self.memory, self.routing, "choices")


_NAMES = (
    *("counts", "offsets", "rows", "row_tokens", "positions", "row_weights", "weights", "choices", "own_messages"),
    *("host_ids", "host_counts"),
)
"""The parts. Those of rows, for :func:`combine`, are by source and message: how many messages a source has, the token
of each, where its rows are by choice, and their weights; and the message of each of this PE's own tokens. The last two
are those of a group on several hosts: the ids of the column's tokens among the experts of this host, and how many rows
each host has sent of each chunk."""


def _sizes(routing: Routing) -> tuple[int, ...]:
    """How many words each part has."""
    n_pes, local, capacity = routing.members.size, routing.local_experts, routing.capacity
    max_tokens = routing.max_tokens
    more: tuple[int, ...] = ()
    if routing.hosts > 1:  # this host's PEs send each other the tokens of their columns
        n_pes, max_tokens = n_pes // routing.hosts, routing.tokens_of_hosts
        more = max_tokens * routing.top_k, routing.hosts * routing.chunks
    messages = n_pes * max_tokens
    choices = messages * routing.top_k
    return local, local + 1, n_pes, messages, choices, choices, capacity, capacity, max_tokens, *more


def parts_of(routing: Routing) -> tuple[int, ...]:
    """Where the parts of the memory begin, at multiples of 16 bytes; and how many words it has."""
    begins = [0]
    for size in _sizes(routing):
        begins.append(begins[-1] + _padded(size))
    return tuple(begins)


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def begin_of(routing: Routing, name: str) -> int:
    """Where a part begins, in words."""
    return sum(map(_padded, _sizes(routing)[: _NAMES.index(name)]))


def part_of(memory: torch.Tensor, routing: Routing, name: str) -> torch.Tensor:
    """A part of the memory, as int32."""
    i, sizes = _NAMES.index(name), _sizes(routing)
    return memory.narrow(0, sum(map(_padded, sizes[:i])), sizes[i])  # of the first ones, which layers ask for


def result_of(
    routing: Routing,
    dtype: torch.dtype,
    hidden: int,
    n_scales: int,
    new: Callable[..., torch.Tensor],
    n_words: int = 0,
) -> Dispatched:
    """Tensors for the results of a dispatch; ``new`` makes them, ``torch.empty`` or ``torch.zeros``.

    ``n_words`` is how many words the memory has, if that is known.
    """
    device, capacity = routing.ids.device, routing.capacity
    x = new(capacity, hidden, dtype=dtype, device=device)
    scales = new(capacity, n_scales, dtype=torch.float32, device=device) if n_scales else None
    memory = new(n_words or parts_of(routing)[-1], dtype=torch.int32, device=device)
    remember_ids(memory, routing.ids)
    return Dispatched(x, scales, memory, routing)


def remember_ids(memory: torch.Tensor, ids: torch.Tensor) -> None:
    """Record with the memory of a result what the ids were.

    It is an attribute of the tensor, so that results of calls that differ in nothing else stay alike to prepared calls.
    """
    version = version_of(ids)  # not see(), a call more in each call that is prepared
    memory.seen_ids = values_of(ids) if version is None else version  # type: ignore[attr-defined]


def check_ids(function: str, memory: torch.Tensor, ids: torch.Tensor) -> None:
    """RuntimeError if the ids of a dispatch have been written to since: they say which PEs return rows."""
    if not is_as_seen(ids, getattr(memory, "seen_ids", None)):
        raise RuntimeError(
            f"{function}: topk_ids have been written to since they were dispatched, and say which PEs return rows."
            " Combine first, or give each dispatch ids of its own"
        )
