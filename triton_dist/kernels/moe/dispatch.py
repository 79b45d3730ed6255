"""Dispatch: every token goes to the PEs of its experts, and a PE's rows come out grouped by expert. Low latency.

Expert e lives on PE e // L, where L = num_experts / n_pes. Of T tokens with top-k expert ids, each row is sent once to
each PE that has one of its experts, with its scales and a header: the token's number, its expert ids and weights, and
for each expert the token's rank among those of its PE that chose this expert. A message of counts goes from every PE to
every PE first: how many rows it sends, and how many of them each expert takes. From the counts of all PEs a receiver
knows where the rows of each expert begin, and of every PE within them, so a row is stored at

    offset of the expert + rows of this expert from lower PEs + rank

whenever it arrives: the order of rows is by PE, then token, then choice. A row that several experts of the PE want is
stored for each. Nothing waits for the host, so a call can be captured in a graph and replayed with other routings.

It is done in one of three ways, each but the last always one kernel, which give the same bits:

- ``dispatch_messages.py``, for few tokens: all programs send, then receive. So do the halves, also of many tokens,
  which are kernels of their own, between which the GPU computes something else.
- ``dispatch_many.py``, for many tokens: some programs send, and the others do everything else.
- ``rounds.py``, with ``num_sms``: few programs, through slots whose size does not grow with the tokens. On Hopper GPUs
  these are two kernels, the second of which moves rows by TMA (``rounds_by_tma.py``).

Rows go in the sentinel protocol, which sends no flags, and counts in the LL protocol. ``rows.py`` says why slots can be
used again without barriers.

Of a group on several hosts, PEs of one host do this with the tokens of their columns (``between_hosts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton

from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.gradients import made_again, records_gradients
from triton_dist.kernels.moe import between_hosts
from triton_dist.kernels.moe.arguments import (
    Routing,
    check_routing,
    has_many_tokens,
    plan_of_rounds,
    refuse_halves_of_rounds,
)
from triton_dist.kernels.moe.between_hosts import ColumnRows, column_rows
from triton_dist.kernels.moe.dispatch_counts import PARTS_OF_COUNTS, words_of_parts
from triton_dist.kernels.moe.dispatch_many import dispatch_many
from triton_dist.kernels.moe.dispatch_many import make_slots as make_slots_of_many
from triton_dist.kernels.moe.dispatch_messages import moe_dispatch_one_round, moe_dispatch_receive, moe_dispatch_send
from triton_dist.kernels.moe.exchange import Cut, Exchange, cut_of, open_exchange
from triton_dist.kernels.moe.halves import Sent, new_sent
from triton_dist.kernels.moe.host_exchange import HostExchange
from triton_dist.kernels.moe.results import Dispatched, parts_of, result_of
from triton_dist.kernels.moe.rounds import dispatch_rounds, dispatch_slots
from triton_dist.kernels.moe.rounds_by_tma import dispatch_by_tma
from triton_dist.kernels.moe.rounds_by_tma import make_slots as make_slots_by_tma
from triton_dist.kernels.new_tensors import NewTensors, like
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch
from triton_dist.kernels.protocols.workspace import symmetric_workspace

__all__ = ["dispatch", "dispatch_receive", "dispatch_send", "make_slots", "run"]


# ---- the host's part


@made_again()
def dispatch(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    align: int = 1,
    capacity: int | None = None,
    expert_capacity: int | None = None,
    buffer: int = 0,
    sm_margin: int = 0,
    num_sms: int = 0,
    algorithm: str = "auto",
    group: Any = None,
) -> Dispatched:
    """Send each of this PE's tokens to the PEs of its experts, and receive the rows of this PE's experts.

    *Collective*, on the current stream. Every PE calls it with the same sizes but for T, and may have no tokens at all.
    A call may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        x: [T, hidden], contiguous: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2. A row is a multiple of
            16 bytes.
        topk_ids: [T, top_k] int32 or int64, contiguous, in [0, num_experts), or -1 for a choice that is not made. An
            expert may be chosen twice. :func:`combine` reads them again: they stay as they are until then, and where
            PyTorch counts what is written to them, a combine refuses others.
        topk_weights: [T, top_k] float32; by default 1.
        num_experts: of all PEs together; each has an equal part.
        max_tokens: how many tokens a PE may have. The slots take room for it.
        scales: [T, S] float32, which go with the rows: of a token (S = 1), or of blocks of 128 elements.
        align: each expert's rows begin at a multiple of it, as a tile of a grouped GEMM may want.
        capacity: R, for how many rows there is room. By default as many as can come. With fewer, it is an error of the
            kernel (a device-side assertion on a GPU) if more come.
        expert_capacity: instead of ``align`` and ``capacity``: room for so many rows of each expert, whose rows begin
            at multiples of it, so that ``x`` may be viewed as [L, expert_capacity, hidden].
        buffer: which slots are used: exchanges that are in flight at the same time need different ones.
        sm_margin: how many SMs are left to other kernels.
        num_sms: for thousands of tokens: the tokens go in rounds, by so many programs, through slots whose size does
            not grow with ``max_tokens``. All others of the GPU's SMs are left to other kernels. The result, and its
            :func:`combine`, which goes the same way, are the same bits. By default all SMs work, for low latency.
        algorithm: of rounds. ``auto``: on Hopper GPUs TMA moves rows of 1 KB to 32 KB that are multiples of 128 bytes,
            of groups of 2 to 8 PEs on one host and up to 16 choices; else load and store. ``portable``: load and store.
        group: as of all functions of :mod:`triton_dist.kernels`; experts and ``num_experts`` are those of its members,
            which may be on several hosts (``between_hosts.py``).

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: the last dispatch in these slots has been sent but not received; or a CUDA graph is captured
            before a first run of the same sizes. In the CPU world also: an id is out of range.
    """
    sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms, algorithm)
    with calling("dispatch", group, between_hosts=True) as comm:
        return run(comm, x, topk_ids, topk_weights, scales, *sizes, new=torch.empty)


@made_again()
def dispatch_send(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor | None = None,
    *,
    num_experts: int,
    max_tokens: int,
    scales: torch.Tensor | None = None,
    align: int = 1,
    capacity: int | None = None,
    expert_capacity: int | None = None,
    buffer: int = 0,
    sm_margin: int = 0,
    num_sms: int = 0,
    group: Any = None,
) -> Sent:
    """The first half of :func:`dispatch`, with its arguments: send, and wait for nothing.

    What follows on the stream runs while the rows are in flight, of several hosts those that cross.
    With thousands of tokens ``sm_margin`` leaves SMs to other kernels, and the slots take 2 * ``n_pes`` *
    ``max_tokens`` rows.

    Returns:
        what :func:`dispatch_receive` takes, once, before the next dispatch in the same slots. It keeps the arguments'
        tensors.

    Raises:
        RuntimeError: a dispatch is in flight in these slots. ValueError: ``num_sms`` is given, since rounds have no
        halves; and what :func:`dispatch` raises.
    """
    with calling("dispatch_send", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms)
        given: tuple[Any, ...] = (x, x if scales is None else scales, topk_ids, topk_weights)
        signature = None if topk_weights is None else prepared.signature(("dispatch_send", *sizes), *given)
        known = prepared.details(signature)
        if known is not None and topk_weights is not None:
            exchange, rest = known
            sendable = not exchange.is_in_flight() and not records_gradients(x, topk_weights, scales)
            routing, rows = Routing(topk_ids, topk_weights, *rest), None
            n_scales = 0 if scales is None else scales.shape[1]
            if sendable and routing.hosts > 1:
                rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
                given = *given, *rows
            if sendable and prepared.repeat(signature, *given):
                how = (buffer, sm_margin), exchange.in_flight.last
                return Sent(exchange, routing, x.dtype, x.shape[1], n_scales, rows, *how)
        if num_sms:
            refuse_halves_of_rounds("dispatch_send")
        routing, compared = check_routing(
            comm, "dispatch_send", x, topk_ids, topk_weights, num_experts, max_tokens, align, capacity, expert_capacity,
            scales=scales, buffer=buffer, sm_margin=sm_margin,
        )  # fmt: skip
        routing = routing._replace(halves=True)
        n_scales = 0 if scales is None else scales.shape[1]
        exchange, rows, made = _send_half(x, scales, n_scales, routing, buffer, sm_margin)
        sent = Sent(exchange, routing, x.dtype, x.shape[1], n_scales, rows, (buffer, sm_margin), exchange.send())
        prepared.keep(
            signature, exchange.sending(made), *compared, details=(exchange, routing[2:]),
            new=new_sent(sent) if routing.hosts == 1 else None, conditions=exchange.is_free(),
        )  # fmt: skip
        return sent


def _send_half(
    x: torch.Tensor, scales: torch.Tensor | None, n_scales: int, routing: Routing, buffer: int, sm_margin: int
) -> tuple[Exchange | HostExchange, ColumnRows | None, Launch | None]:
    if routing.hosts > 1:
        rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
        crossing, made = between_hosts.send_to_hosts("dispatch_send", x, scales, routing, rows, buffer, sm_margin)
        return crossing, rows, made
    exchange, constants = _prepare("dispatch_send", x, n_scales, routing, buffer, sm_margin)
    tensors = *map(in_int32, (x, x if scales is None else scales)), routing.ids, routing.weights
    made = launch(
        moe_dispatch_send, (exchange.programs,), tensors, routing.n_tokens, exchange.messages, _sums(exchange, routing),
        exchange.slots, exchange.sent, **constants, **_sending(exchange, routing, constants),
        **_options(routing, constants),
    )  # fmt: skip
    return exchange, None, made


def dispatch_receive(sent: Sent, result: Dispatched | None = None) -> Dispatched:
    """The second half of :func:`dispatch`: wait for the rows of ``sent``.

    Args:
        result: tensors for them, from :func:`result_of`; by default new ones.

    Raises:
        TypeError: ``sent`` is something else. RuntimeError: they have been received already.
    """
    if not isinstance(sent, Sent):
        raise TypeError(f"dispatch_receive: sent must be what dispatch_send returns, got {type(sent).__name__}")
    exchange, routing = sent.exchange, sent.routing
    with calling("dispatch_receive", routing.comm, between_hosts=True) as comm:
        exchange.receive("dispatch_receive", sent.number)
        prepared = comm.own(Prepared)
        given = () if result is None else result[:3]
        if sent.rows is not None:
            given = *given, routing.ids
        sizes = exchange.name, routing[2:8], routing.top_k, sent.dtype, sent.hidden, sent.n_scales
        signature = prepared.signature(("dispatch_receive", *sizes), *given)
        if result is None:
            n_words = prepared.details(signature) or 0
            result = result_of(routing, sent.dtype, sent.hidden, sent.n_scales, torch.empty, n_words)
        tensors: Sequence[torch.Tensor] = (
            result.x,
            result.x if result.scales is None else result.scales,
            result.memory,
        )
        if sent.rows is not None:
            tensors = routing.ids, *sent.rows, *tensors
        if prepared.repeat(signature, *tensors):
            return result
        prepared.keep(signature, _receive_half(sent, result), details=result.memory.numel())
    return result


def _receive_half(sent: Sent, result: Dispatched) -> Launch | Sequence[Step] | None:
    exchange, routing = sent.exchange, sent.routing
    if isinstance(exchange, HostExchange):
        assert sent.rows is not None
        within = partial(_within_host, "dispatch_receive", *sent.options)
        return between_hosts.receive_from_hosts(exchange, routing, sent.rows, sent.n_scales, result, within)
    constants = _constants(routing, sent.hidden * sent.dtype.itemsize // 4, sent.n_scales)
    out, out_scales, memory = result.x, result.x if result.scales is None else result.scales, result.memory
    return launch(
        moe_dispatch_receive, (exchange.programs,), (*map(in_int32, (out, out_scales)), memory), routing.capacity,
        exchange.messages, exchange.slots, exchange.received, **_layout(routing), **constants,
        **_options(routing, constants),
    )  # fmt: skip


def run(
    comm: Communicator,
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor | None,
    scales: torch.Tensor | None,
    num_experts: int,
    max_tokens: int,
    align: int,
    capacity: int | None,
    expert_capacity: int | None,
    buffer: int,
    sm_margin: int,
    num_sms: int,
    algorithm: str = "auto",
    *,
    new: Callable[..., torch.Tensor],
) -> Dispatched:
    """:func:`dispatch`, inside a call; ``new`` makes the results, ``torch.empty`` or ``torch.zeros``."""
    prepared = comm.own(Prepared)
    given = (x, ids, weights) if scales is None else (x, ids, weights, scales)
    sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms, algorithm)
    signature = None if weights is None else prepared.signature(("dispatch", *sizes), *given)
    known = prepared.details(signature)
    if known is not None and weights is not None:
        exchange, rest, n_words = known
        if not (exchange and exchange.is_in_flight()) and not records_gradients(x, weights, scales):
            routing = Routing(ids, weights, *rest)
            n_scales = 0 if scales is None else scales.shape[1]
            result = result_of(routing, x.dtype, x.shape[1], n_scales, new, n_words)
            tensors = _tensors(x, scales, routing, result)
            if routing.hosts > 1:
                tensors = *tensors[:4], *column_rows(routing, x.dtype, x.shape[1], n_scales), *tensors[4:]
            if prepared.repeat(signature, *tensors):
                return result
    routing, compared = check_routing(
        comm, "dispatch", x, ids, weights, num_experts, max_tokens, align, capacity, expert_capacity, num_sms,
        algorithm, scales=scales, buffer=buffer, sm_margin=sm_margin,
    )  # fmt: skip
    result, exchange, made = _run("dispatch", x, scales, routing, buffer, sm_margin, new)
    prepared.keep(
        signature, made, *compared, details=(exchange, routing[2:], result.memory.numel()),
        new=_new_tensors(result) if routing.hosts == 1 else None,
        conditions=exchange.is_free() if isinstance(exchange, Exchange) else (),
    )  # fmt: skip
    return result


def _new_tensors(result: Dispatched) -> NewTensors:
    """Those of a call, as its plan is given them by :func:`_tensors`; the result holds its ids and weights."""
    x, scales, memory, routing = result
    made: dict[tuple[int, ...], torch.Tensor]
    made = {(4, 5): x, (6,): memory} if scales is None else {(4,): x, (5,): scales, (6,): memory}
    results = 0, None if scales is None else 1, len(made) - 1, (2,), (3,)
    return NewTensors(
        tuple(map(like, made.values())), tuple(made), results, partial(_dispatched, routing[2:]), _parts_of_dispatched
    )


def _dispatched(rest: tuple[Any, ...], parts: tuple[Any, ...]) -> Dispatched:
    x, scales, memory, ids, weights = parts
    return Dispatched(x, scales, memory, Routing(ids, weights, *rest))


def _parts_of_dispatched(result: Dispatched) -> tuple[Any, ...]:
    return *result[:3], *result.routing[:2]


def _run(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    buffer: int,
    sm_margin: int,
    new: Callable[..., torch.Tensor],
) -> tuple[Dispatched, Exchange | HostExchange | None, Launch | Sequence[Step] | None]:
    n_scales = 0 if scales is None else scales.shape[1]
    result = result_of(routing, x.dtype, x.shape[1], n_scales, new)
    if routing.hosts == 1:
        return result, *_launch(function, buffer, sm_margin, x, scales, routing, result)
    rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
    within = partial(_within_host, function, buffer, sm_margin)
    return result, *between_hosts.exchange_with_hosts(
        function, x, scales, routing, result, rows, buffer, sm_margin, within
    )


def _within_host(function: str, buffer: int, sm_margin: int, *dispatched: Any) -> Launch | None:
    made = _launch(function, buffer, sm_margin, *dispatched)[1]
    assert made is None or isinstance(made, Launch), "between hosts load and store move rows"
    return made


def _launch(
    function: str,
    buffer: int,
    sm_margin: int,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    result: Dispatched,
) -> tuple[Exchange | None, Launch | Sequence[Step] | None]:
    """Dispatch into ``result`` inside a host."""
    n_scales = 0 if scales is None else scales.shape[1]
    if routing.plan is not None:
        return None, dispatch_by_tma(x, scales, routing, result, buffer)
    x, scales, ids, weights, out, out_scales, memory = _tensors(x, scales, routing, result)
    if routing.num_sms:
        constants = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)
        made = dispatch_rounds(x, scales, routing, result, out_scales, constants | _layout(routing), _ASSERTING, buffer)
        return None, made
    if routing.by_tokens:
        return None, dispatch_many(function, x, scales if n_scales else None, routing, result, buffer, sm_margin)
    exchange, constants = _prepare(function, x, n_scales, routing, buffer, sm_margin)
    tensors = *map(in_int32, (x, scales)), ids, weights, *map(in_int32, (out, out_scales)), memory
    made = launch(
        moe_dispatch_one_round, (exchange.programs,), tensors, routing.n_tokens, routing.capacity, exchange.messages,
        _sums(exchange, routing), exchange.slots, exchange.sent, exchange.received, **constants,
        **_layout(routing), **_sending(exchange, routing, constants), **_options(routing, constants),
    )  # fmt: skip
    return exchange, made


def _tensors(
    x: torch.Tensor, scales: torch.Tensor | None, routing: Routing, result: Dispatched
) -> tuple[torch.Tensor, ...]:
    """The first arguments of the kernel. Where there are no scales, rows stand in their place."""
    of_rows = x if scales is None else scales
    out, out_scales, memory, _ = result
    return x, of_rows, routing.ids, routing.weights, out, out if out_scales is None else out_scales, memory


def _prepare(
    function: str, x: torch.Tensor, n_scales: int, routing: Routing, buffer: int, sm_margin: int
) -> tuple[Exchange, dict[str, Any]]:
    """The slots of an exchange of rows like those of ``x``, and what is known when kernels are compiled."""
    constants = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)
    row, local = constants["ROW"], routing.local_experts
    assert routing.comm is not None
    what = f"dispatch of {row} words, {local} experts"
    counts = routing.sources.number * (local + 1)
    cut = _cut(routing, constants["DATA"])
    return open_exchange(routing.comm, function, routing, what, row, counts, buffer, sm_margin, cut), constants


def make_slots(comm: Communicator, function: str, x: torch.Tensor, n_scales: int, routing: Routing) -> None:
    """Make the slots of dispatches with this routing's sizes, of rows like those of ``x``. *Collective.*"""
    if routing.hosts > 1:
        between_hosts.dispatch_slots(comm, function, x, n_scales, routing)
        routing = between_hosts.inside_host(routing, None)
    words = x.shape[1] * x.element_size() // 4
    if routing.num_sms and (plan := plan_of_rounds(comm, x, routing.top_k, routing.num_sms)) is not None:
        make_slots_by_tma(routing._replace(plan=plan), x.shape[1] * x.element_size(), n_scales)
    elif routing.num_sms:
        dispatch_slots(routing, _constants(routing, words, n_scales)["ROW"], routing.num_sms)
    elif routing.by_tokens:
        make_slots_of_many(function, routing, words, n_scales)
    else:
        exchange, _ = _prepare(function, x, n_scales, routing, 0, 0)
        _sums(exchange, routing)


