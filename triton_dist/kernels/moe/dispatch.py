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
counts in the LL protocol. ``rows.py`` says why slots can be used again without barriers. Of a row that stays on its PE
the header alone goes through a slot. The two halves are kernels of their own as well, between which the GPU computes
something else; there all rows go through slots, since ``x`` may change in between.

Of a group on several hosts, PEs of one host do this with the tokens of their columns (``between_hosts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.communicator import Communicator, calling
from triton_dist.kernels.moe import between_hosts
from triton_dist.kernels.moe.arguments import (
    Routing,
    check_routing,
    check_scales,
    compared_of,
    records_gradients,
    refuse_halves_of_rounds,
)
from triton_dist.kernels.moe.between_hosts import ColumnRows, column_rows
from triton_dist.kernels.moe.dispatch_counts import (
    PARTS_OF_COUNTS,
    begins_of,
    count_ids,
    count_in_parts,
    receive_counts,
    send_counted,
    send_counts,
    source_of,
    words_of_parts,
)
from triton_dist.kernels.moe.exchange import Cut, Exchange, cut_of, has_many_tokens, open_exchange
from triton_dist.kernels.moe.host_exchange import HostExchange
from triton_dist.kernels.moe.results import Dispatched, parts_of, result_of
from triton_dist.kernels.moe.rounds import dispatch_rounds, dispatch_slots
from triton_dist.kernels.moe.rows import look_at, scalar_of, send_words, take_words
from triton_dist.kernels.prepared import Launch, Prepared, Step, launch
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.language._poll import held_once

__all__ = ["Sent", "dispatch", "dispatch_receive", "dispatch_send", "make_slots", "run"]


class Sent(NamedTuple):
    """A dispatch whose receive half is to come: its exchange, sizes and dtypes."""

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


# ---- device code. Blocks of ids and weights are [KP], of PEs [NP], powers of two; constants that all functions take:
#      K choices, L experts of a PE, DATA and SCALES words of a row, ROW words of a message with its header.


@triton.jit
def _pes_of(ids, pes, L: tl.constexpr):
    """1 for each of ``pes`` that has one of a token's experts, else 0."""
    return tl.max((tl.where(ids >= 0, ids // L, -1)[:, None] == pes[None, :]).to(tl.int32), axis=0)


@triton.jit
def _leaves(wanted, pes, me, OWN: tl.constexpr):
    """Whether the words of a token's row are sent to anyone."""
    return tl.max(wanted if OWN else tl.where(pes == me, 0, wanted)) != 0


@triton.jit
def _send(
    x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, SOURCES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``OWN``: whether rows that stay here go through slots, too; else their headers alone."""
    N: tl.constexpr = group_size(MEMBERS)
    TO: tl.constexpr = N if OWN else N - 1  # this PE is the last one that it sends to
    SCALE_BLOCK: tl.constexpr = max(1, min(BLOCK, triton.next_power_of_2(SCALES)))
    pes = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, KP)
    block = tl.arange(0, BLOCK)
    me = my_rank(MEMBERS)
    program, programs = tl.program_id(0), tl.num_programs(0)
    number = next_number(tl.load(numbers + program))
    if COUNTERS == 0:
        send_counts(ids, n_tokens, counts, number, MEMBERS, K, KP, L, TOKENS, True, SOURCES)
    half = ((number & 1) * N + me).to(tl.int64) * MAX_TOKENS
    # A program sends tokens that follow each other, so that it counts those before them once.
    each = tl.cdiv(n_tokens, programs)
    begin = tl.minimum(program * each, n_tokens)
    end = tl.minimum(begin + each, n_tokens)
    # A token's ids and its row's first words are in flight while ids are counted and the token before is sent.
    row = begin.to(tl.int64)
    mine = tl.load(ids + row * K + choices, mask=(choices < K) & (begin < end), other=-1).to(tl.int32)
    wanted = _pes_of(mine, pes, L)
    words = tl.load(x + row * DATA + block, mask=(block < DATA) & _leaves(wanted, pes, me, OWN))
    if COUNTERS > 0:
        pe = pe_of(me, MEMBERS)
        chosen, messages = count_in_parts(ids, n_tokens, begin, sums, number, pe, N, K, KP, L, TOKENS, COUNTERS)
        send_counted(sums, counts, number, MEMBERS, L, COUNTERS)
    else:
        chosen, messages = count_ids(ids, 0, tl.where(begin < end, begin, 0), N, K, KP, L, TOKENS, True)
    if SOURCES[0] > 1:  # ranks are among those of the token's source
        of_source = tl.where(begin < end, begin, 0) // SOURCES[1] * SOURCES[1]
        chosen, _ = count_ids(ids, of_source, tl.where(begin < end, begin, 0), N, K, KP, L, TOKENS)
    experts = tl.arange(0, chosen.shape[0])
    for token in range(begin, end):
        row = tl.cast(token, tl.int64)
        if SOURCES[0] > 1:
            chosen = tl.where(token % SOURCES[1] == 0, 0, chosen)
        weight = tl.load(weights + row * K + choices, mask=choices < K, other=0.0)
        there = (choices < K) & (token + 1 < end)
        next_ids = tl.load(ids + (row + 1) * K + choices, mask=there, other=-1).to(tl.int32)
        places = ()
        sends = ()
        for i in tl.static_range(1, N + 1):  # peers first, from the next on; what stays here is here soon
            pe = (me + i) % N
            message = slots + (half + scalar_of(messages, pe)) * ROW
            places = places + (dl.symm_at(message, pe_of(pe, MEMBERS)),)  # type: ignore[assignment]  # noqa: RUF005
            sends = sends + (scalar_of(wanted, pe) != 0,)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(TO):
            send_words(places[i] + block, words, sends[i] & (block < DATA))
        next_wanted = _pes_of(next_ids, pes, L)
        words = tl.load(x + (row + 1) * DATA + block, mask=(block < DATA) & _leaves(next_wanted, pes, me, OWN))
        for first in tl.static_range(BLOCK, DATA, BLOCK):
            offsets = first + block
            more = tl.load(x + row * DATA + offsets, mask=(offsets < DATA) & _leaves(wanted, pes, me, OWN))
            for i in tl.static_range(TO):
                send_words(places[i] + offsets, more, sends[i] & (offsets < DATA))
        for first in tl.static_range(0, SCALES, SCALE_BLOCK):
            offsets = first + tl.arange(0, SCALE_BLOCK)
            more = tl.load(scales + row * SCALES + offsets, mask=(offsets < SCALES) & _leaves(wanted, pes, me, OWN))
            for i in tl.static_range(TO):
                send_words(places[i] + DATA + offsets, more, sends[i] & (offsets < SCALES))
        # The rank of a choice: earlier ones of the same expert, by other tokens and by this one.
        same = mine[:, None] == mine[None, :]
        ranks = tl.sum((same & (choices[:, None] < choices[None, :])).to(tl.int32), axis=0)
        hits = experts[:, None] == mine[None, :]
        ranks += tl.sum(tl.where(hits, chosen[:, None], 0), axis=0)
        # The header: [4, KP] words.
        fields = tl.arange(0, 4)[:, None]
        header = tl.where(fields == 0, mine[None, :], tl.where(fields == 1, ranks[None, :], token))
        header = tl.where(fields == 2, weight.to(tl.int32, bitcast=True)[None, :], header)
        for i in tl.static_range(N):
            to = AT + fields * KP + choices[None, :]
            send_words(places[i] + to, header, sends[i] & (to >= 0))
        chosen += tl.sum(hits.to(tl.int32), axis=1)
        messages += wanted
        mine = next_ids
        wanted = next_wanted
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + program, number)


@triton.jit
def _message(i, own, me, N: tl.constexpr):
    """Of the messages to this PE, in the order in which they are taken: number i's source, and its number there."""
    OTHERS: tl.constexpr = max(N - 1, 1)
    return tl.where(i < own, me, (me + 1 + (i - own) % OTHERS) % N), tl.where(i < own, i, (i - own) // OTHERS)


@triton.jit
def _words_of(seen, places, here, left: tl.constexpr, arrives, first, pe, OWN: tl.constexpr):
    """A block of a row of which ``left`` words are left: what arrives in a slot (:func:`take_words`) or is ``here``."""
    mask = tl.arange(0, places.numel) < left
    if OWN:
        return take_words(seen, places, mask, first, pe, min(places.numel, left))
    else:
        if arrives:
            words = take_words(seen, places, mask, first, pe, min(places.numel, left))
        else:
            words = tl.load(here, mask=mask, other=0)
            words = tl.where(words == -0x80000000, 0, words)  # the word that does not arrive as it is, either
        return words


@triton.jit
def _receive(
    x, scales, out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS: tl.constexpr,
    K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr,
    SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
    FIXED: tl.constexpr, BLOCK: tl.constexpr, SOURCES: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``OWN`` as of :func:`_send`; if it is not set, rows that stay here are those of ``x`` and ``scales``."""
    N: tl.constexpr = group_size(MEMBERS)
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    SCALE_BLOCK: tl.constexpr = held_once(max(1, min(BLOCK, triton.next_power_of_2(SCALES))))
    choices = tl.arange(0, KP)
    block = tl.arange(0, BLOCK)
    me = my_rank(MEMBERS)
    program, programs = tl.program_id(0), tl.num_programs(0)
    number = next_number(tl.load(numbers + program))
    arrived = receive_counts(counts, number, MEMBERS, L, SOURCES)
    begins, messages = begins_of(arrived, memory, capacity, MEMBERS, L, PARTS, ALIGN, FIXED, SOURCES)
    of_begins = tl.arange(0, arrived.numel)
    firsts = tl.arange(0, messages.shape[0])
    half = (number & 1).to(tl.int64) * (N * MAX_TOKENS)
    # This PE's own messages first, while those of peers are on their way; then the peers' in turn. The words of the
    # next message are looked at before those of this one are waited for.
    own = scalar_of(messages, me * SOURCES[3])
    theirs = tl.max(tl.where(firsts == me * SOURCES[3], 0, messages)) * (N - 1)
    fields = tl.arange(0, 4)[:, None]
    header_words = AT + fields * KP + choices[None, :]
    of_scales = tl.arange(0, SCALE_BLOCK)
    source, index = _message(program, own, me, N)
    there = (program < own + theirs) & (index < scalar_of(messages, source * SOURCES[3]))
    place = slots + (half + source * MAX_TOKENS + index) * ROW
    seen_header = look_at(place + header_words, there & (header_words >= 0))
    seen = look_at(place + block, (block < DATA) & there & (OWN | (source != me)))
    for i in range(program, own + theirs, programs):
        is_message = there
        message = source * MAX_TOKENS + index
        pe = pe_of(source, MEMBERS)
        arrives = OWN | (source != me)
        this_place, this_header, this_seen, this_source = place, seen_header, seen, source
        source, index = _message(i + programs, own, me, N)
        there = (i + programs < own + theirs) & (index < scalar_of(messages, source * SOURCES[3]))
        place = slots + (half + source * MAX_TOKENS + index) * ROW
        seen_header = look_at(place + header_words, there & (header_words >= 0))
        seen = look_at(place + block, (block < DATA) & there & (OWN | (source != me)))
        if is_message:
            if SCALES > 0:
                seen_scales = look_at(this_place + DATA + of_scales, (of_scales < SCALES) & arrives)
            at_header = this_place + header_words
            header = take_words(this_header, at_header, header_words >= 0, this_place + AT, pe, 4 * KP)
            chosen = tl.sum(tl.where(fields == 0, header, 0), axis=0)
            ranks = tl.sum(tl.where(fields == 1, header, 0), axis=0)
            weight = tl.sum(tl.where(fields == 2, header, 0), axis=0)
            token = tl.max(tl.where(fields == 3, header, 0).reshape([4 * KP]))
            expert = chosen - me * L
            is_here = (expert >= 0) & (expert < L) & (choices < K)
            at_begin = tl.where(is_here, source_of(token, this_source, SOURCES) * LP + expert, -1)
            begin = tl.sum(tl.where(of_begins[:, None] == at_begin[None, :], begins[:, None], 0), axis=0)
            position = tl.where(is_here, begin + ranks, -1)
            position = tl.where(position < capacity, position, -1)
            tl.store(memory + PARTS[3] + message, token)
            tl.store(memory + PARTS[8] + token, message, mask=this_source == me)
            tl.store(memory + PARTS[4] + message * K + choices, position, mask=choices < K)
            tl.store(memory + PARTS[5] + message * K + choices, weight, mask=choices < K)
            tl.store(memory + PARTS[6] + position, weight, mask=position >= 0)
            tl.store(memory + PARTS[6] + tl.cdiv(capacity, 4) * 4 + position, choices, mask=position >= 0)
            kept = (position >= 0)[:, None]
            to_rows = position.to(tl.int64)[:, None]
            for first in tl.static_range(0, DATA, BLOCK):
                offsets = first + block
                if first > 0:
                    this_seen = look_at(this_place + offsets, (offsets < DATA) & arrives)
                here = x + tl.cast(token, tl.int64) * DATA + offsets
                row = _words_of(
                    this_seen, this_place + offsets, here, DATA - first, arrives, this_place + first, pe, OWN
                )
                to = out + to_rows * DATA + offsets[None, :]
                tl.store(to, tl.broadcast_to(row[None, :], to.shape), mask=kept & (offsets < DATA)[None, :])
            for first in tl.static_range(0, SCALES, SCALE_BLOCK):
                offsets = first + tl.arange(0, SCALE_BLOCK)
                at = this_place + DATA + offsets
                if first > 0:
                    seen_scales = look_at(at, (offsets < SCALES) & arrives)
                here = scales + tl.cast(token, tl.int64) * SCALES + offsets
                row = _words_of(seen_scales, at, here, SCALES - first, arrives, this_place + DATA + first, pe, OWN)
                to = out_scales + to_rows * SCALES + offsets[None, :]
                tl.store(to, tl.broadcast_to(row[None, :], to.shape), mask=kept & (offsets < SCALES)[None, :])
    tl.debug_barrier()
    tl.store(numbers + program, number)


@triton.jit(do_not_specialize=["n_tokens"])
def _dispatch_send(
    x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr, COUNTERS: tl.constexpr,
    SOURCES: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, sums, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA, SCALES,
        AT, ROW, BLOCK, TOKENS, COUNTERS, SOURCES, True,
    )  # fmt: skip


@triton.jit
def _dispatch_receive(
    out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    KP: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    AT: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr,
    BLOCK: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    _receive(
        out, out_scales, out, out_scales, memory, capacity, counts, slots, numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA,
        SCALES, AT, ROW, PARTS, ALIGN, FIXED, BLOCK, SOURCES, True,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n_tokens"])
def _dispatch(
    x, scales, ids, weights, out, out_scales, memory, n_tokens, capacity, counts, sums, slots, sent_numbers,
    received_numbers, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    MAX_TOKENS: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr, AT: tl.constexpr, ROW: tl.constexpr,
    PARTS: tl.constexpr, ALIGN: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
    COUNTERS: tl.constexpr, SOURCES: tl.constexpr,
):  # fmt: skip
    _send(
        x, scales, ids, weights, n_tokens, counts, sums, slots, sent_numbers, MEMBERS, K, KP, L, MAX_TOKENS, DATA,
        SCALES, AT, ROW, BLOCK, TOKENS, COUNTERS, SOURCES, False,
    )  # fmt: skip
    _receive(
        x, scales, out, out_scales, memory, capacity, counts, slots, received_numbers, MEMBERS, K, KP, L, MAX_TOKENS,
        DATA, SCALES, AT, ROW, PARTS, ALIGN, FIXED, BLOCK, SOURCES, False,
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
    num_sms: int = 0,
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
        num_sms: for thousands of tokens: the tokens go in rounds, by so many programs, through slots whose size does
            not grow with ``max_tokens``. All others of the GPU's SMs are left to other kernels. The result, and its
            :func:`combine`, which goes the same way, are the same bits. By default all SMs work, for low latency.
        group: as of all functions of :mod:`triton_dist.kernels`; experts and ``num_experts`` are those of its members,
            which may be on several hosts (``between_hosts.py``).

    Raises:
        TypeError, ValueError: an argument is not as described; the message says which and how.
        RuntimeError: the last dispatch in these slots has been sent but not received; or a CUDA graph is captured
            before a first run of the same sizes. In the CPU world also: an id is out of range.
    """
    sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms)
    with calling("dispatch", group, between_hosts=True) as comm:
        return run(comm, x, topk_ids, topk_weights, scales, *sizes, new=torch.empty)


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

    What follows on the stream runs while the rows are on their way, of several hosts those that cross.
    :func:`dispatch_receive` must come before the next dispatch in the same slots. A number of ``num_sms`` is refused:
    rounds have no halves. With thousands of tokens ``sm_margin`` leaves SMs to other kernels, and the slots take
    2 * ``n_pes`` * ``max_tokens`` rows.
    """
    with calling("dispatch_send", group, between_hosts=True) as comm:
        prepared = comm.own(Prepared)
        sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms)
        given: tuple[Any, ...] = (x, x if scales is None else scales, topk_ids, topk_weights)
        signature = None if topk_weights is None else prepared.signature(("dispatch_send", *sizes), *given)
        known = prepared.details(signature)
        if known is not None and topk_weights is not None:
            exchange, rest = known
            sendable = not exchange.is_in_flight() and not records_gradients(x, topk_weights)
            routing, rows = Routing(topk_ids, topk_weights, *rest), None
            n_scales = 0 if scales is None else scales.shape[1]
            if sendable and routing.hosts > 1:
                rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
                given = *given, *rows
            if sendable and prepared.repeat(signature, *given):
                how = (buffer, sm_margin), exchange.send()
                return Sent(exchange, routing, x.dtype, x.shape[1], n_scales, rows, *how)
        if num_sms:
            refuse_halves_of_rounds("dispatch_send")
        routing = check_routing(
            comm, "dispatch_send", x, topk_ids, topk_weights, num_experts, max_tokens, align, capacity, expert_capacity
        )
        n_scales = check_scales("dispatch_send", x, scales)
        exchange, rows, made = _send_half(x, scales, n_scales, routing, buffer, sm_margin)
        compared = "dispatch_send", *compared_of(x, routing)
        prepared.keep(signature, made, *compared, details=(exchange, routing[2:]))
        return Sent(exchange, routing, x.dtype, x.shape[1], n_scales, rows, (buffer, sm_margin), exchange.send())


def _send_half(
    x: torch.Tensor, scales: torch.Tensor | None, n_scales: int, routing: Routing, buffer: int, sm_margin: int
) -> tuple[Exchange | HostExchange, ColumnRows | None, Launch | None]:
    if routing.hosts > 1:
        rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
        crossing, made = between_hosts.send_to_hosts("dispatch_send", x, scales, routing, rows, buffer, sm_margin)
        return crossing, rows, made
    exchange, constants = _prepare("dispatch_send", x, n_scales, routing, buffer, sm_margin)
    tensors = *_words(x, x if scales is None else scales), routing.ids, routing.weights
    made = launch(
        _dispatch_send, (exchange.programs,), tensors, routing.n_tokens, exchange.messages, _sums(exchange, routing),
        exchange.slots, exchange.sent, **constants, **_sending(exchange, routing, constants),
        **_options(routing, constants),
    )  # fmt: skip
    return exchange, None, made


def dispatch_receive(sent: Sent, result: Dispatched | None = None) -> Dispatched:
    """The second half of :func:`dispatch`: wait for the rows of ``sent``.

    Args:
        result: tensors for them, from :func:`result_of`; by default new ones.

    Raises:
        RuntimeError: they have been received already.
    """
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
        _dispatch_receive, (exchange.programs,), (*_words(out, out_scales), memory), routing.capacity,
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
    *,
    new: Callable[..., torch.Tensor],
) -> Dispatched:
    """:func:`dispatch`, inside a call; ``new`` makes the results, ``torch.empty`` or ``torch.zeros``."""
    prepared = comm.own(Prepared)
    given = (x, ids, weights) if scales is None else (x, ids, weights, scales)
    sizes = (num_experts, max_tokens, align, capacity, expert_capacity, buffer, sm_margin, num_sms)
    signature = None if weights is None else prepared.signature(("dispatch", *sizes), *given)
    known = prepared.details(signature)
    if known is not None and weights is not None:
        exchange, rest, n_words = known
        if not (exchange and exchange.is_in_flight()) and not records_gradients(x, weights):
            routing = Routing(ids, weights, *rest)
            n_scales = 0 if scales is None else scales.shape[1]
            result = result_of(routing, x.dtype, x.shape[1], n_scales, new, n_words)
            tensors = _tensors(x, scales, routing, result)
            if routing.hosts > 1:
                tensors = *tensors[:4], *column_rows(routing, x.dtype, x.shape[1], n_scales), *tensors[4:]
            if prepared.repeat(signature, *tensors):
                return result
    routing = check_routing(
        comm, "dispatch", x, ids, weights, num_experts, max_tokens, align, capacity, expert_capacity, num_sms
    )
    result, exchange, made = _run("dispatch", x, scales, routing, buffer, sm_margin, new)
    compared = "dispatch", *compared_of(x, routing)
    prepared.keep(signature, made, *compared, details=(exchange, routing[2:], result.memory.numel()))
    return result


def _run(
    function: str,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    buffer: int,
    sm_margin: int,
    new: Callable[..., torch.Tensor],
) -> tuple[Dispatched, Exchange | HostExchange | None, Launch | Sequence[Step] | None]:
    n_scales = check_scales(function, x, scales)
    if routing.num_sms and sm_margin:
        raise ValueError(f"{function}: num_sms says how many SMs work, and sm_margin how many do not: give one")
    result = result_of(routing, x.dtype, x.shape[1], n_scales, new)
    if routing.hosts == 1:
        return result, *_launch(function, buffer, sm_margin, x, scales, routing, result)
    rows = column_rows(routing, x.dtype, x.shape[1], n_scales)
    within = partial(_within_host, function, buffer, sm_margin)
    return result, *between_hosts.exchange_with_hosts(
        function, x, scales, routing, result, rows, buffer, sm_margin, within
    )


def _within_host(function: str, buffer: int, sm_margin: int, *dispatched: Any) -> Launch | None:
    return _launch(function, buffer, sm_margin, *dispatched)[1]


def _launch(
    function: str,
    buffer: int,
    sm_margin: int,
    x: torch.Tensor,
    scales: torch.Tensor | None,
    routing: Routing,
    result: Dispatched,
) -> tuple[Exchange | None, Launch | None]:
    """Dispatch into ``result`` by load and store."""
    n_scales = 0 if scales is None else scales.shape[1]
    x, scales, ids, weights, out, out_scales, memory = _tensors(x, scales, routing, result)
    if routing.num_sms:
        constants = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)
        made = dispatch_rounds(x, scales, routing, result, out_scales, constants | _layout(routing), _ASSERTING, buffer)
        return None, made
    exchange, constants = _prepare(function, x, n_scales, routing, buffer, sm_margin)
    tensors = *_words(x, scales), ids, weights, *_words(out, out_scales), memory
    made = launch(
        _dispatch, (exchange.programs,), tensors, routing.n_tokens, routing.capacity, exchange.messages,
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


def _words(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.view(torch.int32) for tensor in tensors)


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
    if not routing.num_sms:
        exchange, _ = _prepare(function, x, n_scales, routing, 0, 0)
        _sums(exchange, routing)
        return
    row = _constants(routing, x.shape[1] * x.element_size() // 4, n_scales)["ROW"]
    dispatch_slots(routing, row, routing.num_sms)


def _constants(routing: Routing, data: int, n_scales: int) -> dict[str, Any]:
    kp = int(triton.next_power_of_2(routing.top_k))
    scales = -(-n_scales // 4) * 4
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "KP": kp, "L": routing.local_experts,
        "MAX_TOKENS": routing.max_tokens, "DATA": data, "SCALES": n_scales, "AT": data + scales,
        "ROW": data + scales + 4 * kp, "BLOCK": _cut(routing, data).block, "SOURCES": routing.sources,
    }  # fmt: skip


def _cut(routing: Routing, data: int) -> Cut:
    return cut_of(data, routing.max_tokens, 4096)


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
