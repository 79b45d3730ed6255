"""Tokens once to each PE, for prefill and training: what DeepEP's ``Buffer`` calls dispatch and combine.

:func:`dispatch_tokens` sends a token once to each PE that has one of its experts, and there it is one row, whatever
number of them live there. ``dispatch`` has a row for each choice, grouped by expert, which a grouped GEMM wants; with
top 8 of 2 PEs that is four times as many bytes to store for a receiver, and with few multiprocessors as many times as
long. Kernels that gather rows by index take these as they are. :func:`combine_tokens` returns one row for each row, and
adds up those of a token.

On Hopper GPUs a dispatch is two kernels, ``token_batches.py`` and ``tokens_hopper.py``, and a combine one,
``token_sums_hopper.py``. Elsewhere it is a ``dispatch`` in which each PE is one expert, whose ids and weights go as
scales do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from triton_dist.kernels.arguments import places_of
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gradients import made_again, records_gradients, refuse_gradients
from triton_dist.kernels.moe.arguments import (
    ALGORITHMS,
    ROWS,
    Routing,
    check_rows,
    check_scales,
    compared_of,
    routing_of,
)
from triton_dist.kernels.moe.combine import make_slots as make_slots_of_combine
from triton_dist.kernels.moe.combine import run as combine_rows
from triton_dist.kernels.moe.dispatch import make_slots as make_slots_of_dispatch
from triton_dist.kernels.moe.dispatch import run as dispatch_rows
from triton_dist.kernels.moe.results import Dispatched, part_of, parts_of
from triton_dist.kernels.moe.rounds_plan import TokensPlan, sums_plan_of, tokens_plan_of
from triton_dist.kernels.moe.token_batches import BATCH, MOST_ROWS, tables_of
from triton_dist.kernels.moe.tokens_by_tma import Beside, combine_by_tma, dispatch_by_tma, move_tokens
from triton_dist.kernels.moe.tokens_by_tma import make_slots as make_slots_by_tma
from triton_dist.kernels.moe.tokens_by_tma import make_slots_of_sums as make_slots_of_sums_by_tma
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.options import check_int, check_one_of
from triton_dist.kernels.overlaps import refuse_overlap
from triton_dist.kernels.prepared import Prepared, place_of
from triton_dist.kernels.protocols.workspace import why_not_symmetric

__all__ = [
    "DispatchedTokens",
    "combine_tokens",
    "dispatch_tokens",
    "make_slots",
    "make_slots_of_sums",
    "moved_by_tma",
    "plan_of",
    "run",
    "run_again",
    "run_combine",
    "to_ranks",
]


class DispatchedTokens(NamedTuple):
    """What a PE receives, in the order of ranks and tokens. R is the capacity; rows behind the last one hold anything.

    Attributes:
        x: [R, hidden]. scales: [R, S] float32, or None.
        topk_ids: [R, top_k] of the dtype of the ids, the experts of this PE that a token has chosen, from 0, and -1 for
            choices that are of other PEs or not made; in rows behind the last one -1.
        topk_weights: [R, top_k] float32, 0 where the id is -1.
        memory: int32, the tables by which TMA has moved rows (``token_batches.py``).
        routing: the sizes of the call, and the ids by which it was routed.
        of_ranks: where TMA has not, the result of the dispatch to PEs as experts.
    """

    x: torch.Tensor
    scales: torch.Tensor | None
    topk_ids: torch.Tensor | None
    topk_weights: torch.Tensor | None
    memory: torch.Tensor
    routing: Routing
    of_ranks: Dispatched | None

    @property
    def n_rows(self) -> torch.Tensor:
        """[1] int32, how many rows have come."""
        if self.of_ranks is not None:
            return self.of_ranks.counts
        return self.memory.narrow(0, tables_of(self.routing).rows_of + self.routing.members.size, 1)


@made_again()
def dispatch_tokens(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    capacity: int | None = None,
    buffer: int = 0,
    num_sms: int = 0,
    algorithm: str = "auto",
    out: torch.Tensor | None = None,
    group: Any = None,
) -> DispatchedTokens:
    """Send each of this PE's tokens once to each PE of its experts, and receive those for this PE's experts.

    *Collective*, on the current stream. Every PE calls it with the same sizes but for T, and may have no tokens at all.
    A call may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        x, topk_ids, topk_weights, num_experts, max_tokens, scales, buffer, num_sms, group: as of
            :func:`~triton_dist.kernels.moe.dispatch`.
        capacity: R, for how many rows there is room; by default ``n_pes`` * ``max_tokens``, which is all that can come.
            It is an error of the kernel (a device-side assertion on a GPU) if more come.
        algorithm: with ``num_sms``. ``auto``: on Hopper GPUs TMA moves rows of 1 KB to 32 KB that are multiples of 128
            bytes, of groups of 2 to 8 PEs on one host, up to 16 choices and 2**23 rows; else load and store.
            ``portable``: load and store.
        out: symmetric [R, hidden] of the dtype of ``x``, the same on all PEs (of
            :func:`~triton_dist.kernels.Communicator.empty`), for ``x`` of the result; by default a new tensor. TMA
            stores rows there from the other PEs, so multiprocessors move each once, not twice. They come after what is
            before the call on its stream. Load and store copy rows to it in the end.

    Raises:
        TypeError, ValueError, RuntimeError: as of :func:`~triton_dist.kernels.moe.dispatch`.
    """
    with calling("dispatch_tokens", group, between_hosts=True) as comm:
        return run(
            comm, "dispatch_tokens", x, topk_ids, topk_weights, scales, num_experts, max_tokens, capacity, buffer,
            num_sms, algorithm, out=out,
        )  # fmt: skip


def run(
    comm: Communicator,
    function: str,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    scales: torch.Tensor | None,
    num_experts: int,
    max_tokens: int,
    capacity: int | None,
    buffer: int = 0,
    num_sms: int = 0,
    algorithm: str = "auto",
    with_ids: bool = True,
    new: Callable[..., torch.Tensor] = torch.empty,
    out: torch.Tensor | None = None,
) -> DispatchedTokens:
    """:func:`dispatch_tokens`, inside a call. Without ``with_ids`` neither ids nor weights go with the tokens. ``new``
    makes the rows and their scales, ``torch.empty`` or ``torch.zeros``."""
    prepared = comm.own(Prepared)
    given = [tensor for tensor in (x, ids, weights, scales, out) if tensor is not None]
    sizes = num_experts, max_tokens, capacity, buffer, num_sms, algorithm, with_ids, weights is None, scales is None
    signature = prepared.signature((function, *sizes, place_of(out)), *given)
    rest = prepared.details(signature)
    if rest is not None and not records_gradients(x, weights, scales, out):
        if weights is None:  # as routing_of does; only calls with ids read them
            weights = torch.ones(ids.shape if with_ids else 0, dtype=torch.float32, device=ids.device)
        result = _result_of(x, scales, Routing(ids, weights, *rest), with_ids, new, out)
        if prepared.repeat(signature, *_tensors(x, scales, result)):
            return result
    routing = routing_of(
        comm, function, x, ids, weights, num_experts, max_tokens, 1, capacity, None, num_sms, algorithm, scales
    )  # fmt: skip
    if capacity is None:
        routing = routing._replace(capacity=comm.n_pes * max_tokens)
    n_scales = check_scales(function, x, scales)
    check_int(function, "buffer", buffer, 0)
    if out is not None:
        _check_out(comm, function, out, x, routing, topk_ids=ids, topk_weights=weights, scales=scales)
    plan = _plan_of(routing, x) if algorithm == "auto" else None
    if plan is None:
        by_ranks = _to_ranks(comm, x, routing, scales, n_scales, buffer, algorithm, with_ids, new)
        return by_ranks if out is None else by_ranks._replace(x=out.copy_(by_ranks.x))
    routing = routing._replace(plan=plan)
    compared = function, *compared_of(x, routing, n_scales, buffer), f"with ids: {with_ids}"
    if out is not None:
        compared += (f"out of {routing.capacity} rows", *places_of(comm, out=out))
    comm.compare(*compared)
    result = _result_of(x, scales, routing, with_ids, new, out)
    beside = Beside(ids, routing.weights, scales) if with_ids else Beside(None, None, scales)
    found = Beside(result.topk_ids, result.topk_weights, result.scales)
    direct = out is not None
    made = dispatch_by_tma(plan, x, routing, beside, result.x, found, result.memory, buffer, direct=direct)
    prepared.keep(
        signature, made, *compared, details=routing[2:], fixed=(4,) if direct else (),
        new=_new_tensors(result, of_caller=direct) if weights is not None else None,
    )  # fmt: skip
    return result


def _check_out(
    comm: Communicator, function: str, out: torch.Tensor, x: torch.Tensor, routing: Routing,
    **others: torch.Tensor | None,
) -> None:  # fmt: skip
    """``out`` can be the rows of the result, to which peers store while ``x`` and ``others`` are read."""
    refuse_gradients(function, out)
    check_rows(function, "out", out, (x.dtype,))
    shape = routing.capacity, x.shape[1]
    if tuple(out.shape) != shape or out.device != x.device:
        raise ValueError(
            f"{function}: out must be [capacity, hidden] = {shape} on {x.device}, got {tuple(out.shape)} on"
            f" {out.device}"
        )
    refuse_overlap(function, {"out": out}, {"x": x, **others})
    if why := why_not_symmetric(comm, out):
        raise ValueError(f"{function}: out must be symmetric, and {why}: allocate it with triton_dist.empty")


def plan_of(
    n_pes: int, hosts: int, x: torch.Tensor, top_k: int, max_tokens: int, num_sms: int
) -> TokensPlan | None:  # fmt: skip
    """How TMA moves tokens like those of ``x``, if it does."""
    if not num_sms or hosts > 1 or n_pes * max_tokens > MOST_ROWS:
        return None
    return tokens_plan_of(n_pes, top_k, x.shape[1] * x.element_size())


def moved_by_tma(comm: Communicator, x: torch.Tensor, top_k: int, max_tokens: int, num_sms: int) -> bool:
    """Whether TMA moves tokens like those of ``x`` both ways; the same on all PEs."""
    there = plan_of(comm.n_pes, comm.grid.hosts, x, top_k, max_tokens, num_sms)
    return there is not None and sums_plan_of(comm.n_pes, x.shape[1] * x.element_size()) is not None


def _result_of(
    x: torch.Tensor, scales: torch.Tensor | None, routing: Routing, with_ids: bool, new: Callable[..., torch.Tensor],
    out: torch.Tensor | None = None,
) -> DispatchedTokens:  # fmt: skip
    """Tensors for what TMA moves; ``out`` for the rows, if it is given."""
    rows, ids = routing.capacity, routing.ids
    return DispatchedTokens(
        new(rows, x.shape[1], dtype=x.dtype, device=x.device) if out is None else out,
        None if scales is None else new(rows, scales.shape[1], dtype=scales.dtype, device=x.device),
        ids.new_empty(rows, ids.shape[1]) if with_ids else None,
        ids.new_empty(rows, ids.shape[1], dtype=torch.float32) if with_ids else None,
        ids.new_empty(tables_of(routing).words, dtype=torch.int32),
        routing,
        None,
    )


def _tensors(x: torch.Tensor, scales: torch.Tensor | None, result: DispatchedTokens) -> tuple[torch.Tensor, ...]:
    """The tensors of a call, as its steps take them."""
    out, out_scales, out_ids, out_weights, memory, routing, _ = result
    given = x, routing.ids, routing.weights, memory if scales is None else scales, out
    found = (out_ids, out_weights, out_scales)
    return *given, *(memory if tensor is None else tensor for tensor in found), memory


def run_again(
    comm: Communicator, function: str, x: torch.Tensor, dispatched: DispatchedTokens, scales: torch.Tensor | None,
    num_sms: int,
) -> DispatchedTokens:  # fmt: skip
    """Send other rows of the tokens of ``dispatched`` to where these went, inside a call. The tables of that dispatch
    say where, so PEs exchange none, and changed ids have no effect."""
    routing = dispatched.routing._replace(num_sms=num_sms)
    refuse_gradients(function, x)
    check_rows(function, "x", x, ROWS)
    if len(x) != routing.n_tokens:
        raise ValueError(f"{function}: x must have the {routing.n_tokens} tokens of the handle, got {tuple(x.shape)}")
    n_scales, plan = check_scales(function, x, scales), _plan_of(routing, x)
    if dispatched.of_ranks is not None or plan is None:
        found = _rows_to_ranks(comm, x, _ranks_of(dispatched), scales, routing, 0)
        return DispatchedTokens(found.x, found.scales, None, None, found.memory, routing, found)
    routing = routing._replace(plan=plan)
    compared = function, *compared_of(x, routing, n_scales, 0)
    comm.compare(*compared)
    result = _result_of(x, scales, routing, False, torch.empty)._replace(memory=dispatched.memory)
    given, found_beside = Beside(None, None, scales), Beside(None, None, result.scales)
    move_tokens(plan, x, routing, given, result.x, found_beside, result.memory, 0)
    return result


def _ranks_of(dispatched: DispatchedTokens) -> torch.Tensor:
    """The ranks that this PE's tokens went to, -1 for none, for a dispatch to PEs as experts."""
    if dispatched.of_ranks is not None:
        return dispatched.of_ranks.routing.ids
    routing, tables = dispatched.routing, tables_of(dispatched.routing)
    n_pes, device = routing.members.size, routing.ids.device
    goes = dispatched.memory.narrow(0, tables.goes, 2 * tables.batches).view(torch.uint8).view(-1, 8)[:, :n_pes]
    bits = goes[:, None, :] >> torch.arange(BATCH, dtype=torch.uint8, device=device)[:, None] & 1
    there = bits.reshape(-1, n_pes)[: routing.n_tokens] != 0
    return torch.where(there, torch.arange(n_pes, dtype=torch.int32, device=device), -1)