def _constants(routing: Routing, data: int, n_scales: int) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    scales = -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "DATA": data, "SCALES": n_scales, "AT": data + scales,
        "ROW": data + scales + 4 * kp, "BLOCK": _cut(routing, data).block, "SOURCES": routing.sources,
    }  # fmt: skip


def _cut(routing: Routing, data: int) -> Cut:
    return cut_of(data, routing.max_tokens, 4096, routing.members.size * routing.max_tokens)


def _layout(routing: Routing) -> dict[str, Any]:
    return {"PARTS": parts_of(routing)[:9], "ALIGN": routing.align, "FIXED": routing.fixed}


_ASSERTING = {"debug": True, "sanitize_overflow": False}
"""Options of launches: the kernels' assertions stay, which tell of mistakes that only the GPU sees."""


def _options(routing: Routing, constants: dict[str, Any]) -> dict[str, Any]:
    return {**_cut(routing, constants["DATA"]).options, **_ASSERTING}


def _sending(exchange: Exchange, routing: Routing, constants: dict[str, Any]) -> dict[str, int]:
    """How many tokens' ids are counted at a time, blocks of up to 32 comparisons a thread; and in how many parts."""
    kp = int(triton.next_power_of_2(routing.top_k))
    pes = int(triton.next_power_of_2(routing.members.size))
    at_once = max(1, min(128, 1024 * _cut(routing, constants["DATA"]).num_warps // (kp * pes)))
    return {"TOKENS": at_once, "COUNTERS": _counters(exchange, routing)}


def _counters(exchange: Exchange, routing: Routing) -> int:
    """In how many parts ids are counted; 0: every program counts all that it needs."""
    in_parts = has_many_tokens(routing.max_tokens) and routing.sources.number == 1
    return min(PARTS_OF_COUNTS, exchange.programs) if in_parts else 0


def _sums(exchange: Exchange, routing: Routing) -> torch.Tensor:
    """Where parts are counted; where none are, anything."""
    if not _counters(exchange, routing):
        return exchange.messages
    assert routing.comm is not None
    n_words = words_of_parts(routing.members.size * routing.local_experts, routing.members.size)
    return symmetric_workspace(routing.comm, f"{exchange.name}, sums", n_words, torch.int64)
