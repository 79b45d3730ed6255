"""Combine of many tokens: the sums of ``combine.py`` by senders and receivers (``senders.py``).

A sender adds up the rows that this PE has of peers' tokens, and stores the sums to the slots of the tokens. A receiver
adds up the rows of its own PE's tokens that stay, and adds what peers send. The loads of the next block of words are in
flight before those of this one are added.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.kernels.arguments import in_int32
from triton_dist.kernels.moe.arguments import Routing
from triton_dist.kernels.moe.results import Dispatched, parts_of
from triton_dist.kernels.moe.rows import element, look_at, scalar_of, send_words, take_words, word_of
from triton_dist.kernels.moe.senders import (
    ARRIVES,
    Plan,
    batch_of_peers,
    block_for,
    goes_to,
    ids_of,
    multiprocessors,
    of_choice,
    role,
    senders_of,
    work_of,
    workspace,
)
from triton_dist.kernels.prepared import Launch, launch
from triton_dist.kernels.protocols.ll import next_number
from triton_dist.kernels.protocols.members import group_size, my_rank, pe_of
from triton_dist.language._poll import no_polls, poll

__all__ = ["combine_many", "constants_of", "make_slots", "plan_of"]

AHEAD, PES_AHEAD = tl.constexpr(8), tl.constexpr(4)
"""Of how many choices, and of sums of how many PEs, words are loaded a block ahead. More would not fit in registers."""


# ---- device code


@triton.jit
def _positions(memory, rank, tokens, known, MAX_TOKENS: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr):
    """Where the rows of tokens of ``rank`` are here, by choice, and their weights: [B, KP]."""
    choices = tl.arange(0, triton.next_power_of_2(K))
    message = (rank * MAX_TOKENS + tokens)[:, None] * K + choices[None, :]
    mask = known[:, None] & (choices < K)[None, :]
    position = tl.load(memory + PARTS[4] + message, mask=mask, other=-1)
    return position, tl.load(memory + PARTS[5] + message, mask=mask, other=0)


@triton.jit
def _row_of(y, position, k, offsets, WORDS: tl.constexpr):
    """Words of the rows of choice k of tokens, [B, BLOCK]."""
    row = of_choice(position, k)
    return tl.load(y + row.to(tl.int64) * WORDS + offsets, mask=(row >= 0) & (offsets < WORDS), other=0)


@triton.jit
def _rows_of(y, position, offsets, K: tl.constexpr, WORDS: tl.constexpr):
    """The same of all choices, with all loads in flight; of more than a few choices, nothing."""
    rows = ()
    if K <= AHEAD:
        for k in tl.static_range(K):
            rows = rows + (_row_of(y, position, k, offsets, WORDS),)  # type: ignore[assignment]  # noqa: RUF005
    return rows


@triton.jit
def _sum_of(
    rows, y, position, weight, offsets, K: tl.constexpr, WORDS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Words of the sums of tokens' rows, in the order of their choices. ``rows``: what :func:`_rows_of` returned."""
    B: tl.constexpr = position.shape[0]
    lower = tl.zeros([B, offsets.shape[1]], tl.float32)
    upper = tl.zeros([B, offsets.shape[1]], tl.float32)
    if K <= AHEAD:
        for k in tl.static_range(K):
            lower, upper = _added(lower, upper, rows[k], position, weight, k, DTYPE, WEIGHTED)
    else:
        for k in range(K):
            row = _row_of(y, position, k, offsets, WORDS)
            lower, upper = _added(lower, upper, row, position, weight, k, DTYPE, WEIGHTED)
    return word_of(lower, upper, DTYPE)


@triton.jit
def _added(lower, upper, row, position, weight, k, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr):
    factor = 1.0
    if WEIGHTED:
        factor = of_choice(weight, k).to(tl.float32, bitcast=True)
        factor = tl.where(of_choice(position, k) >= 0, factor, 0.0)
    return lower + factor * element(row, False, DTYPE), upper + factor * element(row, True, DTYPE)