def _new_tensors(result: DispatchedTokens, *, of_caller: bool) -> NewTensors:
    """Those of a call, as its plan is given them by :func:`_tensors`; the result holds its ids and weights, and its
    rows if these are the caller's."""
    x, scales, ids, weights, memory, routing, _ = result
    places: dict[int, tuple[torch.Tensor, tuple[int, ...]]] = {} if of_caller else {0: (x, (4,))}
    for number, tensor, place in ((1, scales, 7), (2, ids, 5), (3, weights, 6)):
        if tensor is not None:
            places[number] = tensor, (place,)
    stand_ins = [3, 7] if scales is None else []
    stand_ins += [5, 6] if ids is None else []
    places[4] = memory, (*sorted(stand_ins), 8)
    order = {number: i for i, number in enumerate(places)}
    rows = (4,) if of_caller else order[0]
    results = rows, *(order.get(number) for number in range(1, 5)), (1,), (2,)
    made = places.values()
    return NewTensors(
        tuple(like(tensor) for tensor, _ in made), tuple(at for _, at in made), results,
        partial(_dispatched, routing[2:]), lambda result: (*result[:5], *result.routing[:2]),
    )  # fmt: skip


def _dispatched(rest: tuple[Any, ...], parts: tuple[Any, ...]) -> DispatchedTokens:
    x, scales, topk_ids, topk_weights, memory, ids, weights = parts
    return DispatchedTokens(x, scales, topk_ids, topk_weights, memory, Routing(ids, weights, *rest), None)


