"""Counts of a dispatch: how many rows each PE sends to each expert, from which every PE knows where rows belong.

Every PE counts its ids and sends every PE those of its experts, in the LL protocol, before any row. A row belongs at

    offset of the expert + rows of this expert from lower PEs + rank among those of its PE

The last program of a PE sends all counts. Every program must know those in front of its own tokens. Of few tokens it
counts them by itself, which takes less time than to wait for another one; of many, some programs count a part each and
tell the others (:func:`count_in_parts`).

Between hosts a PE dispatches the tokens of several sources, its own and those that came from other hosts, and counts
them source by source (:class:`TokenSources`): the rows of an expert are in the order of the sources' ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.moe.rows import scalar_of
from triton_dist.kernels.protocols.ll import wait_for_flags
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of, stride_of
from triton_dist.language._poll import held_once

__all__ = [
    *("ONE_SOURCE", "PARTS_OF_COUNTS", "TokenSources", "begins_of", "count_ids", "count_in_parts", "receive_counts"),
    *("send_counted", "send_counts", "send_tokens_counted", "source_of", "words_of_parts"),
]

PARTS_OF_COUNTS = 32
"""How many programs count a part of many tokens each."""


class TokenSources(NamedTuple):
    """Whose tokens a PE dispatches: source s has those from ``s * length`` on, ``length`` of them.

    Source s of the rank r is number ``s * step + r * pe_step`` of all, in whose order rows are.
    """

    number: int
    length: int
    step: int
    pe_step: int


ONE_SOURCE = TokenSources(1, 0, 0, 1)
"""A PE's own tokens, however many there are."""


@triton.jit
def source_of(token, rank, SOURCES: tl.constexpr):
    """The number, among all sources, of that which a token of ``rank`` belongs to."""
    if SOURCES[0] == 1:
        return rank
    else:
        return token // SOURCES[1] * SOURCES[2] + rank * SOURCES[3]