@triton.jit
def _send_sums(
    y, memory, slots, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr, MAX_TOKENS: tl.constexpr,
    WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Send peers the sums of their tokens' rows."""
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    half = ((number & 1) * N + me).to(tl.int64)
    ranks = tl.arange(0, triton.next_power_of_2(N))
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    tokens_of = tl.load(memory + PARTS[2] + ranks, mask=ranks < N, other=0)
    batches_of = tl.cdiv(tokens_of, B)
    last = tl.max(tl.where(ranks == me, 0, batches_of)) * (N - 1)
    rank, token, there = batch_of_peers(index, batches_of, me, N, B)
    known = there & (token + batch < scalar_of(tokens_of, rank))
    next_position, next_weight = _positions(memory, rank, token + batch, known, MAX_TOKENS, K, PARTS)
    for i in range(index, last, programs):
        position, weight = next_position, next_weight
        place = dl.symm_at(slots + (half * MAX_TOKENS + token) * WORDS, pe_of(rank, MEMBERS))
        rank, token, there = batch_of_peers(i + programs, batches_of, me, N, B)
        known = there & (token + batch < scalar_of(tokens_of, rank))
        next_position, next_weight = _positions(memory, rank, token + batch, known, MAX_TOKENS, K, PARTS)
        sent = tl.max(position, axis=1)[:, None] >= 0
        if tl.max(position.reshape([position.numel])) >= 0:
            rows = _rows_of(y, position, columns, K, WORDS)
            for first in range(0, WORDS, BLOCK):
                offsets = first + columns
                these = rows
                rows = _rows_of(y, position, offsets + BLOCK, K, WORDS)
                words = _sum_of(these, y, position, weight, offsets, K, WORDS, DTYPE, WEIGHTED)
                send_words(place + batch[:, None] * WORDS + offsets, words, sent & (offsets < WORDS))


@triton.jit
def _seen_of(
    place, ids, me, offsets, N: tl.constexpr, L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """What is there of the sums of each PE, [B, BLOCK]."""
    seen = ()
    for pe in tl.static_range(N):
        mask = goes_to(ids, pe, L) & (pe != me) & (offsets < WORDS)
        seen = seen + (look_at(place + pe * (MAX_TOKENS * WORDS) + offsets, mask),)  # type: ignore[assignment]  # noqa: RUF005
    return seen


@triton.jit
def _take_sums(
    y, memory, out, ids, n_tokens, slots, number, index, programs, MEMBERS: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up what peers send of this PE's tokens, and what is here."""
    N: tl.constexpr = group_size(MEMBERS)
    KP: tl.constexpr = triton.next_power_of_2(K)
    me = my_rank(MEMBERS)
    half = (number & 1).to(tl.int64) * N
    batch = tl.arange(0, B)
    columns = tl.arange(0, BLOCK)[None, :]
    at = batch[:, None] * WORDS
    tokens = index * B + batch
    next_ids = ids_of(ids, tokens, n_tokens, K, KP)
    next_position, next_weight = _positions(memory, me, tokens, tokens < n_tokens, MAX_TOKENS, K, PARTS)
    for i in range(index, tl.cdiv(n_tokens, B), programs):
        used = (i * B + batch < n_tokens)[:, None]
        mine, position, weight = next_ids, next_position, next_weight
        tokens = (i + programs) * B + batch
        next_ids = ids_of(ids, tokens, n_tokens, K, KP)
        next_position, next_weight = _positions(memory, me, tokens, tokens < n_tokens, MAX_TOKENS, K, PARTS)
        place = slots + (half * MAX_TOKENS + i * B) * WORDS
        seen = ()
        if N <= PES_AHEAD:
            seen = _seen_of(place + at, mine, me, columns, N, L, MAX_TOKENS, WORDS)
        rows = _rows_of(y, position, columns, K, WORDS)
        for first in range(0, WORDS, BLOCK):
            offsets = first + columns
            these_seen, these_rows = seen, rows
            # The loads of the next block are in flight before the wait for this one.
            if N <= PES_AHEAD:
                seen = _seen_of(place + at, mine, me, offsets + BLOCK, N, L, MAX_TOKENS, WORDS)
            else:
                these_seen = _seen_of(place + at, mine, me, offsets, N, L, MAX_TOKENS, WORDS)
            rows = _rows_of(y, position, offsets + BLOCK, K, WORDS)
            own = _sum_of(these_rows, y, position, weight, offsets, K, WORDS, DTYPE, WEIGHTED)
            lower = tl.zeros([B, BLOCK], tl.float32)
            upper = tl.zeros([B, BLOCK], tl.float32)
            for pe in tl.static_range(N):
                goes = goes_to(mine, pe, L)
                mask = goes & (pe != me) & (offsets < WORDS)
                slot = place + pe * (MAX_TOKENS * WORDS)
                words = take_words(
                    these_seen[pe], slot + at + offsets, mask, slot + first, pe_of(pe, MEMBERS),
                    tl.minimum(BLOCK, WORDS - first),
                )  # fmt: skip
                words = tl.where(mask, words, tl.where(goes & (pe == me), own, 0))
                lower += element(words, False, DTYPE)
                upper += element(words, True, DTYPE)
            to = out + (tl.cast(i, tl.int64) * B) * WORDS + at + offsets
            tl.store(to, word_of(lower, upper, DTYPE), mask=used & (offsets < WORDS))


@triton.jit(do_not_specialize=["n_tokens", "senders"])
def moe_combine_many(
    y, memory, ids, out, n_tokens, senders, flags, slots, numbers, MEMBERS: tl.constexpr, K: tl.constexpr,
    L: tl.constexpr, MAX_TOKENS: tl.constexpr, WORDS: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
    WEIGHTED: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr, SMS: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = group_size(MEMBERS)
    me = my_rank(MEMBERS)
    program = tl.program_id(0)
    number = next_number(tl.load(numbers + program))
    sends, receives, index, programs = role(senders, SMS)
    if sends:
        _send_sums(
            y, memory, slots, number, index, programs, MEMBERS, K, MAX_TOKENS, WORDS, PARTS, DTYPE, WEIGHTED, B, BLOCK
        )  # fmt: skip
    if receives:
        half = (number & 1).to(tl.int64) * N
        if program == tl.num_programs(0) - 1:
            for pe in tl.static_range(N):
                tl.store(dl.symm_at(flags + half + me, pe_of(pe, MEMBERS)), number.to(tl.int64))
        _take_sums(
            y, memory, out, ids, n_tokens, slots, number, index, programs, MEMBERS, K, L, MAX_TOKENS, WORDS,
            PARTS, DTYPE, WEIGHTED, B, BLOCK,
        )  # fmt: skip
        if program == tl.num_programs(0) - 1:
            ranks = tl.arange(0, triton.next_power_of_2(N))
            polls = no_polls()
            missing = True
            while missing:
                arrived = tl.load(flags + half + ranks, mask=ranks < N, other=number, volatile=True).to(tl.int32)
                words = (flags + half).to(tl.pointer_type(tl.int32), bitcast=True)
                polls = poll(polls, words, dl.CMP_EQ, number, pe_of(0, MEMBERS), N, 1, 2, 2)
                missing = tl.max((arrived != number).to(tl.int32)) != 0
    tl.debug_barrier()
    tl.store(numbers + program, number)


# ---- the host's part


def combine_many(
    function: str,
    y: torch.Tensor,
    dispatched: Dispatched,
    out: torch.Tensor,
    dtype: tl.dtype,
    weighted: bool,
    buffer: int,
    sm_margin: int,
) -> Launch | None:
    """Combine into ``out``."""
    routing = dispatched.routing
    words = y.shape[1] * y.element_size() // 4
    plan = plan_of(function, routing, words, sm_margin)
    slots, flags, numbers = _memory(routing, words, plan, buffer)
    return launch(
        moe_combine_many, (plan.programs,),
        (in_int32(y), dispatched.memory, routing.ids, in_int32(out)),
        routing.n_tokens, plan.senders, flags, slots, numbers, **constants_of(routing, words, dtype, weighted, plan),
        **plan.options,
    )  # fmt: skip


def make_slots(function: str, routing: Routing, words: int) -> None:
    """Make the memory of combines with this routing's sizes, of rows of so many words. *Collective.*"""
    _memory(routing, words, plan_of(function, routing, words, 0), 0)


def plan_of(function: str, routing: Routing, words: int, sm_margin: int) -> Plan:
    """How rows of so many words are combined."""
    n_sms, per_sm = multiprocessors(function, sm_margin)
    n_pes, top_k = routing.members.size, routing.top_k
    work = work_of(n_pes, top_k)
    here = top_k / n_pes  # of a token's rows
    senders = senders_of(top_k - here + work.crosses, here + ARRIVES * work.crosses + 1, n_sms)
    # Blocks that a thread holds at the same time, and how many words of each: as many as registers allow.
    held = (2 * top_k if top_k <= AHEAD.value else 4) + (2 * n_pes if n_pes <= PES_AHEAD.value else n_pes)
    warps, registers = (8, 192) if sm_margin else (4, 96)
    each = next((n for n in (16, 8, 4, 2) if n * held <= registers), 1)
    if each < 8 and per_sm == 4:
        per_sm = 3
    return Plan(n_sms, senders, per_sm, warps, 1, block_for(words, min(2048, 32 * warps * each), 1))


def constants_of(routing: Routing, words: int, dtype: tl.dtype, weighted: bool, plan: Plan) -> dict[str, Any]:
    return {
        "MEMBERS": routing.members, "K": routing.top_k, "L": routing.local_experts, "MAX_TOKENS": routing.max_tokens,
        "WORDS": words, "PARTS": parts_of(routing)[:6], "DTYPE": dtype, "WEIGHTED": weighted, "B": plan.batch,
        "BLOCK": plan.block, "SMS": plan.sms,
    }  # fmt: skip


def _memory(routing: Routing, words: int, plan: Plan, buffer: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slots, arrival flags, and numbers of exchanges."""
    assert routing.comm is not None
    return workspace(routing.comm, f"combine of {words} words", routing, plan, words, 1, buffer)[1:]