# ---- where TMA does not


def ranks_of(ids: torch.Tensor, local_experts: int) -> torch.Tensor:
    """The ranks that each token goes to, [T, top_k], each once; -1 for none, and -2 for what is no id."""
    ranks = torch.where(ids >= 0, ids // local_experts, torch.where(ids == -1, -1, -2)).sort(dim=1).values
    again = torch.nn.functional.pad(ranks[:, 1:] == ranks[:, :-1], (1, 0)) & (ranks >= 0)
    return torch.where(again, -1, ranks)


def to_ranks(routing: Routing) -> Routing:
    """The routing of a dispatch in which each PE is one expert."""
    ranks = ranks_of(routing.ids, routing.local_experts)
    return routing._replace(ids=ranks, weights=torch.ones_like(routing.weights), local_experts=1, plan=None)


def _rows_to_ranks(
    comm: Communicator, x: torch.Tensor, ranks: torch.Tensor, scales: torch.Tensor | None, routing: Routing,
    buffer: int, algorithm: str = "auto", new: Callable[..., torch.Tensor] = torch.empty,
) -> Dispatched:  # fmt: skip
    """Dispatch rows to PEs as experts."""
    return dispatch_rows(
        comm, x, ranks, torch.ones_like(ranks, dtype=torch.float32), scales, comm.n_pes, routing.max_tokens, 1,
        routing.capacity, None, buffer, 0, routing.num_sms, algorithm, new=new,
    )  # fmt: skip


def _to_ranks(
    comm: Communicator, x: torch.Tensor, routing: Routing, scales: torch.Tensor | None, n_scales: int, buffer: int,
    algorithm: str, with_ids: bool, new: Callable[..., torch.Tensor],
) -> DispatchedTokens:  # fmt: skip
    """Dispatch to PEs, as if each were one expert. float32 holds ids exactly."""
    ids, local, top_k = routing.ids, routing.local_experts, routing.top_k
    parts = [scales] if scales is not None else []
    sent = torch.cat([*parts, ids.float(), routing.weights], dim=1) if with_ids else scales
    found = _rows_to_ranks(comm, x, ranks_of(ids, local), sent, routing, buffer, algorithm, new)
    if found.scales is None or not with_ids:
        return DispatchedTokens(found.x, found.scales, None, None, found.memory, routing, found)
    mine = found.scales[:, n_scales : n_scales + top_k].to(torch.int32) - comm.my_rank * local
    there = torch.arange(len(mine), device=mine.device)[:, None] < found.counts
    here = there & (mine >= 0) & (mine < local)
    return DispatchedTokens(
        found.x,
        found.scales[:, :n_scales].contiguous() if n_scales else None,
        torch.where(here, mine, -1).to(ids.dtype),
        torch.where(here, found.scales[:, n_scales + top_k :], 0.0),
        found.memory,
        routing,
        found,
    )


def _by_choice(dispatched: DispatchedTokens) -> Dispatched:
    """What a combine by load and store reads: the row of each token, as that of its first choice."""
    if dispatched.of_ranks is not None:
        return dispatched.of_ranks
    routing, tables, memory = dispatched.routing, tables_of(dispatched.routing), dispatched.memory
    n_pes = routing.members.size
    words = memory.narrow(0, tables.comes, n_pes * tables.batches).view(n_pes, -1, 1)
    come = words >> torch.arange(BATCH, dtype=torch.int32, device=words.device) & 1
    rows = (words >> 8) + come.cumsum(dim=2, dtype=torch.int32) - come
    rows = torch.where(come != 0, rows, -1).view(n_pes, -1)[:, : routing.max_tokens]
    routing = routing._replace(plan=None)
    found = Dispatched(dispatched.x, None, memory.new_empty(parts_of(routing)[-1]), routing)
    part_of(found.memory, routing, "rows").copy_(memory.narrow(0, tables.tokens_of, n_pes))
    positions = part_of(found.memory, routing, "positions").view(n_pes, routing.max_tokens, routing.top_k).fill_(-1)
    positions[:, :, 0] = rows
    return found


# ---- back


@made_again(lambda y, dispatched, *args, **kwargs: dispatched.routing.comm)
def combine_tokens(
    y: torch.Tensor, dispatched: DispatchedTokens, *, buffer: int = 0, algorithm: str = "auto"
) -> torch.Tensor:
    """Return a row for each row of ``dispatched`` to the PE of its token, which adds up those of a token.

    *Collective*, on the current stream. It may be captured in a CUDA graph after it has run once for its sizes. Weights
    are the caller's to multiply by: the rows of a token's experts on one PE are one row here.

    Args:
        y: [R, hidden], contiguous: bfloat16, float16 or float32, for the rows of ``dispatched.x``. ``hidden`` need not
            be that of the dispatch. A row is a multiple of 16 bytes.
        dispatched: what :func:`dispatch_tokens` has returned on this PE.
        buffer: as of :func:`dispatch_tokens`.
        algorithm: as of :func:`dispatch_tokens`, for rows of up to 16 KB.

    Returns:
        [T, hidden] of ``y``'s dtype, added in float32 in the order of ranks. Tokens without an expert are 0.

    Raises:
        TypeError, ValueError, RuntimeError: as of :func:`~triton_dist.kernels.moe.combine`.
    """
    if not isinstance(dispatched, DispatchedTokens):
        raise TypeError(
            f"combine_tokens: dispatched must be what dispatch_tokens has returned, got {type(dispatched).__name__}"
        )
    if dispatched.routing.comm is None:
        raise ValueError(
            "combine_tokens: dispatched is of functional.dispatch_tokens: call functional.combine_tokens of"
            " triton_dist.kernels.moe"
        )
    with calling("combine_tokens", dispatched.routing.comm, between_hosts=True):
        check_one_of("combine_tokens", "algorithm", algorithm, ALGORITHMS)
        check_int("combine_tokens", "buffer", buffer, 0)
        if not isinstance(y, torch.Tensor):
            raise TypeError(f"combine_tokens: y must be a torch.Tensor, got {type(y).__name__}")
        if y.dim() != 2 or len(y) != len(dispatched.x):
            raise ValueError(
                f"combine_tokens: y must be [{len(dispatched.x)}, hidden], a row for each of dispatched.x, got"
                f" {tuple(y.shape)}"
            )
        return run_combine("combine_tokens", y, dispatched, buffer, algorithm)


def run_combine(
    function: str, y: torch.Tensor, dispatched: DispatchedTokens, buffer: int = 0, algorithm: str = "auto"
) -> torch.Tensor:
    """:func:`combine_tokens`, inside a call. ``y`` may end behind the last row that has come."""
    routing, memory = dispatched.routing, dispatched.memory
    assert routing.comm is not None
    prepared = routing.comm.own(Prepared)
    sizes = *routing[3:8], routing.num_sms, routing.top_k, routing.n_tokens
    signature = prepared.signature((function, buffer, algorithm, dispatched.of_ranks is None, *sizes), y, memory)
    if prepared.details(signature) is not None and not records_gradients(y):
        out = y.new_empty(routing.n_tokens, y.shape[1])
        if prepared.repeat(signature, y, out, memory):
            return out
    refuse_gradients(function, y)
    check_rows(function, "y", y, (torch.bfloat16, torch.float16, torch.float32))
    plan = None
    if dispatched.of_ranks is None and algorithm == "auto":
        plan = sums_plan_of(routing.members.size, y.shape[1] * y.element_size())
    if plan is None:
        return combine_rows(function, y, _by_choice(dispatched), False, buffer, algorithm)
    compared = function, y.shape[1], y.dtype, routing.max_tokens, routing.num_sms, plan
    routing.comm.compare(*compared)
    out = y.new_empty(routing.n_tokens, y.shape[1])
    made = combine_by_tma(plan, y, routing, memory, out, buffer)
    prepared.keep(signature, made, *compared, details=True, new=NewTensors.of(out, at=1))
    return out


# ---- memory before the first call


def _plan_of(routing: Routing, x: torch.Tensor) -> TokensPlan | None:
    return plan_of(
        routing.members.size, routing.hosts, x, routing.top_k, routing.max_tokens, routing.num_sms
    )  # fmt: skip


def make_slots(comm: Communicator, function: str, x: torch.Tensor, n_scales: int, routing: Routing) -> None:
    """Make the slots of dispatches with this routing's sizes, of rows like those of ``x``. *Collective.*"""
    if _plan_of(routing, x) is not None:
        make_slots_by_tma(routing, x.shape[1] * x.element_size(), n_scales)
    else:
        of_ranks = routing._replace(local_experts=1)
        make_slots_of_dispatch(comm, function, x, n_scales + 2 * routing.top_k, of_ranks)


def make_slots_of_sums(
    comm: Communicator, function: str, x: torch.Tensor, y: torch.Tensor, routing: Routing
) -> None:  # fmt: skip
    """Make the slots of combines with this routing's sizes, of rows like those of ``y``, after dispatches of rows like
    those of ``x``. *Collective.*"""
    row_bytes = y.shape[1] * y.element_size()
    by_tma = _plan_of(routing, x) is not None
    if by_tma and sums_plan_of(comm.n_pes, row_bytes) is not None:
        make_slots_of_sums_by_tma(routing, row_bytes)
    else:
        make_slots_of_combine(comm, function, y, routing if by_tma else routing._replace(local_experts=1))
