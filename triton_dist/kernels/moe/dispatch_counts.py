"""Counts of a dispatch: how many rows each PE sends to each expert, from which every PE knows where rows belong.

Every PE counts its ids and sends every PE those of its experts, in the LL protocol, before any row. A row belongs at

    offset of the expert + rows of this expert from lower PEs + rank among those of its PE

The last program of a PE counts all ids and sends. Every program counts those in front of its own tokens by itself,
which takes less time than to wait for another one.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.moe.rows import scalar_of
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.language._poll import held_once, no_polls, poll

__all__ = ["begins_of", "count_ids", "receive_counts", "send_counts"]


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


@triton.jit
def send_counts(
    ids, n_tokens, counts, number, MEMBERS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, L: tl.constexpr,
    TOKENS: tl.constexpr, MESSAGES: tl.constexpr,
):  # fmt: skip
    """Tell every PE how many rows each of its experts gets from here; and how many messages they come in, or, without
    ``MESSAGES``, how many tokens there are here."""
    N: tl.constexpr = group_size(MEMBERS)
    if tl.program_id(0) == tl.num_programs(0) - 1:  # which has the fewest tokens to send
        chosen, messages = count_ids(ids, 0, n_tokens, N, K, KP, L, TOKENS, MESSAGES, True)
        experts = tl.arange(0, chosen.shape[0])
        flag = number.to(tl.int64) << 32
        for pe in tl.static_range(N):
            slot = dl.symm_at(counts + ((number & 1) * N + my_rank(MEMBERS)) * (L + 1), pe_of(pe, MEMBERS))
            tl.store(slot + experts - pe * L, flag | chosen.to(tl.int64), mask=experts // L == pe)
            last = tl.cast(n_tokens, tl.int32)
            if MESSAGES:
                last = scalar_of(messages, pe)
            tl.store(slot + L, flag | last.to(tl.int64))


@triton.jit
def receive_counts(counts, number, MEMBERS: tl.constexpr, L: tl.constexpr):
    """Wait for the counts of all PEs: row i from rank i, LP columns, and what else it told in column L. The rest is 0.

    There are at least NP rows, and so many that copies of what is polled cannot differ.
    """
    N: tl.constexpr = group_size(MEMBERS)
    LP: tl.constexpr = triton.next_power_of_2(L + 1)
    ROWS: tl.constexpr = held_once(triton.next_power_of_2(N), LP)
    pes = tl.arange(0, ROWS)
    columns = tl.arange(0, LP)
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
def begins_of(
    arrived, memory, capacity, MEMBERS: tl.constexpr, L: tl.constexpr, PARTS: tl.constexpr, ALIGN: tl.constexpr,
    FIXED: tl.constexpr,
):  # fmt: skip
    """Where the rows of each PE for each expert begin, by source and column, of as many elements as ``arrived``; and
    its column L, a row each.

    The last program stores counts and offsets to the result.
    """
    N: tl.constexpr = group_size(MEMBERS)
    pes = tl.arange(0, arrived.shape[0])
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
        tl.store(memory + PARTS[2] + pes, last, mask=pes < N)
    begins = offsets_of[None, :] + tl.cumsum(arrived, axis=0) - arrived
    return begins.reshape([arrived.numel]), last
