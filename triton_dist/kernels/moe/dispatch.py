"""Dispatch: every token goes to the PEs of its experts, and a PE's rows come out grouped by expert. Low latency.

Expert e lives on PE e // L, where L = num_experts / n_pes. Of T tokens with top-k expert ids, each row is sent once to
each PE that has one of its experts, with its scales and a header: the token's number, its expert ids and weights, and
for each expert the token's rank among those of its PE that chose this expert. A message of counts goes from every PE to
every PE first: how many rows it sends, and how many of them each expert takes. From the counts of all PEs a receiver
knows where the rows of each expert begin, and of every PE within them, so a row is stored at

    offset of the expert + rows of this expert from lower PEs + rank

whenever it arrives: the order of rows is by PE, then token, then choice. A row that several experts of the PE want is
stored for each. Nothing waits for the host, so a call can be captured in a graph and replayed with other routings.

It is one kernel. All programs send their tokens, then receive: rows in the sentinel protocol, which sends no flags, and
counts in the LL protocol. ``rows.py`` says why slots can be used again without barriers. The two halves are kernels of
their own as well, between which the GPU computes something else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import calling
from triton_dist.kernels.moe.arguments import Routing, check_routing, check_scales
from triton_dist.kernels.moe.exchange import Exchange, block_of, open_exchange, warps_of
from triton_dist.kernels.moe.rows import look_at, scalar_of, send_words, take_words
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.language._poll import no_polls, poll

__all__ = ["Dispatched", "Sent", "dispatch", "dispatch_receive", "dispatch_send", "result_of", "run"]


class Dispatched(NamedTuple):
    """What a PE receives. R is the capacity; rows that no token fills hold anything.

    Attributes:
        x: [R, hidden], the rows, grouped by this PE's experts.
        scales: [R, S] float32, or None.
        counts: [L] int32, how many rows each expert has.
        offsets: [L + 1] int32, where the rows of each expert begin, multiples of ``align``; and the end of the last.
        weights: [R] float32, what each row's result is multiplied by in :func:`combine`.
        choices: [R] int32, which of its token's choices a row is, in [0, top_k).
        positions, row_weights, row_tokens, rows: by source and message, for :func:`combine`.
        routing: the sizes of the call, and the ids by which it was routed.
    """

    x: torch.Tensor
    scales: torch.Tensor | None
    counts: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor
    choices: torch.Tensor
    positions: torch.Tensor
    row_weights: torch.Tensor
    row_tokens: torch.Tensor
    rows: torch.Tensor
    routing: Routing


class Sent(NamedTuple):
    """A dispatch whose receive half is to come: its exchange, sizes and dtypes."""

    exchange: Exchange
    routing: Routing
    dtype: torch.dtype
    hidden: int
    n_scales: int


# ---- device code. Blocks of ids and weights are [KP], of PEs [NP], powers of two; constants that all functions take:
#      K choices, L experts of a PE, DATA and SCALES words of a row, ROW words of a message with its header.


@triton.jit
def _ids_of(ids, tokens, end, K: tl.constexpr, KP: tl.constexpr):
    """The expert ids of a block of tokens, those below ``end``; -1 where there is none."""
    choices = tl.arange(0, KP)
    mask = (tokens < end)[:, None] & (choices < K)[None, :]
    return tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1)


@triton.jit
def _earlier(ids, token, N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, TOKENS: tl.constexpr):
    """How often the tokens before ``token`` choose each expert, [EP]; how many of them go to each PE, [NP]."""
    EP: tl.constexpr = triton.next_power_of_2(N * L)
    pes = tl.arange(0, triton.next_power_of_2(N))
    chosen = tl.zeros([EP], tl.int32)
    messages = tl.zeros(pes.shape, tl.int32)
    for first in range(0, token, TOKENS):
        earlier = _ids_of(ids, first + tl.arange(0, TOKENS), token, K, KP).to(tl.int32)
        flat = earlier.reshape([TOKENS * KP])
        chosen += tl.histogram(flat, EP, mask=(flat >= 0) & (flat < N * L))
        messages += tl.sum(_to_pes(earlier, pes, L), axis=0)
    return chosen, messages


@triton.jit
def _to_pes(ids, pes, L: tl.constexpr):
    """Which PEs have one of a token's experts: [TOKENS, NP] of 0 and 1."""
    homes = tl.where(ids >= 0, ids // L, -1)
    return tl.max((homes[:, :, None] == pes[None, None, :]).to(tl.int32), axis=1)


@triton.jit
def _send_counts(
    ids, n_tokens, counts, number, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Tell every PE how many rows each of its experts gets from here, and how many messages they come in."""
    N: tl.constexpr = group_size(MEMBERS)
    columns = tl.arange(0, triton.next_power_of_2(L + 1))
    # The last programs do it: they have the fewest tokens to send.
    for pe in range(tl.num_programs(0) - 1 - tl.program_id(0), N, tl.num_programs(0)):
        sent = tl.zeros(columns.shape, tl.int32)
        for first in range(0, n_tokens, TOKENS):
            chosen = _ids_of(ids, first + tl.arange(0, TOKENS), n_tokens, K, KP)
            assert (chosen >= -1) & (chosen < N * L), "dispatch: an expert id is not in [-1, num_experts)"
            local = chosen.to(tl.int32) - pe * L
            hits = tl.sum((local[:, :, None] == columns[None, None, :]).to(tl.int32), axis=0)
            there = tl.max(((local >= 0) & (local < L)).to(tl.int32), axis=1)
            sent += tl.where(columns == L, tl.sum(there), tl.where(columns < L, tl.sum(hits, axis=0), 0))
        slot = counts + ((number & 1) * N + my_rank(MEMBERS)) * (L + 1) + columns
        message = (number.to(tl.int64) << 32) | sent.to(tl.int64)
        tl.store(dl.symm_at(slot, pe_of(pe, MEMBERS)), message, mask=columns <= L)


@triton.jit
def _send(
    x, scales, ids, weights, n_tokens, counts, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTED: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    pes = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, KP)
    me = my_rank(MEMBERS)
    number = next_number(tl.load(numbers + tl.program_id(0)))
    _send_counts(ids, n_tokens, counts, number, MEMBERS, K, KP, L, COUNTED)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    # A program sends tokens that follow each other, so that it counts those before them once.
    each = tl.cdiv(n_tokens, tl.num_programs(0))
    begin = tl.program_id(0) * each
    chosen, messages = _earlier(ids, tl.minimum(begin, n_tokens), N, K, KP, L, TOKENS)
    experts = tl.arange(0, chosen.shape[0])
    for token in range(begin, tl.minimum(begin + each, n_tokens)):
        mine = tl.load(ids + tl.cast(token, tl.int64) * K + choices, mask=choices < K, other=-1).to(tl.int32)
        # The rank of a choice: earlier ones of the same expert, by other tokens and by this one.
        same = mine[:, None] == mine[None, :]
        ranks = tl.sum((same & (choices[:, None] < choices[None, :])).to(tl.int32), axis=0)
        hits = experts[:, None] == mine[None, :]
        ranks += tl.sum(tl.where(hits, chosen[:, None], 0), axis=0)
        wanted = tl.max((tl.where(mine >= 0, mine // L, -1)[:, None] == pes[None, :]).to(tl.int32), axis=0)
        weight = tl.load(weights + tl.cast(token, tl.int64) * K + choices, mask=choices < K, other=0.0)
        # The header: [4, KP] words.
        fields = tl.arange(0, 4)[:, None]
        header = tl.where(fields == 0, mine[None, :], tl.where(fields == 1, ranks[None, :], token))
        header = tl.where(fields == 2, weight.to(tl.int32, bitcast=True)[None, :], header)
        places = ()
        sends = ()
        for i in tl.static_range(N):
            pe = (me + i) % N
            message = slots + (half + scalar_of(messages, pe)) * ROW
            places = places + (dl.symm_at(message, pe_of(pe, MEMBERS)),)  # type: ignore[assignment]  # noqa: RUF005
            sends = sends + (scalar_of(wanted, pe) != 0,)  # type: ignore[assignment]  # noqa: RUF005
        words = AT + fields * KP + choices[None, :]
        for i in tl.static_range(N):
            send_words(places[i] + words, header, sends[i] & (words >= 0))
        for first in tl.static_range(0, DATA, BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            row = tl.load(x + tl.cast(token, tl.int64) * DATA + offsets, mask=offsets < DATA)
            for i in tl.static_range(N):
                send_words(places[i] + offsets, row, sends[i] & (offsets < DATA))
        for first in tl.static_range(0, SCALES, BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            row = tl.load(scales + tl.cast(token, tl.int64) * SCALES + offsets, mask=offsets < SCALES)
            for i in tl.static_range(N):
                send_words(places[i] + DATA + offsets, row, sends[i] & (offsets < SCALES))
        chosen += tl.sum(hits.to(tl.int32), axis=1)
        messages += wanted
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def _receive_counts(counts, number, MEMBERS: tl.constexpr, L: tl.constexpr):
    """Wait for the counts of all PEs: [NP, LP], row i from rank i; column L counts messages."""
    N: tl.constexpr = group_size(MEMBERS)
    pes = tl.arange(0, triton.next_power_of_2(N))
    columns = tl.arange(0, triton.next_power_of_2(L + 1))
    slot = counts + (number & 1) * N * (L + 1)
    mask = (pes < N)[:, None] & (columns <= L)[None, :]
    places = slot + pes[:, None] * (L + 1) + columns[None, :]
    other = number.to(tl.int64) << 32
    seen = tl.load(places, mask=mask, other=other, volatile=True)
    polls = no_polls()
    flags = slot.to(tl.pointer_type(tl.int32), bitcast=True) + 1
    while tl.max(((seen >> 32).to(tl.int32) != number).to(tl.int32).reshape([seen.numel])) != 0:
        seen = tl.load(places, mask=mask, other=other, volatile=True)
        polls = poll(polls, flags, dl.CMP_EQ, number, pe_of(0, MEMBERS), N, L + 1, 2 * (L + 1), 2)
    return seen.to(tl.int32)


@triton.jit
def _receive(
    out, out_scales, out_counts, out_offsets, out_weights, out_choices, positions, row_weights, row_tokens, rows,
    capacity, counts, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    ALIGN: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    pes = tl.arange(0, triton.next_power_of_2(N))
    columns = tl.arange(0, triton.next_power_of_2(L + 1))
    choices = tl.arange(0, KP)
    number = next_number(tl.load(numbers + tl.program_id(0)))
    arrived = _receive_counts(counts, number, MEMBERS, L)
    totals = tl.where(columns < L, tl.sum(tl.where((pes < N)[:, None], arrived, 0), axis=0), 0)
    padded = (totals + (ALIGN - 1)) // ALIGN * ALIGN
    if FIXED:  # every expert has room for as many
        padded = tl.where(columns < L, ALIGN, 0)
    offsets_of = tl.cumsum(padded, axis=0) - padded
    messages = tl.sum(tl.where((columns == L)[None, :] & (pes < N)[:, None], arrived, 0), axis=1)
    if tl.program_id(0) == 0:
        assert (tl.sum(padded) <= capacity) & (tl.max(totals) <= (ALIGN if FIXED else capacity)), (
            "dispatch: more rows arrive than capacity"
        )
        tl.store(out_counts + columns, totals, mask=columns < L)
        tl.store(out_offsets + columns, offsets_of, mask=columns <= L)
        tl.store(rows + pes, messages, mask=pes < N)
    half = (number & 1).to(tl.int64) * (N * MAX_TOKENS)
    me = my_rank(MEMBERS)
    for i in range(tl.program_id(0), tl.max(messages) * N, tl.num_programs(0)):
        source = (me + i) % N
        message = source * MAX_TOKENS + i // N
        if i // N < scalar_of(messages, source):
            place = slots + (half + message) * ROW
            pe = pe_of(source, MEMBERS)
            fields = tl.arange(0, 4)[:, None]
            at = place + AT + fields * KP + choices[None, :]
            all_of_it = (fields < 4) & (choices >= 0)[None, :]
            header = take_words(look_at(at, all_of_it), at, all_of_it, place + AT, pe, 4 * KP)
            chosen = tl.sum(tl.where(fields == 0, header, 0), axis=0)
            ranks = tl.sum(tl.where(fields == 1, header, 0), axis=0)
            weight = tl.sum(tl.where(fields == 2, header, 0), axis=0).to(tl.float32, bitcast=True)
            token = tl.max(tl.where(fields == 3, header, 0).reshape([4 * KP]))
            expert = chosen - me * L
            begins = offsets_of + tl.sum(tl.where((pes < source)[:, None], arrived, 0), axis=0)
            begin = tl.sum(tl.where(columns[:, None] == expert[None, :], begins[:, None], 0), axis=0)
            there = (expert >= 0) & (expert < L) & (choices < K)
            position = tl.where(there, begin + ranks, -1)
            position = tl.where(position < capacity, position, -1)
            tl.store(positions + message * K + choices, position, mask=choices < K)
            tl.store(row_weights + message * K + choices, weight, mask=choices < K)
            tl.store(row_tokens + message, token)
            tl.store(out_weights + position, weight, mask=position >= 0)
            tl.store(out_choices + position, choices, mask=position >= 0)
            for first in tl.static_range(0, DATA, BLOCK):
                offsets = first + tl.arange(0, BLOCK)
                seen = look_at(place + offsets, offsets < DATA)
                row = take_words(seen, place + offsets, offsets < DATA, place + first, pe, min(BLOCK, DATA - first))
                for k in tl.static_range(K):
                    to = scalar_of(position, k)
                    tl.store(out + to.to(tl.int64) * DATA + offsets, row, mask=(offsets < DATA) & (to >= 0))
            for first in tl.static_range(0, SCALES, BLOCK):
                offsets = first + tl.arange(0, BLOCK)
                at = place + DATA + offsets
                seen = look_at(at, offsets < SCALES)
                row = take_words(seen, at, offsets < SCALES, place + DATA + first, pe, min(BLOCK, SCALES - first))
                for k in tl.static_range(K):
                    to = scalar_of(position, k)
                    tl.store(out_scales + to.to(tl.int64) * SCALES + offsets, row, mask=(offsets < SCALES) & (to >= 0))
    tl.debug_barrier()
    tl.store(numbers + tl.program_id(0), number)


@triton.jit
def _dispatch_send(
    x, scales, ids, weights, n_tokens, counts, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTED: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, AT, ROW,
        BLOCK, TOKENS, COUNTED,
    )  # fmt: skip


@triton.jit
def _dispatch_receive(
    out, out_scales, out_counts, out_offsets, out_weights, out_choices, positions, row_weights, row_tokens, rows,
    capacity, counts, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    ALIGN: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    _receive(
        out, out_scales, out_counts, out_offsets, out_weights, out_choices, positions, row_weights, row_tokens, rows,
        capacity, counts, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, AT, ROW, ALIGN, FIXED, BLOCK,
    )  # fmt: skip


@triton.jit
def _dispatch(
    x, scales, ids, weights, n_tokens, sent_numbers,
    out, out_scales, out_counts, out_offsets, out_weights, out_choices, positions, row_weights, row_tokens, rows,
    capacity, received_numbers, counts, slots, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr,
    ROW: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTED: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, slots, sent_numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES,
        AT, ROW, BLOCK, TOKENS, COUNTED,
    )  # fmt: skip
    _receive(
        out, out_scales, out_counts, out_offsets, out_weights, out_choices, positions, row_weights, row_tokens, rows,
        capacity, counts, slots, received_numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES, AT, ROW, ALIGN, FIXED,
        BLOCK,
    )  # fmt: skip


# ---- the host's part


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
    group: Any = None,
) -> Dispatched:
    """Send each of this PE's tokens to the PEs of its experts, and receive the rows of this PE's experts.

    *Collective*, on the current stream. Every PE calls it with the same sizes but for T, and may have no tokens at all.
    A call may be captured in a CUDA graph after it has run once for its sizes.

    Args:
        x: [T, hidden], contiguous: bfloat16, float16, float32, float8_e4m3fn or float8_e5m2. A row is a multiple of
            16 bytes.
        topk_ids: [T, top_k] int32 or int64, contiguous, in [0, num_experts), or -1 for a choice that is not made. An
            expert may be chosen twice.
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
        group: as of all functions of :mod:`triton_dist.kernels`; experts and ``num_experts`` are those of its members.

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: the last dispatch in these slots has been sent but not received; or a CUDA graph is captured
            before a first run of the same sizes. In the CPU world also: an id is out of range.
    """
    with calling("dispatch", group) as comm:
        routing = check_routing(
            comm, "dispatch", x, topk_ids, topk_weights, num_experts, max_tokens, align, capacity, expert_capacity
        )
        return run("dispatch", x, scales, routing, buffer, sm_margin, new=torch.empty)


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
    group: Any = None,
) -> Sent:
    """The first half of :func:`dispatch`, with its arguments: send, and wait for nothing.

    What follows on the stream runs while the rows are on their way. :func:`dispatch_receive` must come before the next
    dispatch in the same slots.
    """
    with calling("dispatch_send", group) as comm:
        routing = check_routing(
            comm, "dispatch_send", x, topk_ids, topk_weights, num_experts, max_tokens, align, capacity, expert_capacity
        )
        n_scales = check_scales("dispatch_send", x, scales)
        exchange, constants, given = _prepare("dispatch_send", x, scales, routing, buffer, sm_margin)
        _dispatch_send[(exchange.programs,)](
            *given,
            exchange.messages,
            exchange.slots,
            exchange.sent,
            **constants,
            **_sending(routing, constants),
            **_options(constants),
        )
        exchange.in_flight.add(exchange.name)
        return Sent(exchange, routing, x.dtype, x.shape[1], n_scales)


def dispatch_receive(sent: Sent, result: Dispatched | None = None) -> Dispatched:
    """The second half of :func:`dispatch`: wait for the rows of ``sent``.

    Args:
        result: tensors for them, from :func:`result_of`; by default new ones.

    Raises:
        RuntimeError: they have been received already.
    """
    exchange, routing = sent.exchange, sent.routing
    with calling("dispatch_receive", routing.comm):
        exchange.receive("dispatch_receive")
        if result is None:
            result = result_of(routing, sent.dtype, sent.hidden, sent.n_scales, torch.empty)
        constants = _constants(routing, sent.hidden * sent.dtype.itemsize // 4, sent.n_scales)
        _dispatch_receive[(exchange.programs,)](
            *_outputs(result), exchange.messages, exchange.slots, exchange.received, **_layout(routing), **constants,
            **_options(constants),
        )  # fmt: skip
    return result


def run(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    buffer: int = 0,
    sm_margin: int = 0,
    *,
    new: Callable[..., torch.Tensor],
) -> Dispatched:
    """Dispatch, after ``routing`` has been checked; ``new`` makes the results, ``torch.empty`` or ``torch.zeros``."""
    n_scales = check_scales(function, x, scales)
    exchange, constants, given = _prepare(function, x, scales, routing, buffer, sm_margin)
    result = result_of(routing, x.dtype, x.shape[1], n_scales, new)
    _dispatch[(exchange.programs,)](
        *given, exchange.sent, *_outputs(result), exchange.received, exchange.messages, exchange.slots,
        **_layout(routing), **constants, **_sending(routing, constants), **_options(constants),
    )  # fmt: skip
    return result


def _prepare(
    function: str, x: torch.Tensor, scales: torch.Tensor | None, routing: Routing, buffer: int, sm_margin: int
) -> tuple[Exchange, dict[str, Any], tuple[Any, ...]]:
    """The slots of an exchange of rows like those of ``x``, what is known when kernels are compiled, what is sent."""
    n_scales = 0 if scales is None else scales.shape[1]
    constants = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)
    row, local = constants["ROW"], routing.local_experts
    assert routing.comm is not None
    what = f"dispatch of {row} words, {local} experts"
    exchange = open_exchange(routing.comm, function, routing, what, row, local + 1, buffer, sm_margin)
    words = x.view(torch.int32)
    weights = routing.weights
    return exchange, constants, (
        words, words if scales is None else scales.view(torch.int32), routing.ids, weights, routing.n_tokens,
    )  # fmt: skip


def _constants(routing: Routing, data: int, n_scales: int) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    scales = -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "DATA": data, "SCALES": n_scales, "AT": data + scales,
        "ROW": data + scales + 4 * kp, "BLOCK": block_of(data, 4096),
    }  # fmt: skip


def _layout(routing: Routing) -> dict[str, int | bool]:
    return {"ALIGN": routing.align, "FIXED": routing.fixed}


def _options(constants: dict[str, Any]) -> dict[str, Any]:
    """Of launches. ``debug`` keeps the kernels' assertions, which tell of mistakes that only the GPU sees."""
    return {"num_warps": warps_of(constants["BLOCK"]), "debug": True, "sanitize_overflow": False}


def _sending(routing: Routing, constants: dict[str, Any]) -> dict[str, int]:
    """How many tokens' ids are compared at a time: blocks of up to 32 comparisons a thread."""
    kp = int(triton.next_power_of_2(routing.top_k))
    pes = int(triton.next_power_of_2(routing.members.size))
    local = int(triton.next_power_of_2(routing.local_experts + 1))
    most = 1024 * warps_of(constants["BLOCK"])
    return {"TOKENS": max(1, min(128, most // (kp * max(kp, pes)))), "COUNTED": max(1, min(128, most // (kp * local)))}


def result_of(
    routing: Routing, dtype: torch.dtype, hidden: int, n_scales: int, new: Callable[..., torch.Tensor]
) -> Dispatched:
    """Tensors for the results of a dispatch."""
    capacity, messages, local = routing.capacity, routing.members.size * routing.max_tokens, routing.local_experts
    new = functools.partial(new, device=routing.ids.device)
    f32, i32 = torch.float32, torch.int32
    return Dispatched(
        x=new(capacity, hidden, dtype=dtype),
        scales=new(capacity, n_scales, dtype=f32) if n_scales else None,
        counts=new(local, dtype=i32),
        offsets=new(local + 1, dtype=i32),
        weights=new(capacity, dtype=f32),
        choices=new(capacity, dtype=i32),
        positions=new(messages, routing.top_k, dtype=i32),
        row_weights=new(messages, routing.top_k, dtype=f32),
        row_tokens=new(messages, dtype=i32),
        rows=new(routing.members.size, dtype=i32),
        routing=routing,
    )


def _outputs(result: Dispatched) -> tuple[Any, ...]:
    x = result.x.view(torch.int32)
    scales = x if result.scales is None else result.scales.view(torch.int32)
    return x, scales, *result[2:10], result.routing.capacity