@triton.jit
def count_ids(
    ids, begin, end, N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr, TOKENS: tl.constexpr,
    MESSAGES: tl.constexpr = False, CHECKED: tl.constexpr = False,
):  # fmt: skip
    """How often the tokens from ``begin`` to ``end`` choose each expert, [EP], ``TOKENS`` of them at a time.

    With ``MESSAGES`` also how many of these tokens go to each PE, [NP]; else 0. With ``CHECKED`` ids out of range are
    an error.
    """
    EP: tl.constexpr = triton.next_power_of_2(N * L)
    pes = tl.arange(0, triton.next_power_of_2(N))
    choices = tl.arange(0, KP)
    chosen = tl.zeros([EP], tl.int32)
    messages = tl.zeros(pes.shape, tl.int32)
    for first in range(begin, end, TOKENS):
        tokens = first + tl.arange(0, TOKENS)
        mask = (tokens < end)[:, None] & (choices < K)[None, :]
        given = tl.load(ids + tokens.to(tl.int64)[:, None] * K + choices[None, :], mask=mask, other=-1)
        if CHECKED:
            assert (given >= -1) & (given < N * L), "dispatch: an expert id is not in [-1, num_experts)"
        flat = given.to(tl.int32).reshape([TOKENS * KP])
        chosen += tl.histogram(flat, EP, mask=(flat >= 0) & (flat < N * L))
        if MESSAGES:
            homes = tl.where(given >= 0, given.to(tl.int32) // L, -1)
            there = tl.max((homes[:, :, None] == pes[None, None, :]).to(tl.int32), axis=1)
            messages += tl.sum(there, axis=0)
    return chosen, messages


def words_of_parts(n_experts: int, n_pes: int) -> int:
    """How many int64 words :func:`count_in_parts` needs."""
    return (2 * PARTS_OF_COUNTS + 1) * int(triton.next_power_of_2(n_experts) + triton.next_power_of_2(n_pes))


@triton.jit
def _tell(sums, row, number, chosen, messages):
    """Store a row of counts, each with the number of the exchange as its flag."""
    EP: tl.constexpr = chosen.shape[0]
    NP: tl.constexpr = messages.shape[0]
    flag = number.to(tl.int64) << 32
    place = sums + row * (EP + NP)
    tl.store(place + tl.arange(0, EP), flag | chosen.to(tl.int64))
    tl.store(place + EP + tl.arange(0, NP), flag | messages.to(tl.int64))


@triton.jit
def _row_told(sums, row, number, pe, EP: tl.constexpr, NP: tl.constexpr):
    """Wait for a row of counts."""
    place = sums + row * (EP + NP)
    experts = tl.arange(0, EP)
    pes = tl.arange(0, NP)
    chosen = wait_for_flags(place + experts, experts >= 0, number, place, pe, 1, EP, 0)
    return chosen, wait_for_flags(place + EP + pes, pes >= 0, number, place + EP, pe, 1, NP, 0)


@triton.jit
def count_in_parts(
    ids, n_tokens, begin, sums, number, pe, N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    TOKENS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """How often the tokens in front of ``begin`` choose each expert, [EP], and how many of them go to each PE, [NP].

    Each of the first ``PARTS`` programs counts a part of all tokens, tells the others, and adds what is told of the
    parts in front of its own; then every program counts at most a part. Of those it waits for programs with lower
    numbers only. Row i of ``sums`` has the counts of part i, row ``PARTS`` + i those in front of it, and the last one
    those of all.
    """
    program = tl.program_id(0)
    EP: tl.constexpr = triton.next_power_of_2(N * L)
    NP: tl.constexpr = triton.next_power_of_2(N)
    WIDTH: tl.constexpr = EP + NP
    ROWS: tl.constexpr = max(1, min(triton.next_power_of_2(PARTS), 1024 // EP))
    length = tl.maximum(tl.cdiv(n_tokens, PARTS), 1)
    if program < PARTS:
        first = tl.minimum(program * length, n_tokens)
        own, own_messages = count_ids(ids, first, tl.minimum(first + length, n_tokens), N, K, KP, L, TOKENS, True, True)
        _tell(sums, program, number, own, own_messages)
        chosen = tl.zeros([EP], tl.int32)
        messages = tl.zeros([NP], tl.int32)
        for part in range(0, program, ROWS):
            parts = part + tl.arange(0, ROWS)[:, None]
            there = parts < program
            row = sums + part * WIDTH
            left = tl.minimum(program - part, ROWS)
            places = sums + parts * WIDTH + tl.arange(0, EP)[None, :]
            chosen += tl.sum(wait_for_flags(places, there, number, row, pe, left, EP, WIDTH), axis=0)
            places = sums + parts * WIDTH + EP + tl.arange(0, NP)[None, :]
            messages += tl.sum(wait_for_flags(places, there, number, row + EP, pe, left, NP, WIDTH), axis=0)
        _tell(sums, PARTS + program, number, chosen, messages)
        if program == PARTS - 1:
            _tell(sums, 2 * PARTS, number, chosen + own, messages + own_messages)
    part = tl.minimum(begin // length, PARTS - 1)
    chosen, messages = _row_told(sums, PARTS + part, number, pe, EP, NP)
    more, more_messages = count_ids(ids, tl.minimum(part * length, begin), begin, N, K, KP, L, TOKENS, True)
    return chosen + more, messages + more_messages


@triton.jit
def _send_row(chosen, last, counts, source, number, MEMBERS: tl.constexpr, L: tl.constexpr, S: tl.constexpr):
    """Send the counts of one source, [EP], to the PEs of their experts, and to each PE ``last`` [NP]."""
    N: tl.constexpr = group_size(MEMBERS)
    flag = number.to(tl.int64) << 32
    experts = tl.arange(0, chosen.shape[0])
    row = (number & 1) * (N * S) + source
    for pe in tl.static_range(N):
        slot = dl.symm_at(counts + row * (L + 1), pe_of(pe, MEMBERS))
        tl.store(slot + experts - pe * L, flag | chosen.to(tl.int64), mask=experts // L == pe)
        tl.store(slot + L, flag | scalar_of(last, pe).to(tl.int64))


@triton.jit
def send_counts(
    ids, n_tokens, counts, number, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    TOKENS: tl.constexpr, MESSAGES: tl.constexpr, SOURCES: tl.constexpr = ONE_SOURCE,
):  # fmt: skip
    """Tell every PE how many rows each of its experts gets from each source here; and, with the first source, how many
    messages they come in, or, without ``MESSAGES``, how many tokens there are here."""
    N: tl.constexpr = group_size(MEMBERS)
    S: tl.constexpr = SOURCES[0]
    me = my_rank(MEMBERS)
    if tl.program_id(0) == tl.num_programs(0) - 1:  # which has the fewest tokens to send
        all_messages = tl.zeros([triton.next_power_of_2(N)], tl.int32)
        for i in tl.static_range(S):
            source = S - 1 - i  # the first one last, with the messages of all
            end = n_tokens
            if S > 1:
                end = tl.minimum(n_tokens, (source + 1) * SOURCES[1])
            chosen, messages = count_ids(ids, source * SOURCES[1], end, N, K, KP, L, TOKENS, MESSAGES, True)
            if MESSAGES:
                all_messages += messages
            last = all_messages if MESSAGES else all_messages + n_tokens
            number_of_source = source * SOURCES[2] + me * SOURCES[3]
            _send_row(chosen, tl.where(source == 0, last, 0), counts, number_of_source, number, MEMBERS, L, S)


@triton.jit
def send_counted(sums, counts, number, MEMBERS: tl.constexpr, L: tl.constexpr, PARTS: tl.constexpr):
    """As :func:`send_counts`, of one source, with messages, when :func:`count_in_parts` counts the ids."""
    N: tl.constexpr = group_size(MEMBERS)
    EP: tl.constexpr = triton.next_power_of_2(N * L)
    me = my_rank(MEMBERS)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        chosen, messages = _row_told(sums, 2 * PARTS, number, pe_of(me, MEMBERS), EP, triton.next_power_of_2(N))
        _send_row(chosen, messages, counts, me, number, MEMBERS, L, 1)


@triton.jit
def send_tokens_counted(sums, n_tokens, counts, number, MEMBERS: tl.constexpr, L: tl.constexpr, PARTS: tl.constexpr):
    """As :func:`send_counted`, with the number of this PE's tokens instead of messages."""
    EP: tl.constexpr = triton.next_power_of_2(group_size(MEMBERS) * L)
    NP: tl.constexpr = triton.next_power_of_2(group_size(MEMBERS))
    me = my_rank(MEMBERS)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        chosen, messages = _row_told(sums, 2 * PARTS, number, pe_of(me, MEMBERS), EP, NP)
        _send_row(chosen, messages * 0 + n_tokens, counts, me, number, MEMBERS, L, 1)


@triton.jit
def receive_counts(counts, number, MEMBERS: tl.constexpr, L: tl.constexpr, SOURCES: tl.constexpr = ONE_SOURCE):
    """Wait for the counts of all PEs: row i from source i, LP columns, and what else it told in column L. The rest is
    0.

    There are at least as many rows as sources, and so many that copies of what is polled cannot differ.
    """
    N: tl.constexpr = group_size(MEMBERS)
    ALL: tl.constexpr = N * SOURCES[0]
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    ROWS: tl.constexpr = held_once(triton.next_power_of_2(ALL), LP)
    sources = tl.arange(0, ROWS)
    columns = tl.arange(0, LP)
    slot = counts + (number & 1) * ALL * (L + 1)
    mask = (sources < ALL)[:, None] & (columns <= L)[None, :]
    places = slot + sources[:, None] * (L + 1) + columns[None, :]
    STEP: tl.constexpr = (L + 1) * SOURCES[3]  # from the first source of a PE to that of the next one
    return wait_for_flags(places, mask, number, slot, pe_of(0, MEMBERS), N, L + 1, STEP, stride_of(MEMBERS))


@triton.jit
def begins_of(
    arrived, memory, capacity, MEMBERS: tl.constexpr, L: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
    FIXED: tl.constexpr, SOURCES: tl.constexpr = ONE_SOURCE,
):  # fmt: skip
    """Where the rows of each source for each expert begin, by source and column, of as many elements as ``arrived``;
    and its column L, a row each, which is not 0 only in the rows of PEs' first sources.

    The last program stores counts and offsets to the result.
    """
    N: tl.constexpr = group_size(MEMBERS)
    sources = tl.arange(0, arrived.shape[0])
    columns = tl.arange(0, triton.next_power_of_2(L + 1))
    totals = tl.where(columns < L, tl.sum(arrived, axis=0), 0)
    padded = (totals + (ALIGN - 1)) // ALIGN * ALIGN
    if FIXED:  # every expert has room for as many
        padded = tl.where(columns < L, ALIGN, 0)
    offsets_of = tl.cumsum(padded, axis=0) - padded
    last = tl.sum(tl.where((columns == L)[None, :], arrived, 0), axis=1)
    if tl.program_id(0) == tl.num_programs(0) - 1:  # which has sent counts to all PEs, so each sees its own mistake
        assert (tl.sum(padded) <= capacity) & (tl.max(totals) <= (ALIGN if FIXED else capacity)), (
            "dispatch: more rows arrive than capacity"
        )
        tl.store(memory + PARTS[0] + columns, totals, mask=columns < L)
        tl.store(memory + PARTS[1] + columns, offsets_of, mask=columns <= L)
        ranks = sources // SOURCES[3]
        tl.store(memory + PARTS[2] + ranks, last, mask=(ranks < N) & (sources % SOURCES[3] == 0))
    begins = offsets_of[None, :] + tl.cumsum(arrived, axis=0) - arrived
    return begins.reshape([arrived.numel]), last
